"""What text makes the engine warn of stands in the status, also after the file was applied."""

from __future__ import annotations

from pathlib import Path

from lakemirror import MirroredDatabase


def test_the_status_names_columns_that_look_like_more(tmp_path: Path) -> None:
    folder = tmp_path / "Files/LandingZone/orders"
    folder.mkdir(parents=True)
    (folder / "_metadata.json").write_text(
        '{"fileFormat": "CSV", "fileFormatTypeProperties": {"columnSeparator": ";"},'
        ' "lakemirror": {"complete": "rename"}}'
    )
    (folder / "00000000000000000001.csv").write_text("id;amount\n1;2,50\n2;3,75\n")
    database = MirroredDatabase(tmp_path)
    result = database.sync()
    assert not result.failed and result.tables["orders"].rows == 2 and not result.started_spark
    (table,) = MirroredDatabase(tmp_path).status().tables
    said = [warned.message for warned in table.warnings if warned.code == "text-looks-typed"]
    assert said and "amount" in said[0] and "decimalSeparator" in said[0]
