"""Files that say what is not so, from the landing zone to the rows: the truth, or an error, whichever way they go."""

from __future__ import annotations

import io
import resource
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tests.parquet_footer as change
from tests.landing import MARKER, declare, folder, put

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.engines.kernels import add_files
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.target import target_of


@pytest.fixture(params=["as it is", "written"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Files of inserts become data files as they are, or their rows are written."""
    found: str = request.param
    monkeypatch.setattr(add_files, "large_enough", lambda sizes: found == "as it is")
    return found


def sync(database: Path, **settings: Any) -> dict[str, str]:
    done = MirroredDatabase(database, engine="local", maintenance=False, **settings).sync()
    return {name: error.code for name, error in done.failed.items()}


def test_a_file_with_a_code_of_its_own_stops_nobody(tmp_path: Path) -> None:
    path = put(tmp_path, "t", 1, {"id": [1], MARKER: [0]})
    put(tmp_path, "u", 1, {"id": [1]})
    pq.write_table(pa.Table.from_arrays([pa.array([1])] * 3, ["id", MARKER, MARKER]), path)
    assert sync(tmp_path, settle=0.0) == {"t": "columns-ambiguous"}
    assert read_snapshot(tmp_path / "Tables/u") is not None and not (tmp_path / "Tables/t").exists()


def adds(database: Path) -> list[dict[str, Any]]:
    snapshot = read_snapshot(database / "Tables/t")
    return [] if snapshot is None else list(snapshot.files.values())


def rows(database: Path) -> list[tuple[Any, ...]]:
    snapshot = read_snapshot(database / "Tables/t")
    assert snapshot is not None
    target = target_of(str(database / "Tables/t"), snapshot.metadata.value, ())
    found = [row for add in adds(database) for part in live_rows(add, target) for row in part.to_pylist()]
    return sorted(tuple(row.values()) for row in found)


def put_bytes(database: Path, number: int, data: bytes) -> None:
    path = folder(database, "t") / f"{number:020}.parquet"
    temporary = path.with_name("_writing")
    temporary.write_bytes(data)
    temporary.replace(path)


def written(content: dict[str, Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(content), sink, **options)
    return sink.getvalue()


def upsert(database: Path, number: int, ids: list[int], value: str) -> None:
    marker = pa.array([4] * len(ids), pa.int32())
    put(database, "t", number, {"id": ids, "v": [value] * len(ids), MARKER: marker})


def _bounds(low: int, high: int) -> Callable[[change.Node], None]:
    def lie(footer: change.Node) -> None:
        told = change.meta(footer)[change.STATISTICS][1]
        for fields, value in (((2, 6), low), ((1, 5), high)):
            for field in fields:
                told[field] = (8, struct.pack("<q", value))

    return lie


@pytest.mark.parametrize("low_high", [(100, 200), (30, 1), (-5, -5)])
def test_lying_bounds_of_keys_hide_no_row(tmp_path: Path, way: str, low_high: tuple[int, int]) -> None:
    declare(tmp_path, "t", ["id"])
    data = written({"id": [1, 2, 3], "v": ["a", "b", "c"]})
    put_bytes(tmp_path, 1, change.with_footer(data, _bounds(*low_high)))
    failed = sync(tmp_path)
    upsert(tmp_path, 2, [2], "B")
    if failed:
        assert failed == {"t": "file-unreadable"} and not adds(tmp_path)
        return
    assert not sync(tmp_path)
    assert rows(tmp_path) == [(1, "a"), (2, "B"), (3, "c")]


def test_encodings_that_not_every_reader_knows_stay_out_of_the_table(tmp_path: Path, way: str) -> None:
    data = written({"d": [0.5 * n for n in range(100)]}, use_dictionary=False, column_encoding="BYTE_STREAM_SPLIT")
    folder(tmp_path, "t").mkdir(parents=True)
    put_bytes(tmp_path, 1, data)
    assert not sync(tmp_path)
    (add,) = adds(tmp_path)
    encodings = pq.read_metadata(tmp_path / "Tables/t" / add["path"]).row_group(0).column(0).encodings
    assert "BYTE_STREAM_SPLIT" not in encodings and len(rows(tmp_path)) == 100


@pytest.mark.parametrize("name", ["__rowmarker__", "__ROWMARKER__", "__RowMarker__"])
def test_a_row_marker_in_another_case_inserts_nothing(tmp_path: Path, way: str, name: str) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1], "v": ["a"]})
    put(tmp_path, "t", 2, {"id": [1], "v": ["b"], name: pa.array([2], pa.int32())})
    assert sync(tmp_path) == {"t": "row-marker-misspelt"}
    assert rows(tmp_path) == [(1, "a")]


def test_bounds_of_decimals_keep_every_digit_when_rows_go(tmp_path: Path, way: str) -> None:
    large = Decimal("9007199254740992.99")
    kind = pa.decimal128(38, 2)
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2], "v": pa.array([large, -large], kind)})
    assert not sync(tmp_path)
    put(tmp_path, "t", 2, {"id": [2], "v": pa.array([None], kind), MARKER: pa.array([2], pa.int32())})
    assert not sync(tmp_path)
    (add,) = adds(tmp_path)
    assert add["deletionVector"] and str(large) in add["stats"] and str(-large) in add["stats"]
    assert rows(tmp_path) == [(1, large)]


def test_zeros_with_a_sign_are_in_no_dictionary(tmp_path: Path, way: str) -> None:
    folder(tmp_path, "t").mkdir(parents=True)
    put_bytes(tmp_path, 1, written({"f": [-0.0] * 50}))
    assert not sync(tmp_path)
    (add,) = adds(tmp_path)
    chunk = pq.read_metadata(tmp_path / "Tables/t" / add["path"]).row_group(0).column(0)
    assert not any("DICTIONARY" in each for each in chunk.encodings)


@pytest.mark.parametrize("marker", [4, pytest.param(None, marks=pytest.mark.full)])
def test_a_file_that_expands_takes_no_more_than_the_budget(tmp_path: Path, marker: int | None) -> None:
    """Some 100 KB in the landing zone, 1.6 GB in memory: applied bit by bit, or refused."""
    count = 16_384
    text = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["x" * 98_000]))
    columns: dict[str, Any] = {"id": list(range(count)), "v": text}
    if marker is not None:
        columns[MARKER] = pa.array([marker] * count, pa.int32())
    declare(tmp_path, "t", ["id"])
    data = written(columns, compression="zstd")
    assert len(data) < 1 << 20
    put_bytes(tmp_path, 1, data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    failed = sync(tmp_path, memory=128 << 20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600 << 10, "KiB"
    assert failed == {"t": "file-too-large"} or sum(add["stats"].count('"numRecords":16384') for add in adds(tmp_path))
