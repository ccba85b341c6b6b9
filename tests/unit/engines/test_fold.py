"""The net effect of changes against the model, for every type of key; and buckets that hold whole keys."""

from __future__ import annotations

import datetime
import decimal
import math
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model import ModelTable, canonical
from tests.rounds import rounds

from lakemirror.engines.kernels.fold import fold_places
from lakemirror.engines.row_work import FILE, MARKER, ROW
from lakemirror.keys.key_values import key_bucket

NAN = float("nan")
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [-5, 1, 2**62]),
    "short": (pa.int16(), [1, 2, 3]),
    "text": (pa.string(), ["a", "A", "ä", "", " a", "a" * 99]),
    "bytes": (pa.binary(), [b"", b"\0", b"\0\0"]),
    "day": (pa.date32(), [datetime.date(2026, 1, 1), datetime.date(1, 1, 1)]),
    "moment": (pa.timestamp("us", "UTC"), [0, 1, -1]),
    "money": (pa.decimal128(38, 2), [decimal.Decimal("1.10"), decimal.Decimal("-1.10"), decimal.Decimal("9" * 36)]),
    "double": (pa.float64(), [0.0, -0.0, NAN, -NAN, math.inf, 1.5]),
    "float": (pa.float32(), [0.0, -0.0, NAN, 1.5]),
    "truth": (pa.bool_(), [True, False]),
}


@st.composite
def changes(draw: Any) -> tuple[list[str], pa.Table]:
    kinds = draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=3))
    names = [f"k{place}" for place in range(len(kinds))]
    rows = draw(st.integers(0, 20))
    columns = {
        name: pa.array([draw(st.sampled_from([*KEYS[kind][1], None])) for _ in range(rows)], KEYS[kind][0])
        for name, kind in zip(names, kinds, strict=True)
    }
    places = {
        FILE: pa.array([i // 5 for i in range(rows)], pa.int64()),
        ROW: pa.array([i % 5 for i in range(rows)], pa.int64()),
    }
    markers = pa.array([draw(st.sampled_from([0, 0, 1, 2, 4])) for _ in range(rows)], pa.int8())
    return names, pa.table({**columns, **places, MARKER: markers})


@settings(max_examples=rounds(75, 300), deadline=None)
@given(changes(), st.integers(1, 4))
def test_the_net_effect_is_the_model_s(drawn: tuple[list[str], pa.Table], buckets: int) -> None:
    names, table = drawn
    model = ModelTable(names)
    rows = [(row.pop(MARKER), row) for row in table.to_pylist()]
    model.apply([*names, FILE, ROW], rows)
    replaced = {tuple(canonical(row[name]) for name in names) for marker, row in rows if marker}
    bucket = key_bucket(table.select(names), buckets)
    kept: Counter[tuple[int, int]] = Counter()
    deleted: Counter[tuple[Any, ...]] = Counter()
    for part in (table.filter(pa.array(bucket == number)) for number in range(buckets)):
        places = fold_places(part.select(names), np.asarray(part[MARKER].combine_chunks()))
        kept.update((row[FILE], row[ROW]) for row in part.take(pa.array(places.kept)).to_pylist())
        gone = part.select(names).take(pa.array(places.deletes))
        deleted.update(tuple(canonical(v) for v in row.values()) for row in gone.to_pylist())
    assert kept == Counter((row[FILE], row[ROW]) for row in model.rows)
    assert deleted == Counter(replaced)


@settings(max_examples=rounds(30, 100), deadline=None)
@given(st.lists(st.binary(max_size=40) | st.none(), max_size=20), st.integers(0, 3))
def test_the_bucket_depends_on_the_value_alone(values: list[bytes | None], begin: int) -> None:
    whole = pa.table({"k": pa.array(values, pa.binary())})
    together = key_bucket(whole, 1000)
    assert (key_bucket(whole.slice(begin), 1000) == together[begin:]).all()
    alone = [key_bucket(pa.table({"k": pa.array([value], pa.binary())}), 1000)[0] for value in values]
    assert alone == list(together)
    assert (key_bucket(whole.cast(pa.schema([("k", pa.large_binary())])), 1000) == together).all()


@pytest.mark.parametrize("kind", list(KEYS))
def test_keys_spread_over_the_buckets(kind: str) -> None:
    type_ = KEYS[kind][0]
    if pa.types.is_boolean(type_) or pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
        values = pa.array([i % 2 if pa.types.is_boolean(type_) else i for i in range(4096)]).cast(pa.int32())
        values = values.cast(pa.int64()) if pa.types.is_timestamp(type_) else values
    else:
        values = pa.array([i % 2048 for i in range(4096)])
    column = (
        values.cast(pa.decimal128(38, 2))
        if pa.types.is_decimal(type_)
        else values.cast(pa.string()).cast(type_)
        if pa.types.is_binary(type_)
        else values.cast(type_)
    )
    counts = np.bincount(key_bucket(pa.table({"k": column}), 4), minlength=4)
    assert (counts > 0).all() if not pa.types.is_boolean(type_) else counts.sum() == 4096
    if not pa.types.is_boolean(type_):
        assert counts.max() < 2 * 4096 / 4


def test_another_process_has_the_same_buckets() -> None:
    told = (
        "import pyarrow as pa; from lakemirror.keys.key_values import key_bucket;"
        "print(key_bucket(pa.table({'a': ['x', 'yy', None], 'b': [1.5, -0.0, 3]}), 97).tolist())"
    )
    found = subprocess.run([sys.executable, "-c", told], check=True, capture_output=True, text=True).stdout
    here = key_bucket(pa.table({"a": ["x", "yy", None], "b": [1.5, 0.0, 3]}), 97).tolist()
    assert str(here) == found.strip()


def test_a_value_longer_than_what_is_hashed_at_once() -> None:
    values = ["a", "b" * (2 << 20), "c", "b" * (2 << 20)]
    found = key_bucket(pa.table({"k": values}), 1 << 30)
    assert found[1] == found[3] and len(set(found.tolist())) == 3
