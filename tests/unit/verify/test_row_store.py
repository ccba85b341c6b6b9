"""Rows that are compared are held in little memory: what is more goes to disk, and comes back complete."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from lakemirror.verify import row_store
from lakemirror.verify.row_store import Records, RowStore, buckets_for, differences


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "_HELD", 4_000)


def records(rows: int) -> Records:
    random = np.random.default_rng(7)
    return random.integers(0, 2**63, (rows, 3)).astype(np.uint64)


def fill(store: RowStore, rows: Records) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(store.add, np.array_split(rows, 50)))


@pytest.mark.usefixtures("small")
def test_every_record_comes_back_and_few_are_in_memory() -> None:
    rows = records(5_000)
    with RowStore(3, 8) as store:
        fill(store, rows)
        assert store.rows == len(rows)
        assert sum(part.nbytes for parts in store._parts for part in parts) <= 4_000
        folder = Path(store._folder.name)
        assert any(folder.iterdir())
        back = np.concatenate([store.read(bucket) for bucket in range(store.buckets)])
        assert sorted(map(tuple, back.tolist())) == sorted(map(tuple, rows.tolist()))
    assert not folder.exists()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("buckets", [1, 8])
def test_differences_are_found_behind_what_is_on_disk(buckets: int) -> None:
    rows = records(5_000)
    other = rows.copy()[::-1]
    with RowStore(3, buckets) as mine, RowStore(3, buckets) as theirs:
        fill(mine, rows)
        fill(theirs, other)
        assert list(differences(mine, theirs, changes=False)) == []
    changed = other.copy()
    changed[17, 2] += np.uint64(1)
    with RowStore(3, buckets) as mine, RowStore(3, buckets) as theirs:
        fill(mine, rows)
        fill(theirs, changed[1:])
        found = {one.key: (one.extra, one.missing) for one in differences(mine, theirs, changes=False)}
    assert found == {tuple(map(int, changed[17, :2])): (1, 1), tuple(map(int, changed[0, :2])): (1, 0)}


def test_a_bucket_fits_into_memory() -> None:
    assert buckets_for(0) == 1
    assert buckets_for(100_000_000) == 100
    assert buckets_for(10**12) == row_store.MOST_BUCKETS
