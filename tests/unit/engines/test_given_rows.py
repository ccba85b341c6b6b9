"""Rows of data files that are read by their pages are those of a full read, for all types, encodings and page forms."""

from __future__ import annotations

import decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.engines.kernels import given_rows, live_rows
from lakemirror.engines.kernels.live_rows import chosen_rows
from lakemirror.engines.row_work import Target, TargetColumn
from lakemirror.keys.look_up import LATELY_READ
from lakemirror.parquet.page_index import PagesOfFile, pages_of_file
from lakemirror.parquet.page_rows import Apart, read_rows, share_of_pages
from lakemirror.storage.place import read_pieces

ROWS = 5_000
SMALL: dict[str, Any] = {
    "write_page_index": True,
    "data_page_size": 512,
    "write_batch_size": 64,
    "row_group_size": 1_700,
}
APART = Apart(256, 1 << 30)
LIST = '{"type":"array","elementType":"long","containsNull":true}'
STRUCT = '{"type":"struct","fields":[{"name":"a","type":"integer","nullable":true,"metadata":{}}]}'
ENCODINGS = {
    "bigint": ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
    "string": ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"],
    "boolean": ["PLAIN", "RLE"],
}


def columns_of(seed: int) -> dict[str, pa.Array]:
    """A column of each type, a third of it NULL, some of long runs of NULL."""
    random = np.random.default_rng(seed)
    numbers = random.integers(-100 if seed % 2 else -(1 << 31), 100 if seed % 2 else 1 << 31, ROWS)
    nulls = random.random(ROWS) < (0.3 if seed % 3 else 0)
    nulls[1_000:2_000] = seed % 3 == 1
    texts = [f"text {number}" * int(random.integers(0, 4)) for number in numbers]
    plain: dict[str, Any] = {
        "boolean": numbers > 0, "tinyint": numbers.astype(np.int8), "smallint": numbers.astype(np.int16),
        "int": numbers.astype(np.int32), "bigint": numbers * 7, "float": numbers.astype(np.float32),
        "double": numbers / 7,
    }  # fmt: skip
    found = {name: pa.array(values, mask=nulls) for name, values in plain.items()}
    found["date"] = pa.array(numbers.astype(np.int32) % 90_000, pa.int32(), mask=nulls).cast(pa.date32())
    found["timestamp"] = pa.array(numbers * 1_000_003, pa.int64(), mask=nulls).cast(pa.timestamp("us", "UTC"))
    found["timestamp_ntz"] = found["timestamp"].cast(pa.int64()).cast(pa.timestamp("us"))
    found["string"] = pa.array(texts, mask=nulls)
    found["binary"] = found["string"].cast(pa.binary())
    for kind in (pa.decimal128(9, 2), pa.decimal128(38, 10)):
        values = [
            None if gone else decimal.Decimal(int(number) % 1_000_000)
            for number, gone in zip(numbers, nulls, strict=True)
        ]
        found[f"decimal({kind.precision},{kind.scale})"] = pa.array(values, kind)
    found["void"] = pa.nulls(ROWS, pa.int64())
    lists = [None if gone else [int(n), None] * (n % 3) for n, gone in zip(numbers.tolist(), nulls, strict=True)]
    found[LIST] = pa.array(lists, pa.list_(pa.int64()))
    found[STRUCT] = pa.array(
        [None if row is None else {"a": len(row)} for row in lists], pa.struct([("a", pa.int32())])
    )
    return found


def target_of(folder: Path, found: dict[str, pa.Array]) -> tuple[Target, pa.Table]:
    columns = [TargetColumn(f"c{n}", f"c{n}", "bigint" if kind == "void" else kind) for n, kind in enumerate(found)]
    absent = [TargetColumn("absent", "absent", "string"), TargetColumn("with default", "d", "int", default="7")]
    return Target(str(folder), (*columns, *absent)), pa.table(
        {f"c{n}": values for n, values in enumerate(found.values())}
    )


