"""What is kept of key columns: runs hold the same rows, and what was read longest ago goes first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemirror.replication import kept_keys
from lakemirror.replication.kept_keys import Cache, Runs

EXTREMES = [-(2**63), -(2**63) + 1, -1, 0, 2**63 - 2, 2**63 - 1]
NUMBERS = st.integers(-20, 20) | st.sampled_from(EXTREMES)


@settings(max_examples=300, deadline=None)
@given(st.lists(NUMBERS, max_size=30), st.sets(NUMBERS, max_size=12), st.booleans())
@example(EXTREMES, set(EXTREMES), True)
def test_runs_hold_what_the_column_held(column: list[int], sought: set[int], rising: bool) -> None:
    values = np.array(sorted(set(column)) if rising else column, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_keys, "_WORTH_IT", 1)
        runs = Runs.of(values)
    assert (runs is not None) is (len(values) > 0 and values.tolist() == sorted(set(column)))
    if runs is not None:
        expected = np.flatnonzero(np.isin(values, list(sought))).tolist()
        assert runs.places(np.array(sorted(sought), np.int64)).tolist() == expected


def test_runs_are_kept_where_they_are_long() -> None:
    with_gaps = np.delete(np.arange(1_000_000), np.arange(0, 1_000_000, 100))
    runs = Runs.of(with_gaps)
    assert runs is not None and runs.nbytes < with_gaps.nbytes / 30
    assert Runs.of(np.arange(0, 1_000, 2)) is None
    assert Runs.of(np.arange(100)[::-1]) is None


def test_what_was_read_longest_ago_goes_first() -> None:
    rows = pa.table({"id": [1, 2]})
    cache = Cache(2 * rows.nbytes)
    for name in ("a", "b", "a", "b"):
        cache.put(name, rows)
    assert cache.get("a") is rows
    cache.put("c", rows)
    assert [cache.get(name) is not None for name in "abc"] == [True, False, True]
    cache.put("more than there is room for", pa.concat_tables([rows] * 3))
    assert [cache.get(name) for name in "abc"] == [None] * 3
    cache.put("d", rows)
    assert cache.get("d") is rows
