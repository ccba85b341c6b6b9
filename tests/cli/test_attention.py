"""`sync` and `status` end with 3 where a person must change something before anything is applied."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.landing import declare, folder, put
from typer.testing import CliRunner, Result

from lakemirror.cli import app
from lakemirror.landing_zone.findings import Warned, capped, summed_up
from lakemirror.status.status import needing_attention


def command(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def shop(tmp_path: Path) -> Path:
    put(tmp_path / "shop", "good", 1, {"id": [1]})
    return tmp_path / "shop"


def name_wrongly(database: Path) -> None:
    put(database, "orders", 1, {"id": [1]}).rename(folder(database, "orders") / "1.parquet")
    (folder(database, "orders") / "2.parquet").write_bytes(b"")


def declare_another_format(database: Path) -> None:
    declare(database, "orders", ["id"], fileFormat="CSV")
    put(database, "orders", 1, {"id": [1]})


def rely_on_times(database: Path) -> None:
    put(database, "orders", 1, {"id": [1]}).rename(folder(database, "orders") / "a.parquet")


def link(database: Path) -> None:
    declare(database, "orders", ["id"])
    (folder(database, "orders") / f"{1:020}.parquet").symlink_to(folder(database, "good") / f"{1:020}.parquet")


@pytest.mark.parametrize("publish", [name_wrongly, declare_another_format, rely_on_times, link])
def test_a_folder_without_any_change_file(tmp_path: Path, publish: Callable[[Path], None]) -> None:
    database = shop(tmp_path)
    publish(database)
    said = command("sync", database)
    assert (said.exit_code, "orders needs attention" in said.stderr) == (3, True), said.output
    assert "good: 1 file" in said.stdout
    found = command("sync", database, "--json")
    assert found.exit_code == 3
    row = json.loads(found.stdout)["attention"]["orders"]
    assert row["hint"] and row["file"].startswith("Files/LandingZone/orders/")
    assert command("status", database).exit_code == 3


def test_files_in_no_table_folder(tmp_path: Path) -> None:
    database = tmp_path / "shop"
    put(database, "orders", 1, {"id": [1]}).rename(database / f"Files/LandingZone/{1:020}.parquet")
    folder(database, "orders").rmdir()
    (database / "Files/LandingZone/README.md").write_text("")
    said = command("sync", database)
    assert (said.exit_code, said.stderr.count("file-stray")) == (3, 2), said.output


def test_a_schema_folder_that_cannot_be_listed() -> None:
    unlisted = Warned("storage-unavailable", "Permission denied", "Files/LandingZone/sales.schema")
    unknown = Warned("setting-unknown", "colour is not known", "mirroring.json")
    assert needing_attention([], [unknown, unlisted]) == {unlisted.file: unlisted}


def nothing_yet(database: Path) -> None:
    declare(database, "orders", ["id"])


def being_written(database: Path) -> None:
    declare(database, "orders", ["id"])
    for name in (".a.parquet", "_a.parquet", "1.parquet.tmp"):
        (folder(database, "orders") / name).write_bytes(b"")


def a_gap(database: Path) -> None:
    put(database, "orders", 2, {"id": [1]})


def ignored_beside_applied(database: Path) -> None:
    put(database, "orders", 1, {"id": [1]})
    (folder(database, "orders") / "x.parquet").write_bytes(b"")


@pytest.mark.parametrize("publish", [nothing_yet, being_written, a_gap, ignored_beside_applied])
def test_what_waits_or_goes_on_needs_nobody(tmp_path: Path, publish: Callable[[Path], None]) -> None:
    database = shop(tmp_path)
    publish(database)
    assert command("sync", database).exit_code == 0
    assert command("status", database).exit_code == 0


def test_a_summary_counts_the_warnings_that_were_left_out_before() -> None:
    found = capped(Warned("folder-missing", f"t{number}: missing", f"t{number}") for number in range(40))
    assert [each.message for each in summed_up(found)] == ["t0: missing (and 39 more like it)"]
    two = capped((Warned("folder-missing", f"t{number}", f"t{number}") for number in range(4)), most=2)
    assert [each.message for each in summed_up(two)] == ["t0", "t1 (and 2 more)"]
