"""What is kept of key columns: runs hold the same rows, and what was read longest ago goes first."""

from __future__ import annotations

import ctypes
import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.rounds import rounds

from lakemirror.engines.kernels.live_rows import chosen_rows
from lakemirror.engines.row_work import Target, TargetColumn
from lakemirror.keys import look_up as kept_keys
from lakemirror.keys.look_up import Cache, GroupsOfFile, Runs, find, read_footer, row_groups, size_of, version_of
from lakemirror.keys.wanted_keys import WantedKeys

EXTREMES = [-(2**63), -(2**63) + 1, -1, 0, 2**63 - 2, 2**63 - 1]
NUMBERS = st.integers(-20, 20) | st.sampled_from(EXTREMES)


@settings(max_examples=rounds(100, 300), deadline=None)
@given(st.lists(NUMBERS, max_size=30), st.sets(NUMBERS, max_size=12), st.booleans())
@example(EXTREMES, set(EXTREMES), True)
def test_runs_hold_what_the_column_held(column: list[int], wanted: set[int], rising: bool) -> None:
    holds_the_same(np.array(sorted(set(column)) if rising else column, np.int64), wanted)


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.int64])
def test_a_long_run_of_narrow_numbers(kind: type) -> None:
    holds_the_same(np.arange(-20_000, 20_001).astype(kind), {-32_768, -20_000, 0, 12_767, 12_768, 20_000, 32_767})


def holds_the_same(values: np.ndarray, wanted: set[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_keys, "_WORTH_IT", 1)
        runs = Runs.of(values)
    assert (runs is not None) is (len(values) > 0 and values.tolist() == sorted(set(values.tolist())))
    if runs is not None:
        expected = np.flatnonzero(np.isin(values, list(wanted))).tolist()
        assert runs.places(np.array(sorted(wanted), values.dtype)).tolist() == expected


@settings(max_examples=rounds(50, 200), deadline=None)
@given(
    st.sets(st.integers(-30, 30), min_size=1), st.lists(st.integers(1, 10), max_size=8), st.sets(st.integers(-30, 30))
)
def test_runs_of_parts_hold_the_whole_column(column: set[int], cuts: list[int], wanted: set[int]) -> None:
    values = np.array(sorted(column), np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_keys, "_WORTH_IT", 1)
        parts = [Runs.of(part) for part in np.split(values, np.cumsum(cuts)) if len(part)]
    runs = Runs.joined([part for part in parts if part is not None])
    assert (runs.rows, runs.last) == (len(values), values[-1])
    assert (
        runs.places(np.array(sorted(wanted), np.int64)).tolist()
        == np.flatnonzero(np.isin(values, list(wanted))).tolist()
    )


def test_runs_are_kept_where_they_are_long() -> None:
    with_gaps = np.delete(np.arange(1_000_000), np.arange(0, 1_000_000, 100))
    runs = Runs.of(with_gaps)
    assert runs is not None and runs.nbytes < with_gaps.nbytes / 30
    assert runs.places(np.array([0, 1, 99, 100, 101, 999_999])).tolist() == [0, 98, 99, len(with_gaps) - 1]
    assert Runs.of(np.arange(0, 1_000, 2)) is None
    assert Runs.of(np.arange(100)[::-1]) is None


def test_what_was_read_longest_ago_goes_first() -> None:
    rows = pa.table({"id": [1, 2]})
    cache = Cache(2 * size_of(rows))
    for name in ("a", "b", "a", "b"):
        cache.put(name, rows)
    assert cache.get("a") is rows
    cache.put("c", rows)
    assert [cache.get(name) is not None for name in "abc"] == [True, False, True]
    cache.put("more than there is room for", pa.table({"id": range(2 * size_of(rows))}))
    assert [cache.get(name) for name in "abc"] == [None] * 3
    cache.put("d", rows)
    assert cache.get("d") is rows


def test_a_footer_counts_with_the_memory_that_it_takes() -> None:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("this C library does not say how much memory is used")
    fields = [(f"field{number}", ctypes.c_size_t) for number in range(10)]
    libc.mallinfo2.restype = type("MallocInfo", (ctypes.Structure,), {"_fields_": fields})

    def used() -> int:
        return int(libc.mallinfo2().field7)  # uordblks

    file = pa.BufferOutputStream()
    pq.write_table(pa.table({f"c{number}": ["a", "b"] * 100 for number in range(8)}), file, row_group_size=20)
    content, before = file.getvalue(), used()
    footers = [pq.read_metadata(pa.BufferReader(content)) for _ in range(500)]
    taken = used() - before
    assert 500 * GroupsOfFile(footers[0], ()).nbytes == pytest.approx(taken, rel=0.4)


DAY = datetime.date(1969, 12, 1)
KEYS = {
    "int": pa.array([*range(-70, 30), *range(40, 200)], pa.int32()),
    "date": pa.array([DAY + datetime.timedelta(each) for each in range(260)]),
    "timestamp": pa.array(range(-5, 255), pa.timestamp("us", "UTC")),
    "string": pa.array([f"k{each * 7 % 260}" for each in range(260)]),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("names", [["k"], ["v", "k"]])
def test_rows_whose_keys_are_kept_are_those_of_the_file(
    tmp_path: Path, kind: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_keys, "_WORTH_IT", 1)
    rows = pa.table({"k": KEYS[kind], "v": [f"value {each}" for each in range(260)]})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=100)
    columns = (TargetColumn("k", "k", kind), TargetColumn("v", "v", "string"))
    target, add = (
        Target(str(tmp_path), columns, key_columns=("k",)),
        {"path": "a.parquet", "size": 1, "modificationTime": 2},
    )
    chosen = [column for name in names for column in columns if column.name == name]
    numbers = np.array([0, 99, 100, 101, 150, 259])
    wanted = rows.select(names).take(pa.array(numbers))
    assert pa.concat_tables(chosen_rows(add, target, numbers, chosen)).equals(wanted)
    for group in row_groups(add, target, None, read_footer(add, target)):
        find(group, target, WantedKeys(rows.select(["k"])), version=version_of(add))
    read: list[Any] = []
    batches = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *a, **k: read.extend(k["columns"]) or batches(*a, **k))
    assert pa.concat_tables(chosen_rows(add, target, numbers, chosen)).equals(wanted)
    assert set(read) == set(names) - {"k"}, "keys that are kept are not read"
