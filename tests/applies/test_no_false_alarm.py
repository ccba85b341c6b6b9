"""Tables that are right, whose change files hold values in unusual forms: verification finds nothing wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.landing import MARKER, declare, folder, put

from lakemirror import MirroredDatabase
from lakemirror.storage import LocalStorage
from lakemirror.verify import Report, verify_database
from lakemirror.verify.proof import Options


def verified(database: Path) -> Report:
    assert not MirroredDatabase(database, engine="local", durability="process").sync().failed
    return verify_database(LocalStorage(database), (), Options(against_files=True))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.string_view(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
)
def test_markers_as_text(tmp_path: Path, kind: pa.DataType) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2, 3], "v": [1, 1, 1]})
    markers = pa.array(["+4", " 2\t", None, "04"])
    markers = markers.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else markers.cast(kind)
    put(tmp_path, "t", 2, {"id": [1, 2, 4, 3], "v": [2, 2, 2, 2], MARKER: markers})
    assert verified(tmp_path).findings == ()


def test_empty_text_in_a_partition_column(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], isPartitionEnabled=True)
    for place, more in (("p=", {}), ("p=x", {"p": [""]})):
        path = folder(tmp_path, "t") / place / f"{1:020}.parquet"
        path.parent.mkdir(parents=True)
        rows: dict[str, Any] = {"id": [len(place)], **more}
        if more:
            MirroredDatabase(tmp_path, engine="local", durability="process").sync()  # the folders give the column
        pq.write_table(pa.table(rows), path)
    assert verified(tmp_path).findings == ()


def test_a_key_of_nested_values_is_not_compared(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["k"])
    put(tmp_path, "t", 1, {"k": [[1], [2]], "v": [1, 1]})
    put(tmp_path, "t", 2, {"k": [[1]], "v": [2], MARKER: pa.array([4], pa.int32())})
    report = verified(tmp_path)
    assert report.exit_code == 1 and "depends on column 'k'" in report.findings[-1].message


def test_only_nested_values(tmp_path: Path) -> None:
    declare(tmp_path, "t")
    put(tmp_path, "t", 1, {"v": [[1], [2]]})
    report = verified(tmp_path)
    assert report.exit_code == 1 and "no column can be compared" in report.findings[-1].message