def some_rows(seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    few = random.choice(ROWS, 12, replace=False)
    run = np.arange(100) + int(random.integers(0, ROWS - 100))
    return np.unique(np.concatenate([few, run if seed % 2 else few, [0, ROWS - 1]]))


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> None:
    LATELY_READ.clear()


@pytest.mark.parametrize("compression", ["snappy", "none", "zstd"])
@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize("seed", range(4))
def test_rows_by_pages_are_those_of_a_full_read(
    tmp_path: Path, seed: int, page: str, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[bool] = []

    def noted(*given: Any) -> Any:
        found = read_rows(*given)
        used.append(found is not None)
        return found

    monkeypatch.setattr(given_rows, "read_rows", noted)
    monkeypatch.setattr(given_rows, "_LEAST_ROWS", SMALL["write_batch_size"])
    target, rows = target_of(tmp_path, columns_of(seed))
    pq.write_table(
        rows, tmp_path / "a.parquet", data_page_version=page, compression=compression, use_dictionary=seed % 2 == 0,
        write_page_checksum=seed > 1, store_schema=seed != 3, **SMALL,
    )  # fmt: skip
    numbers = some_rows(seed)
    found = pa.concat_tables(chosen_rows(add_of(tmp_path), target, numbers, target.columns))
    wanted = rows.take(pa.array(numbers))
    assert found.select(wanted.column_names).to_pydict() == wanted.to_pydict()
    assert found["absent"].null_count == len(numbers) and found["with default"].unique().to_pylist() == [7]
    assert found.column_names == [column.name for column in target.columns]
    assert used == [page == "1.0"], "of pages of the second version whole row groups are read"


@pytest.mark.parametrize(("kind", "encoding"), [(kind, each) for kind in ENCODINGS for each in ENCODINGS[kind]])
def test_each_encoding_is_read_by_pages(tmp_path: Path, kind: str, encoding: str) -> None:
    rows = pa.table({"c": columns_of(4)[kind]})
    path = tmp_path / "a.parquet"
    pq.write_table(rows, path, use_dictionary=False, column_encoding={"c": encoding}, **SMALL)
    numbers = some_rows(1)
    pages = pages_of(path)
    found = read_rows(pages, ["c"], in_groups(path, numbers), partial(read_pieces, path), APART)
    assert found is not None, "the pages are used"
    assert pa.chunked_array(found["c"]).to_pylist() == rows["c"].take(pa.array(numbers)).to_pylist()


def test_no_page_index_is_read_where_nearly_all_pages_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    monkeypatch.setattr(live_rows, "kept_pages", lambda *given: looked.append(given))
    target, rows = target_of(tmp_path, {"bigint": pa.array(np.arange(ROWS))})
    pq.write_table(rows, tmp_path / "a.parquet", **SMALL)
    for numbers, looks in ((np.arange(0, ROWS, 100), 0), (np.arange(0, ROWS, 1_000), 1), (np.arange(300), 1)):
        found = pa.concat_tables(live_rows.chosen_rows({"path": "a.parquet"}, target, numbers, target.columns[:1]))
        assert found["c0"].to_pylist() == numbers.tolist()
        assert len(looked) == looks, numbers
        looked.clear()


def test_only_the_needed_pages_are_read(tmp_path: Path) -> None:
    rows = pa.table({"k": np.arange(ROWS), "v": [f"value {n % 50}" for n in range(ROWS)]})
    path = tmp_path / "a.parquet"
    pq.write_table(rows, path, use_dictionary=["v"], compression="none", **SMALL)
    pages, read = pages_of(path), []

    def noted(pieces: Any, into: memoryview) -> None:
        read.extend(pieces)
        read_pieces(path, pieces, into)

    found = read_rows(pages, ["k", "v"], [(1, np.array([5, 6]))], noted, Apart(0, 1 << 30))
    assert found is not None and found["k"][0].to_pylist() == [1_705, 1_706]
    assert pa.chunked_array(found["v"]).to_pylist() == ["value 5", "value 6"]
    assert sum(end - begin for begin, end in read) < 3_000, "a page of each column, and a dictionary"
    read.clear()
    wanted = [(group, np.array([5, 900, 1_500])) for group in range(2)]
    assert read_rows(pages, ["k", "v"], wanted, noted, Apart(0, 3)) is not None
    assert len(read) == 3, "so many pieces at most, whatever is between them"
    share = share_of_pages(pages, "k", [(0, np.array([5]))])
    assert share is not None and 0 < share < 0.1


def test_a_false_page_index_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"c": np.arange(ROWS)})
    path = tmp_path / "a.parquet"
    pq.write_table(rows, path, use_dictionary=False, **SMALL)
    numbers = some_rows(3)
    pages = pages_of(path)
    chunk = pages.chunks["c"][0]
    assert chunk is not None
    before = path.read_bytes()
    for false in (chunk.firsts, chunk.sizes):
        kept = false.copy()
        false[1:3] += 1  # where the second page begins, or how large it is
        assert read_rows(pages, ["c"], [(0, np.arange(100))], partial(read_pieces, path), APART) is None
        false[:] = kept
    assert read_rows(pages, ["c"], [(0, np.arange(100))], partial(read_pieces, path), APART) is not None
    index = pq.read_metadata(path)
    at = before.rindex(bytes([0x16, 0, 0]), 0, len(before) - index.serialized_size)  # first row 0, end of a location
    path.write_bytes(before[:at] + bytes([0x16, 2, 0]) + before[at + 3 :])
    assert any(each is None for each in pages_of(path).chunks["c"]), "a first page that does not begin at row 0"
    target = Target(str(tmp_path), (TargetColumn("c", "c", "bigint"),))
    found = pa.concat_tables(chosen_rows(add_of(tmp_path), target, numbers, target.columns))
    assert found["c"].to_pylist() == numbers.tolist()
    path.write_bytes(before)
    monkeypatch.setattr(given_rows, "read_rows", lambda *_: None)
    LATELY_READ.clear()
    found = pa.concat_tables(chosen_rows(add_of(tmp_path), target, numbers, target.columns))
    assert found["c"].to_pylist() == numbers.tolist(), "the row groups are read then"


