"""Rows of new data files in memory: what is read of them is what the data file has, or nothing is."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.engines.test_row_copies import TYPES, columns_of, rows_of

from lakemirror.engines.kernels.live_rows import chosen_rows, live_rows
from lakemirror.engines.kernels.write import FileSizes, write_rows
from lakemirror.engines.row_work import Target, TargetColumn
from lakemirror.keys import row_copies
from lakemirror.keys.key_index import KeyIndex, replace_merged
from lakemirror.keys.look_up import Cache
from lakemirror.keys.written_rows import LATELY_WRITTEN, is_in_memory, keep_files, keep_written, written_rows
from lakemirror.landing_zone.reserved_columns import START_AT


@pytest.fixture(autouse=True)
def empty() -> None:
    LATELY_WRITTEN.clear()


def kept(target: Target, rows: pa.Table, **sizes: Any) -> dict[str, Any]:
    add = write_rows(rows.to_batches(), target, sizes=FileSizes(**sizes))[0]
    keep_written(add, target, rows)
    return add


def from_file(add: dict[str, Any], target: Target, numbers: np.ndarray) -> pa.Table:
    LATELY_WRITTEN.clear()
    return pa.concat_tables(chosen_rows(add, target, numbers, target.columns))


def test_rows_of_every_type_are_those_of_the_file(tmp_path: Path) -> None:
    columns = columns_of(TYPES)
    rows = pa.concat_tables([rows_of(columns, 1500).slice(begin, 500) for begin in (0, 500, 1000)])
    for count in (0, 1, 900, 1500):
        target = Target(str(tmp_path), tuple(random.Random(count).sample(columns, len(columns))))
        numbers = np.sort(np.random.default_rng(count).choice(1500, count, replace=False))
        add = kept(target, rows)
        found = written_rows(add, target, numbers, target.columns)
        assert found is not None and found.schema.names == [column.name for column in target.columns]
        found.validate(full=True)
        assert pa.concat_tables(chosen_rows(add, target, numbers, target.columns) if count else [found]) == found
        if count:
            assert found == from_file(add, target, numbers)


def test_a_table_with_other_columns_by_now_reads_the_file(tmp_path: Path) -> None:
    one, two = TargetColumn("a", "col-1", "int"), TargetColumn("b", "col-2", "string")
    target, numbers = Target(str(tmp_path), (one, two)), np.array([0, 2])
    rows = pa.table({"a": pa.array([1, 2, 3], pa.int32()), "b": ["x", None, "z"]})
    swapped = (replace(one, name="b"), replace(two, name="a"))
    widened, new = replace(one, type="bigint"), TargetColumn("c", "col-3", "int", default="7")
    under_an_old_name = replace(new, name="a")
    for columns, are_in_memory in (
        ((one, two), True), ((two,), True), (swapped, True), ((widened, two), False), ((one, new), False),
        ((under_an_old_name, two), False),
    ):  # fmt: skip
        add, its = kept(target, rows), replace(target, columns=columns)
        found = written_rows(add, its, numbers, columns)
        assert (found is not None) is are_in_memory
        assert found is None or found == from_file(add, its, numbers)


def test_what_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = columns_of(("int", "string"))
    target, rows = Target(str(tmp_path), tuple(columns)), rows_of(columns, 100)
    assert is_in_memory(kept(target, rows), target)
    assert not is_in_memory(kept(target, rows, rows_a_file=50), target), "the file has a part of the rows"
    in_parts = replace(target, partition_columns=("c1",))
    assert not is_in_memory(kept(in_parts, rows), in_parts)
    listed = TargetColumn("n", "n", '{"type":"array","elementType":"long","containsNull":true}')
    nested = replace(target, columns=(columns[0], listed))
    lists = pa.array([[1], None] * 50, pa.list_(pa.field("element", pa.int64())))
    assert not is_in_memory(kept(nested, rows.select(["c0"]).append_column("n", lists)), nested)
    monkeypatch.setattr("lakemirror.keys.written_rows.LATELY_WRITTEN", Cache(4 * rows.nbytes - 1))
    assert not is_in_memory(kept(target, rows), target), "it would leave little for others"


def test_kept_rows_hold_no_other_rows_in_memory(tmp_path: Path) -> None:
    columns = columns_of(TYPES)
    target, many = Target(str(tmp_path), tuple(columns)), rows_of(columns, 3000)
    rows = many.slice(1000, 100)
    add = kept(target, rows)
    found = written_rows(add, target, None, target.columns)
    assert found is not None and found.equals(rows)
    assert found.get_total_buffer_size() < 2 * rows.nbytes


def test_rows_of_another_table_are_not_taken_for_those_of_a_file_of_the_same_name(tmp_path: Path) -> None:
    columns = columns_of(("int", "string"))
    one, other = (Target(str(tmp_path / name), tuple(columns)) for name in ("t", "t__history"))
    (tmp_path / "t").mkdir()
    add = kept(one, rows_of(columns, 10))
    assert is_in_memory(add, one) and not is_in_memory(add, other)
    assert not is_in_memory({**add, "modificationTime": add["modificationTime"] + 1}, one)


def test_rows_of_several_files_are_those_of_their_files(tmp_path: Path) -> None:
    columns = columns_of(("int", "string"))
    target, rows = Target(str(tmp_path), tuple(columns)), rows_of(columns, 100)
    parts = [rows.slice(0, 50), rows.slice(50)]
    adds = write_rows(rows.to_batches(), target, sizes=FileSizes(rows_a_file=50))
    keep_files(adds[:1], target, parts)
    assert not is_in_memory(adds[0], target), "which of the parts it has is not known"
    keep_files(adds, target, parts)
    for add, its in zip(adds, parts, strict=True):
        assert written_rows(add, target, None, target.columns) == its


def test_rows_in_memory_get_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_copies, "FEWEST_ROWS", 1)
    columns = [*columns_of(("int", "string")), TargetColumn(START_AT, START_AT, "timestamp")]
    target, index = Target(str(tmp_path / "t"), tuple(columns)), KeyIndex(tmp_path / "keys", 1 << 30)
    (tmp_path / "t").mkdir()
    add = kept(target, rows_of(columns, 100).rename_columns([column.name for column in columns]))
    for has_copy in (False, True):
        index.rows.open([add], target)
        index.wait()
        assert index.rows.path(add, target).exists() is has_copy
        LATELY_WRITTEN.clear()


@pytest.mark.parametrize("was_read", ["in memory", "by its copy", "by nobody"])
def test_a_merged_file_has_a_copy_at_once_if_rows_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_read: str
) -> None:
    monkeypatch.setattr(row_copies, "FEWEST_ROWS", 1)
    columns = [*columns_of(("int", "string")), TargetColumn(START_AT, START_AT, "timestamp")]
    target, index = Target(str(tmp_path / "t"), tuple(columns)), KeyIndex.shared(tmp_path / "keys", 1 << 30)
    (tmp_path / "t").mkdir()
    rows = rows_of(columns, 100).rename_columns([column.name for column in columns])
    before, after = (write_rows(rows.to_batches(), target)[0] for _ in range(2))
    if was_read == "in memory":
        keep_written(before, target, rows)
    elif was_read == "by its copy":
        index.rows.open([before], target)
        index.wait()
    replace_merged([before], [after], target)
    index.wait()
    assert not index.rows.path(before, target).exists()
    assert index.rows.path(after, target).exists() is (was_read != "by nobody")


def test_all_rows_of_a_file_come_from_memory(tmp_path: Path) -> None:
    columns = columns_of(TYPES)
    target, rows = Target(str(tmp_path), tuple(columns)), rows_of(columns, 300)
    add, gone = kept(target, rows), np.array([0, 7, 299])
    for path in tmp_path.glob("*.parquet"):
        path.write_bytes(b"")
    found = pa.concat_tables(live_rows(add, target, gone))
    assert found == rows.filter(pa.array(~np.isin(np.arange(300), gone)))
