"""Footers, names and bounds that once gave wrong rows, each through a whole pass (contract sections 3, 4 and 10)."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import parquet_footer as change
from tests.applies.test_applies import no_spark, rows
from tests.landing import MARKER, declare, put

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot

__all__ = ["no_spark"]


def code(database: Path) -> str:
    result = MirroredDatabase(database).sync()
    assert not result.started_spark
    return result.failed["t"].code if result.failed else ""


def lied(path: Path, lie: Any) -> None:
    path.write_bytes(change.with_footer(path.read_bytes(), lie))


def test_decimal_bounds_of_another_writer_keep_their_digits(tmp_path: Path) -> None:
    """Point 1: an update of a file carries its statistics over character by character."""
    declare(tmp_path, "t", ["id"])
    kind = pa.decimal128(38, 2)
    put(tmp_path, "t", 1, {"id": [1, 2], "d": pa.array([Decimal("9007199254740992.99"), Decimal(1)], kind)})
    assert code(tmp_path) == ""
    put(tmp_path, "t", 2, {"id": [2], "d": pa.array([None], kind), MARKER: [2]})
    assert code(tmp_path) == ""
    snapshot = read_snapshot(tmp_path / "Tables/t")
    assert snapshot is not None
    (add,) = snapshot.files.values()
    assert '"d":9007199254740992.99' in add["stats"]


@pytest.mark.parametrize(("low", "high"), [(100, 200), (7, 3)])
def test_bounds_of_keys_that_are_not_so(tmp_path: Path, low: int, high: int) -> None:
    """Points 3 and 7: the update replaces its row, whatever its footer says of the keys."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2, 3], "v": [1, 1, 1]})
    assert code(tmp_path) == ""
    bad = put(tmp_path, "t", 2, {"id": [2], "v": [9], MARKER: [4]})

    def lie(footer: change.Node) -> None:
        told = change.meta(footer)[change.STATISTICS][1]
        for field, bound in ((1, high), (2, low), (5, high), (6, low)):
            if field in told:
                told[field] = (told[field][0], bound.to_bytes(8, "little"))

    lied(bad, lie)
    assert code(tmp_path) in ("", "file-unreadable")
    if not code(tmp_path):
        assert rows(tmp_path / "Tables/t") == Counter({(1, 1): 1, (3, 1): 1, (2, 9): 1})


def test_encodings_that_spark_cannot_read_are_written_again(tmp_path: Path) -> None:
    """Point 4: the file is large enough to be taken as it is."""
    declare(tmp_path, "t")
    values = pa.table({"v": pa.array(range(600_000), pa.float64())})
    put(tmp_path, "t", 1, values, use_dictionary=False, column_encoding={"v": "BYTE_STREAM_SPLIT"}, compression="none")
    assert code(tmp_path) == ""
    for path in (tmp_path / "Tables/t").glob("*.parquet"):
        footer = pq.read_metadata(path)
        found = {each for g in range(footer.num_row_groups) for each in footer.row_group(g).column(0).encodings}
        assert "BYTE_STREAM_SPLIT" not in found


@pytest.mark.parametrize("name", ["__rowmarker__", "__ROWMARKER__", "rowMarker "])
def test_a_misspelt_marker_inserts_nothing(tmp_path: Path, name: str) -> None:
    """Point 5."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1], name: [2]})
    assert code(tmp_path) == "row-marker-misspelt"


def test_a_table_that_a_user_restored(tmp_path: Path) -> None:
    """Point 6."""
    declare(tmp_path, "t", ["id"])
    for number in (1, 2):
        put(tmp_path, "t", number, {"id": [number]})
        assert code(tmp_path) == ""
    deltalake.DeltaTable(tmp_path / "Tables/t").restore(0)
    put(tmp_path, "t", 3, {"id": [3]})
    assert code(tmp_path) == "table-restored"


def test_bounds_of_38_digits_after_another_writer_rewrote_the_file(tmp_path: Path) -> None:
    """Point 7: the action of the other writer is carried over as it is."""
    declare(tmp_path, "t", ["id"])
    kind, large = pa.decimal128(38, 4), Decimal("9" * 34 + ".9999")
    for number in (1, 2):
        put(tmp_path, "t", number, {"id": [number], "d": pa.array([large], kind)})
        assert code(tmp_path) == ""
    table = tmp_path / "Tables/t"
    snapshot = read_snapshot(table)
    assert snapshot is not None
    name = f"part-00000-{uuid.uuid4()}.parquet"
    pq.write_table(pa.table({"id": [1, 2], "d": pa.array([large] * 2, kind)}), table / name)
    bound = f'{{"id":1,"d":{large}}}'
    stats = f'{{"numRecords":2,"minValues":{bound},"maxValues":{bound.replace("1", "2")},"nullCount":{{"id":0,"d":0}}}}'
    add = {"path": name, "partitionValues": {}, "size": (table / name).stat().st_size, "modificationTime": 1,
           "dataChange": False, "stats": stats}  # fmt: skip
    removed = [{"remove": {"path": each["path"], "dataChange": False}} for each in snapshot.files.values()]
    actions = [{"commitInfo": {"operation": "OPTIMIZE"}}, *removed, {"add": add}]
    commit = table / "_delta_log" / f"{snapshot.version + 1:020}.json"
    commit.write_text("".join(json.dumps(each) + "\n" for each in actions))
    put(tmp_path, "t", 3, {"id": [2], "d": pa.array([None], kind), MARKER: [2]})
    assert code(tmp_path) == ""
    after = read_snapshot(table)
    assert after is not None
    (left,) = after.files.values()
    assert left["stats"].startswith(stats[:-1])


def test_negative_zero_has_no_dictionary(tmp_path: Path) -> None:
    """Point 8."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2], "f": [-0.0, -0.0], MARKER: [4, 4]})
    assert code(tmp_path) == ""
    (path,) = (tmp_path / "Tables/t").glob("*.parquet")
    assert not pq.read_metadata(path).row_group(0).column(1).has_dictionary_page
