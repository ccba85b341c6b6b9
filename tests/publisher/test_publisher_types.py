"""Types without a place in the contract become what its section 6 says; the user is told once."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.declared_types import TypeWarning

pytestmark = pytest.mark.usefixtures("door")

D = decimal.Decimal
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
IDS = (
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([ID.bytes, None], pa.binary(16)))
    if hasattr(pa, "uuid")
    else pa.array([str(ID), None])
)
NS = 1_700_000_000_123_456_789


def through(tmp_path: Path, array: pa.Array) -> tuple[pa.DataType, list[Any]]:
    """The column as it lies in the published file."""
    published = Landing(tmp_path).table("t").insert(pa.table({"c": array}))
    assert published is not None
    column = pq.read_table(published.path)["c"]
    return column.type, column.to_pylist()


AS_THEY_ARE = [
    pa.array([1, None], pa.int8()),
    pa.array([1, None], pa.int16()),
    pa.array([1, None], pa.int32()),
    pa.array([1, None], pa.int64()),
    pa.array([255, None], pa.uint8()),
    pa.array([1 << 63, None], pa.uint64()),
    pa.array([1.5, None], pa.float32()),
    pa.array([1.5, None], pa.float64()),
    pa.array([True, None]),
    pa.array([D("1.50"), None], pa.decimal128(38, 2)),
    pa.array(["ä", None, ""]),
    pa.array(["ä", None], pa.large_string()),
    pa.array([b"\0", None]),
    pa.array([dt.date(1, 1, 1), None]),
    pa.array([1, None], pa.timestamp("ms", "UTC")),
    pa.array([1, None], pa.timestamp("us", "UTC")),
]


@pytest.mark.parametrize("array", AS_THEY_ARE, ids=lambda array: str(array.type))
def test_types_with_a_place_stay(tmp_path: Path, array: pa.Array) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert through(tmp_path, array) == (array.type, array.to_pylist())


PLACED: list[tuple[pa.Array, pa.DataType, list[Any], str]] = [
    (pa.array(["a", None]).dictionary_encode(), pa.string(), ["a", None], ""),
    (
        pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()), pa.array(["a", "b"], pa.string_view())),
        pa.string(),
        ["b", None, "a"],
        "",
    ),
    (pa.array([dt.time(1), None]).dictionary_encode(), pa.string(), ["01:00:00", None], "HH:MM:SS"),
    (pa.array([dt.date(2026, 1, 2)], pa.date64()), pa.date32(), [dt.date(2026, 1, 2)], ""),
    (
        pa.array([7, None], pa.timestamp("s", "UTC")),
        pa.timestamp("ms", "UTC"),
        [dt.datetime.fromtimestamp(7, dt.timezone.utc), None],
        "",
    ),
    (pa.array([D("1.5")], pa.decimal256(40, 1)).cast(pa.decimal256(38, 1)), pa.decimal128(38, 1), [D("1.5")], ""),
    (pa.array([b"ab", None], pa.binary(2)), pa.binary(), [b"ab", None], ""),
    (pa.array(["a", None], pa.string_view()), pa.string(), ["a", None], ""),
    (pa.array([b"a", None], pa.binary_view()), pa.binary(), [b"a", None], ""),
    (pa.array([1.5, None]).cast(pa.float16()), pa.float32(), [1.5, None], ""),
    (
        IDS,
        pa.string(),
        [str(ID), None],
        "",
    ),
    (
        pa.array([NS, None], pa.timestamp("ns", "UTC")),
        pa.timestamp("us", "UTC"),
        [dt.datetime.fromtimestamp(NS // 10**9, dt.timezone.utc).replace(microsecond=123_456), None],
        "microseconds",
    ),
    (
        pa.array([dt.time(1, 2, 3), dt.time(1, 2, 3, 40), None]),
        pa.string(),
        ["01:02:03", "01:02:03.000040", None],
        "HH:MM:SS",
    ),
    (pa.array([3661, None], pa.time32("s")), pa.string(), ["01:01:01", None], "HH:MM:SS"),
    (pa.array([1_999, 0], pa.time64("ns")), pa.string(), ["00:00:00.000001", "00:00:00"], "HH:MM:SS"),
    (pa.array([5, None], pa.duration("ms")), pa.int64(), [5, None], "whole number (ms)"),
]


@pytest.mark.parametrize(
    ("array", "kind", "values", "warned"), PLACED, ids=lambda value: str(getattr(value, "type", ""))
)
def test_types_without_a_place_get_one(
    tmp_path: Path, array: pa.Array, kind: pa.DataType, values: list[Any], warned: str
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert through(tmp_path, array) == (kind, values)
    said = [str(w.message) for w in caught]
    assert [warned in text for text in said] == ([True] if warned else []), said


def test_nested_values_become_json(tmp_path: Path) -> None:
    values = [
        {
            "list": [1, None],
            "map": [("a", 1.5), ("b", float("nan"))],
            "day": dt.date(2026, 1, 2),
            "price": D("1.10"),
            "bytes": b"\xff",
            "text": 'ä"',
            "inner": {"x": None},
        },
        None,
    ]
    kind = pa.struct(
        {
            "list": pa.list_(pa.int64()),
            "map": pa.map_(pa.string(), pa.float64()),
            "day": pa.date32(),
            "price": pa.decimal128(10, 2),
            "bytes": pa.binary(),
            "text": pa.string(),
            "inner": pa.struct({"x": pa.int8()}),
        }
    )
    with pytest.warns(TypeWarning, match="JSON string"):
        found, (text, null) = through(tmp_path, pa.array(values, kind))
    assert (found, null) == (pa.string(), None)
    assert json.loads(text) == {
        "list": [1, None],
        "map": {"a": 1.5, "b": "nan"},
        "day": "2026-01-02",
        "price": "1.10",
        "bytes": "/w==",
        "text": 'ä"',
        "inner": {"x": None},
    }


def test_lists_of_dictionaries_and_of_uuids(tmp_path: Path) -> None:
    with pytest.warns(TypeWarning):
        assert through(tmp_path, pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))))[1] == ['["a"]']


def test_a_column_without_a_type_is_left_out(tmp_path: Path) -> None:
    published = Landing(tmp_path).table("t").insert(pa.table({"a": [1], "b": pa.nulls(1)}))
    assert published is not None
    assert pq.read_schema(published.path).names == ["a", "__rowMarker__"]


@pytest.mark.parametrize(
    "kind", [pa.decimal256(50, 2), pa.month_day_nano_interval(), pa.dense_union([pa.field("a", pa.int8())])], ids=str
)
def test_types_that_have_no_form_are_refused(tmp_path: Path, kind: pa.DataType) -> None:
    table = Landing(tmp_path).table("t")
    with pytest.raises(LakemirrorError) as caught:
        table.insert(pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int8()), ("c", kind)]), []))
    assert (caught.value.code, caught.value.column) == ("type-unsupported", "c")
    assert not list(table.folder.glob("*.parquet"))


def test_the_warning_comes_once_and_names_this_file(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            table.insert([{"a": [1]}])
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "column a" in str(caught[0].message)
