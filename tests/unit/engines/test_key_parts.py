"""Many changes are worked out in parts of their keys: all changes of a key are in one, few changes in one alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakemirror.engines.kernels.version_rows import Changed
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.pipeline import Pipeline
from lakemirror.engines.row_work import Target, TargetColumn
from lakemirror.engines.write_versions import parts_of

COUNT = 50_000
KEYS = {
    "dense": lambda random: random.integers(0, 90_000, COUNT).tolist(),
    "sparse": lambda random: (random.integers(0, 9_000, COUNT) * (1 << 40)).tolist(),
    "nulls": lambda random: [None if each < 3 else each for each in random.integers(0, 30_000, COUNT).tolist()],
    "text": lambda random: [f"k{each}" for each in random.integers(0, 9_000, COUNT).tolist()],
    "one": lambda random: [7] * COUNT,
}


def parts(rows: dict[str, list[Any]], most: int) -> list[np.ndarray]:
    table = pa.table(rows)
    kinds = {name: "string" if pa.types.is_string(table.schema.field(name).type) else "bigint" for name in rows}
    columns = tuple(TargetColumn(name, name, kind) for name, kind in kinds.items())
    target = Target("/nowhere", columns, key_columns=tuple(rows))
    return parts_of(Changed(table, np.zeros(len(table), np.int8)), target, most)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("also", [None, *KEYS])
def test_all_changes_of_a_key_are_in_one_part(kind: str, also: str | None) -> None:
    random = np.random.default_rng(5)
    rows = {name: KEYS[each](random) for name, each in (("a", kind), ("b", also)) if each is not None}
    found = parts(rows, 3)
    assert len(found) == (1 if kind == "one" and also in (None, "one") else 3)
    assert sorted(np.concatenate(found).tolist()) == list(range(COUNT))
    assert all((np.diff(its) > 0).all() for its in found)
    keys = list(zip(*rows.values(), strict=True))
    held = [{keys[place] for place in its.tolist()} for its in found]
    assert sum(map(len, held)) == len(set(keys))


def test_dense_numbers_of_a_part_are_near_to_each_other() -> None:
    values = np.array(KEYS["dense"](np.random.default_rng(6)))
    low, high = (values[its] for its in parts({"a": values.tolist()}, 2))
    assert low.max() < high.min()
    assert abs(len(low) - len(high)) < COUNT // 100


def test_few_changes_are_one_part() -> None:
    (found,) = parts({"a": list(range(20_000))}, 4)
    assert found.tolist() == list(range(20_000))


def test_only_threads_work_parts_out() -> None:
    assert LocalEngine(threads=3).key_parts == 3
    assert Pipeline.key_parts == 1
