"""Rows are compared by the contract, nested values too: against Python's own comparison."""

from __future__ import annotations

import math
import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakemirror.engines.kernels.equal_rows import equal_rows, equal_values

NAN = float("nan")
STRUCT = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))])
SAMPLES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [None, 0, 1]),
    "double": (pa.float64(), [None, NAN, 0.0, -0.0, 1.5]),
    "float": (pa.float32(), [None, NAN, 0.0, -0.0]),
    "string": (pa.string(), [None, "", "a", "b"]),
    "binary": (pa.binary(), [None, b"", b"a"]),
    "boolean": (pa.bool_(), [None, True, False]),
    "decimal": (pa.decimal128(10, 2), [None, Decimal("1.00"), Decimal("1.01")]),
    "date": (pa.date32(), [None, date(2020, 1, 1), date(2020, 1, 2)]),
    "timestamp": (pa.timestamp("us", "UTC"), [None, datetime(2020, 1, 1), datetime(2020, 1, 2)]),
    "struct": (STRUCT, [None, {"a": None, "b": None}, {"a": 1, "b": []}, {"a": 1, "b": [0.0]}, {"a": 1, "b": [NAN]}]),
    "list": (pa.list_(STRUCT), [None, [], [None], [{"a": 1, "b": [1.0, None]}], [{"a": 1, "b": [1.0]}, None]]),
    "map": (pa.map_(pa.string(), pa.float64()), [None, [], [("x", NAN)], [("x", 1.0)], [("x", 1.0), ("y", None)]]),
}


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return {name: plain(part) for name, part in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("name", SAMPLES)
def test_every_pair_of_values(name: str) -> None:
    kind, values = SAMPLES[name]
    pairs = [(one, other) for one in values for other in values]
    rng = random.Random(3)
    rng.shuffle(pairs)
    one, other = (pa.array([values[0], *(pair[place] for pair in pairs)], kind).slice(1) for place in (0, 1))
    expected = [plain(pair[0]) == plain(pair[1]) for pair in pairs]
    assert equal_values(one, other).tolist() == expected


def test_a_row_is_equal_if_all_its_columns_are() -> None:
    rows = pa.table({
        "a": pa.chunked_array([pa.array([1, 1]), pa.array([None, None], pa.int64())]),
        "b": pa.array(["x", "y", "x", "x"]).dictionary_encode(), "c": [1, 2, 3, 4],
    })  # fmt: skip
    one, other = np.array([0, 0, 2, 0]), np.array([0, 1, 3, 2])
    assert equal_rows(rows, ["a", "b"], one, other).tolist() == [True, False, True, False]
    assert equal_rows(rows, ["a"], one, other).tolist() == [True, True, True, False]
    assert equal_rows(rows, [], one, other).tolist() == [True] * 4