def test_a_damaged_index_is_no_index(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": np.arange(ROWS)}), path, use_dictionary=False, **SMALL)
    footer = pq.read_metadata(path)
    random = np.random.default_rng(11)
    numbers = some_rows(5)
    for _ in range(200):

        def damaged(pieces: Any, into: memoryview) -> None:
            read_pieces(path, pieces, into)
            for place in random.integers(0, len(into), 2):
                into[place] = int(random.integers(0, 256))

        pages = pages_of_file(footer, damaged)
        wanted = [each for each in in_groups(path, numbers) if pages and pages.chunks["c"][each[0]] is not None]
        if pages is None or not wanted:
            continue
        found = read_rows(pages, ["c"], wanted, partial(read_pieces, path), APART)
        expected = [number for group, places in wanted for number in (places + group * 1_700).tolist()]
        assert found is None or pa.chunked_array(found["c"]).to_pylist() == expected


def pages_of(path: Path) -> PagesOfFile:
    found = pages_of_file(pq.read_metadata(path), partial(read_pieces, path))
    assert found is not None
    return found


def in_groups(path: Path, numbers: np.ndarray) -> list[tuple[int, np.ndarray]]:
    groups = range(pq.read_metadata(path).num_row_groups)
    its = [(group, numbers[numbers // 1_700 == group] - group * 1_700) for group in groups]
    return [(group, places) for group, places in its if len(places)]


def add_of(folder: Path) -> dict[str, Any]:
    status = (folder / "a.parquet").stat()
    return {"path": "a.parquet", "size": status.st_size, "modificationTime": status.st_mtime_ns}
