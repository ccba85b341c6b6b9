"""Codes of keys are equal exactly if the keys are equal, whatever the width of whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakemirror.keys.key_values import each_once, key_codes, order_of

AT_THE_EDGES = [
    (pa.uint64(), [2**64 - 1, 2**64 - 1, 2**64 - 5]), (pa.int64(), [-(2**63), 3 - 2**63, -(2**63)]),
    (pa.int64(), [-(2**63), 2**63 - 1, 0]), (pa.int8(), [-128, 127, -128]), (pa.uint8(), [255, 0, 255]),
    (pa.int64(), [None, 0, None]), (pa.date32(), [-(2**31), 3 - 2**31, -(2**31)]),
]  # fmt: skip


@pytest.mark.parametrize("is_composite", [False, True])
@pytest.mark.parametrize(("kind", "values"), AT_THE_EDGES)
def test_whole_numbers_at_the_edges(kind: pa.DataType, values: list[Any], is_composite: bool) -> None:
    whole = pa.int32() if kind == pa.date32() else kind
    column = pa.array(values, whole).cast(kind)
    keys = {"a": column, "b": pa.array([1, 1, 1])} if is_composite else {"a": column}
    codes = key_codes(pa.table(keys)).tolist()
    assert [codes.index(code) for code in codes] == [values.index(value) for value in values]
    assert min(codes) >= 0


@pytest.mark.parametrize("is_composite", [False, True])
@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.uint64(), pa.date32(), pa.timestamp("us", "UTC")])
@pytest.mark.parametrize("width", [10, 40_000, 1 << 30])
def test_whole_numbers_far_apart(width: int, kind: pa.DataType, is_composite: bool) -> None:
    """The codes are few: an array with a place for each is small."""
    generator = np.random.default_rng(width)
    numbers = generator.choice(generator.integers(0, width, 900), 2_000)
    highest = (1 << 64) - 1 if kind == pa.uint64() else (1 << 31) - 1
    values = (np.full(2_000, highest, np.uint64) - numbers.astype(np.uint64)).tolist()
    whole = {pa.date32(): pa.int32(), pa.uint64(): pa.uint64()}.get(kind, pa.int64())
    column = pa.array(values, whole)
    keys = {"a": column.cast(kind), **({"b": pa.array(numbers % 7)} if is_composite else {})}
    codes = key_codes(pa.table(keys))
    assert ((codes[:, None] == codes) == (numbers[:, None] == numbers)).all()
    assert codes.min() >= 0 and codes.max() < 9 * len(codes) + 1_024


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint64])
def test_the_order_of_whole_numbers(kind: Any) -> None:
    """As a stable `argsort` has it, up to the widest range whose distances and places fit into one number."""
    lowest, highest = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    generator = np.random.default_rng(7)
    for size in (0, 1, 2, 7, 8, 15, 100):
        widest = 1 << (63 - size.bit_length())
        for width in (0, 3, widest - 1, widest, highest - lowest):
            for low in (lowest, max(lowest, -5), highest - min(width, highest - lowest)):
                high = min(low + width, highest)
                numbers = generator.integers(low, high, size, kind, endpoint=True)
                numbers[: size // 3] = high
                numbers[size // 2 : size // 2 + 2] = low
                assert order_of(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()


@pytest.mark.parametrize(
    "keys",
    [
        pa.table({"k": pa.array([], pa.int64())}),
        pa.table({"k": pa.array([3, 1, 2], pa.int32())}),
        pa.table({"k": pa.array([3, 1, 3, 1 << 62, 1], pa.int64())}),
        pa.table({"k": pa.array([None, 1, None], pa.int64())}),
        pa.table({"k": pa.array(["b", "a", "b"])}),
        pa.table({"k": [1, 1, 2, 1], "l": ["a", "b", "a", "a"]}),
    ],
)
def test_each_key_once(keys: pa.Table) -> None:
    rows = list(zip(*(column.to_pylist() for column in keys.columns), strict=True))
    found = each_once(keys)
    assert sorted(zip(*(c.to_pylist() for c in found.columns), strict=True), key=repr) == sorted(set(rows), key=repr)
    assert (found is keys) == (len(set(rows)) == len(rows))
