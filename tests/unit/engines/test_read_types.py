"""Every type of section 6 as the read kernel gives it. The JSON texts are those of Spark 4.2's `to_json`.

Two things are ours: the fewest digits of a floating-point number (Java 17 has one more at times), and keys of maps
that Spark names by a Java object's address.
"""

# ruff: noqa: E501 - tables of values read best in lines

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from change_units import bad_row, items, like, rows_of, target, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.rounds import rounds

from lakemirror.engines.kernels.calendar_days import Calendar, today_days, today_micros
from lakemirror.engines.kernels.convert_types import Conversion, arrow_type
from lakemirror.engines.kernels.json_text import float_text, json_text
from lakemirror.landing_zone.column_types import FileColumn

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
MOMENT = 1_709_210_096_789_123
US = [0, 999, 1000, -1, MOMENT, 253402300800000000, -62135596800000001, -62167219200000001, -92167219200000000, 2**62]
US_TEXT = [
    "1970-01-01T00:00:00.000", "1970-01-01T00:00:00.000", "1970-01-01T00:00:00.001", "1969-12-31T23:59:59.999",
    "2024-02-29T12:34:56.789", "+10000-01-01T00:00:00.000", "0000-12-31T23:59:59.999", "-0001-12-31T23:59:59.999",
    "-0951-05-03T18:40:00.000", "+148108-07-06T14:00:27.387",
]  # fmt: skip


def listed(kind: pa.DataType, *values: Any) -> pa.Array:
    return pa.array([list(values)], pa.list_(kind))


def keyed(kind: pa.DataType, *keys: Any) -> pa.Array:
    return pa.array([[(key, place or None) for place, key in enumerate(keys)], [], None], pa.map_(kind, pa.int32()))


JSON: dict[str, tuple[pa.Array, list[str | None]]] = {
    "integers": (pa.array([[1, None, -5], [], None], pa.list_(pa.int64())), ["[1,null,-5]", "[]", None]),
    "text": (
        listed(pa.string(), 'a"b\\c/d\b\t\n\f\r\x01\x1f\x7f\u2028é😀\0\\u001f', "", None),
        ['["a\\"b\\\\c/d\\b\\t\\n\\f\\r\\u0001\\u001F\x7f\u2028é😀\\u0000\\\\u001f","",null]'],
    ),
    "lists": (pa.array([[[1], None, []], [], None], pa.list_(pa.large_list(pa.int32()))), ["[[1],null,[]]", "[]", None]),
    "fixed size": (pa.array([[1, 2], None, [3, None]], pa.list_(pa.int8(), 2)), ["[1,2]", None, "[3,null]"]),
    "doubles": (
        listed(pa.float64(), 0.0, -0.0, 1.0, 0.001, 0.0009999, 1e7, 9999999.0, 12345678.9, 1e300, 5e-324, math.nan,
               math.inf, -math.inf, 2.2250738585072014e-308, 123456789012345680.0, 100.0, 2e-3, 4.35, 1 / 3),
        ['[0.0,-0.0,1.0,0.001,9.999E-4,1.0E7,9999999.0,1.23456789E7,1.0E300,4.9E-324,"NaN","Infinity","-Infinity",'
         "2.2250738585072014E-308,1.2345678901234568E17,100.0,0.002,4.35,0.3333333333333333]"],
    ),
    "floats": (
        listed(pa.float32(), -0.0, 0.1, 1e7, 9999999.0, 3.4028235e38, 1e-45, math.nan, 16777216.0, 1e-4, 1 / 3, 2e10),
        ['[-0.0,0.1,1.0E7,9999999.0,3.4028235E38,1.4E-45,"NaN",1.6777216E7,1.0E-4,0.33333334,2.0E10]'],
    ),
    "decimals": (listed(pa.decimal128(10, 2), Decimal("1.50"), Decimal("0.00"), Decimal("-12345.67"), None),
                 ["[1.50,0.00,-12345.67,null]"]),
    "small decimals": (
        listed(pa.decimal128(20, 9), Decimal("1E-9"), Decimal(0), Decimal(1), Decimal("1E-7"), Decimal("-0.000001234")),
        ["[1E-9,0E-9,1.000000000,1.00E-7,-0.000001234]"],
    ),
    "long decimals": (listed(pa.decimal128(38, 0), Decimal("9" * 38), Decimal(0)), [f"[{'9' * 38},0]"]),
    "bytes": (listed(pa.binary(), b"", b"\x00\xff\x10", b"a"), ['["","AP8Q","YQ=="]']),
    "fixed bytes": (listed(pa.binary(3), b"abc"), ['["YWJj"]']),
    "booleans": (pa.array([[True, False, None]]), ["[true,false,null]"]),
    "dates": (
        listed(pa.int32(), 19782, -719162, -141432, -719163, -719529, 3000000, -1000000, 100000000)
        .cast(pa.list_(pa.date32())),
        ['["2024-02-29","0001-01-01","1582-10-10","0000-12-31","-0001-12-31","+10183-09-21","-0768-02-04",'
         '"+275760-09-13"]'],
    ),
    "moments": (listed(pa.timestamp("us", "UTC"), *US), [json.dumps([f"{text}Z" for text in US_TEXT]).replace(" ", "")]),
    "local moments": (listed(pa.timestamp("us"), *US), [json.dumps(US_TEXT).replace(" ", "")]),
    "milliseconds": (listed(pa.timestamp("ms", "UTC"), 1, -1), ['["1970-01-01T00:00:00.001Z","1969-12-31T23:59:59.999Z"]']),
    "nanoseconds": (listed(pa.timestamp("ns", "UTC"), 1, -1, MOMENT * 1000), [f"[1,-1,{MOMENT}000]"]),
    "times": (listed(pa.time32("ms"), 3_723_004), ["[3723004]"]),
    "long times": (listed(pa.time64("us"), 86_399_999_999), ["[86399999999]"]),
    "durations": (listed(pa.duration("us"), 0, -5), ["[0,-5]"]),
    "unsigned": (listed(pa.uint64(), 2**64 - 1), ["[18446744073709551615]"]),
    "nothing": (pa.array([[None, None], [], None], pa.list_(pa.null())), ["[null,null]", "[]", None]),
    "struct": (
        pa.array([{"a": 1, "B b": None, "c.d": {"x": [None, "q"], "y": dt.date(2020, 1, 2)}}, None, {"B b": "z"}],
                 pa.struct([("a", pa.int32()), ("B b", pa.string()),
                            ("c.d", pa.struct([("x", pa.list_(pa.string())), ("y", pa.date32())]))])),
        ['{"a":1,"B b":null,"c.d":{"x":[null,"q"],"y":"2020-01-02"}}', None, '{"a":null,"B b":"z","c.d":null}'],
    ),
    "structs": (pa.array([[{"a": 1}, None, {"a": None}], [], None]), ['[{"a":1},null,{"a":null}]', "[]", None]),
    "dictionaries": (pa.ListArray.from_arrays([0, 2, 3, 3], pa.array(["x", "y", "x"]).dictionary_encode()),
                     ['["x","y"]', '["x"]', "[]"]),
    "map": (keyed(pa.string(), 'k"1', "k2", ""), ['{"k\\"1":null,"k2":1,"":2}', "{}", None]),
    "map by integer": (keyed(pa.int32(), 1, -2), ['{"1":null,"-2":1}', "{}", None]),
    "map by boolean": (keyed(pa.bool_(), True, False), ['{"true":null,"false":1}', "{}", None]),
    "map by date": (keyed(pa.date32(), dt.date(2024, 2, 29), dt.date(1970, 1, 1)), ['{"19782":null,"0":1}', "{}", None]),
    "map by moment": (keyed(pa.timestamp("us", "UTC"), MOMENT, -1), [f'{{"{MOMENT}":null,"-1":1}}', "{}", None]),
    "map by double": (keyed(pa.float64(), 1.0, 1e10, math.nan, -0.0), ['{"1.0":null,"1.0E10":1,"NaN":2,"-0.0":3}', "{}", None]),
    "map by decimal": (keyed(pa.decimal128(20, 9), Decimal("1E-9"), Decimal(0)), ['{"1E-9":null,"0E-9":1}', "{}", None]),
    "map by bytes": (keyed(pa.binary(), b"abc"), ['{"YWJj":null}', "{}", None]),
    "map by struct": (pa.array([[({"a": 1}, 2)]], pa.map_(pa.struct([("a", pa.int32())]), pa.int32())), ['{"{\\"a\\":1}":2}']),
    "map twice": (pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32())), ['{"a":1,"a":2}']),
    "maps": (pa.array([[("a", [("b", [1, None])])]], pa.map_(pa.string(), pa.map_(pa.string(), pa.list_(pa.int32())))),
             ['{"a":{"b":[1,null]}}']),
}  # fmt: skip


@pytest.mark.parametrize("name", JSON)
def test_json_text(tmp_path: Path, name: str) -> None:
    values, wanted = JSON[name]
    assert json_text(values, Calendar()).to_pylist() == wanted
    unit = written(tmp_path, pa.table({"v": values}))
    assert rows_of(unit, like(unit))["v"].to_pylist() == wanted
    padded = pa.concat_arrays([values, values]).slice(len(values))
    assert json_text(padded, Calendar()).to_pylist() == wanted, "of a slice"


def moments(*micros: int | None) -> list[dt.datetime | None]:
    return [None if each is None else EPOCH + dt.timedelta(microseconds=each) for each in micros]


def local(*micros: int | None) -> list[dt.datetime | None]:
    return [each if each is None else each.replace(tzinfo=None) for each in moments(*micros)]


def uuids(*values: bytes | None) -> pa.Array:
    storage = pa.array(values, pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), storage) if hasattr(pa, "uuid") else storage


FLAT: dict[str, tuple[pa.Array, str, list[Any]]] = {
    "int8": (pa.array([-128, None], pa.int8()), "smallint", [-128, None]),
    "int16": (pa.array([-32768, 1], pa.int16()), "smallint", [-32768, 1]),
    "int32": (pa.array([2**31 - 1, None], pa.int32()), "int", [2**31 - 1, None]),
    "int64": (pa.array([-(2**63), 1], pa.int64()), "bigint", [-(2**63), 1]),
    "uint8": (pa.array([255, 0], pa.uint8()), "smallint", [255, 0]),
    "uint16": (pa.array([65535, 0], pa.uint16()), "int", [65535, 0]),
    "uint32": (pa.array([2**32 - 1, 0], pa.uint32()), "bigint", [2**32 - 1, 0]),
    "uint64": (pa.array([2**64 - 1, None], pa.uint64()), "decimal(20,0)", [Decimal(2**64 - 1), None]),
    "float": (pa.array([1.5, None], pa.float32()), "float", [1.5, None]),
    "double": (pa.array([1e300, -0.5]), "double", [1e300, -0.5]),
    "bool": (pa.array([True, None]), "boolean", [True, None]),
    "decimal": (pa.array([Decimal("12345678901234567890.123"), None], pa.decimal128(38, 3)), "decimal(38,3)",
                [Decimal("12345678901234567890.123"), None]),
    "decimal256": (pa.array([Decimal("1.5"), Decimal("-99999999.99")], pa.decimal256(10, 2)), "decimal(10,2)",
                   [Decimal("1.50"), Decimal("-99999999.99")]),
    "string": (pa.array(["ä\n", ""]), "string", ["ä\n", ""]),
    "large string": (pa.array(["x", None], pa.large_string()), "string", ["x", None]),
    "string view": (pa.array(["x", None], pa.string_view()), "string", ["x", None]),
    "dictionary": (pa.array(["x", None]).dictionary_encode(), "string", ["x", None]),
    "number dictionary": (pa.array([7, None], pa.int64()).dictionary_encode(), "bigint", [7, None]),
    "binary": (pa.array([b"\x00\xff", None]), "binary", [b"\x00\xff", None]),
    "large binary": (pa.array([b"x", None], pa.large_binary()), "binary", [b"x", None]),
    "fixed binary": (pa.array([b"abc", None], pa.binary(3)), "binary", [b"abc", None]),
    "uuid": (uuids(uuid.UUID(int=5).bytes, None, b"\xab" * 16), "string",
             ["00000000-0000-0000-0000-000000000005", None, "abababab-abab-abab-abab-abababababab"]),
    "date": (pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]), "date",
             [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "date64": (pa.array([86_400_000, None], pa.date64()), "date", [dt.date(1970, 1, 2), None]),
    "seconds": (pa.array([-1, None], pa.timestamp("s")), "timestamp_ntz", local(-1_000_000, None)),
    "milliseconds": (pa.array([-1, None], pa.timestamp("ms", "UTC")), "timestamp", moments(-1000, None)),
    "microseconds": (pa.array([MOMENT, None], pa.timestamp("us", "Europe/Paris")), "timestamp", moments(MOMENT, None)),
    "without zone": (pa.array([MOMENT, None], pa.timestamp("us")), "timestamp_ntz", local(MOMENT, None)),
    "nanoseconds": (pa.array([-1, -1000, 1999, None], pa.timestamp("ns", "UTC")), "timestamp", moments(-1, -1, 1, None)),
    "ns without zone": (pa.array([-1001, None], pa.timestamp("ns")), "timestamp_ntz", local(-2, None)),
    "time32": (pa.array([3_723_004, 0, None], pa.time32("ms")), "string", ["01:02:03.004000", "00:00:00", None]),
    "time32 s": (pa.array([86_399, None], pa.time32("s")), "string", ["23:59:59", None]),
    "time64": (pa.array([86_399_999_999, 1_000_000], pa.time64("us")), "string", ["23:59:59.999999", "00:00:01"]),
    "time64 ns": (pa.array([1_999, 60_000_000_000], pa.time64("ns")), "string", ["00:00:00.000001", "00:01:00"]),
    "24:00": (pa.array([86_400_000_000]).view(pa.time64("us")), "string", ["24:00:00"]),
    "duration": (pa.array([1, -5, None], pa.duration("ns")), "bigint", [1, -5, None]),
}  # fmt: skip


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("options", [{}, {"store_schema": False}, {"use_dictionary": False}], ids=str)
def test_flat_values(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    values, type_, wanted = FLAT[name]
    if name == "duration" and "store_schema" in options:
        pytest.skip("then it is an integer")
    unit = written(tmp_path, pa.table({"v": values}), **options)
    if name == "uuid" and unit.columns[0].table_type == "binary":
        pytest.skip("this pyarrow writes no UUID without its own schema")
    assert unit.columns[0].table_type == type_
    found = rows_of(unit, like(unit))
    assert found.schema.field("v").type == arrow_type(type_)
    assert found["v"].to_pylist() == wanted


def test_int96_and_decimals_as_integers(tmp_path: Path) -> None:
    far = pa.array([-(2**63), 2**63 - 1, -1], pa.int64()).view(pa.timestamp("ns"))
    rows = {"at": far, "l": pa.ListArray.from_arrays([0, 1, 2, 3], far)}
    unit = written(tmp_path, pa.table(rows), use_deprecated_int96_timestamps=True)
    found = rows_of(unit, like(unit))
    assert found["at"].cast(pa.int64()).to_pylist() == [-9223372036854776, 9223372036854775, -1]
    assert found["l"][2].as_py() == '["1969-12-31T23:59:59.999Z"]'
    amount = pa.array([Decimal("1.5"), None, Decimal("-9.99")], pa.decimal128(5, 2))
    unit = written(tmp_path, pa.table({"v": amount}), store_decimal_as_integer=True)
    assert rows_of(unit, like(unit))["v"].to_pylist() == [Decimal("1.50"), None, Decimal("-9.99")]


@pytest.mark.parametrize(
    ("values", "column", "wanted"),
    [
        (pa.array([7, None], pa.int16()), "bigint", [7, None]),
        (pa.array([7, None], pa.uint8()), "int", [7, None]),
        (pa.array([7, None], pa.int16()), "float", [7.0, None]),
        (pa.array([7, None], pa.int32()), "double", [7.0, None]),
        (pa.array([0.5, None], pa.float32()), "double", [0.5, None]),
        (pa.array([7, None], pa.int64()), "decimal(20,1)", [Decimal("7.0"), None]),
        (pa.array([2**64 - 1], pa.uint64()), "decimal(38,2)", [Decimal(2**64 - 1)]),
        (pa.array([Decimal("1.5"), None], pa.decimal128(5, 2)), "decimal(38,10)", [Decimal("1.5"), None]),
        (pa.array([Decimal("9999"), None], pa.decimal128(4, 0)), "smallint", [9999, None]),
        (pa.nulls(2), "timestamp", [None, None]),
    ],
)
def test_what_fits_is_cast(tmp_path: Path, values: pa.Array, column: str, wanted: list[Any]) -> None:
    found = rows_of(written(tmp_path, {"V": values}), target(v=column))
    assert found.schema.field("v").type == arrow_type(column)
    assert found["v"].to_pylist() == wanted


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (pa.array([0, -1, 5]).view(pa.time64("us")), "is not a time of day"),
        (pa.array([0, 10**18, 0], pa.timestamp("ms")), ""),
        (pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(np.arange(4, dtype=np.int32)), pa.py_buffer(b"a\xffb")]), ""),
    ],
)  # fmt: skip
def test_a_value_that_does_not_convert(tmp_path: Path, values: pa.Array, why: str) -> None:
    unit = written(tmp_path, {"id": [1, 2, 3], "v": values})
    found = bad_row(unit, like(unit))
    assert (found.code, found.row, found.column) == ("value-invalid", 2, "v")
    assert found.message.startswith(f"{unit.name}, row 2: column 'v': ")
    assert why in found.message


def test_the_kernel_refuses_what_does_not_fit(tmp_path: Path) -> None:
    found = items(written(tmp_path, {"v": [1]}), target(v="int"))
    assert [(each.code, each.column) for each in found] == [("type-changed", "v")]  # type: ignore[union-attr]


# the legacy calendar, as Spark 4.2 reads what it has written with it


@pytest.mark.parametrize(
    ("old", "new"),
    [((1582, 10, 5), (1582, 10, 15)), ((1582, 10, 4), (1582, 10, 4)), ((1000, 2, 29), (1000, 3, 1)), ((4, 2, 29), (4, 2, 29)), ((1, 1, 1), (1, 1, 1))],
)  # fmt: skip
def test_days_of_the_legacy_calendar(old: tuple[int, int, int], new: tuple[int, int, int]) -> None:
    """`old` as the Julian calendar counts it: the day number by the usual formula."""
    year, month, day = old
    ahead = (14 - month) // 12
    julian = (
        day
        + (153 * (month + 12 * ahead - 3) + 2) // 5
        + 365 * (year + 4800 - ahead)
        + (year + 4800 - ahead) // 4
        - 32083
    )
    found = today_days(np.array([julian - 2440588]))
    assert found.tolist() == [(dt.date(*new) - dt.date(1970, 1, 1)).days]


def test_moments_of_the_legacy_calendar() -> None:
    """Values of Spark's own reading: before 1582, before 1900 in a zone with another offset then, after 1900."""
    given_, wanted = np.array(LEGACY_LOS_ANGELES).T
    assert today_micros(given_, "America/Los_Angeles").tolist() == wanted.tolist()
    assert today_micros(np.array([-(10**15)]), "UTC").tolist() == [-(10**15)]
    assert today_micros(np.array([-3 * 10**15]), "+05:30").tolist() == [-3 * 10**15]
    with pytest.raises(ValueError, match="unknown time zone"):
        today_micros(np.array([-(10**17)]), "No/Where")


LEGACY_LOS_ANGELES = [
    (-59093063732903580, -59092891354903580),
    (-55987031307051429, -55986945329051429),
    (-54572735581294992, -54572736003294992),
    (-41766199967241333, -41766459589241333),
    (-20376067189081463, -20376758811081463),
    (-14936273473836696, -14937051495836696),
    (-12219205978000001, -12219206400000001),
    (-12219205978000000, -12219206400000000),
    (-11866567149022106, -11866567571022106),
    (-2717653978000000, -2717654400000000),
    (-2717650378000000, -2717650800000000),
    (-2717646778000000, -2717647200000000),
    (-2717643178000000, -2717643600000000),
    (-2717640000000000, -2717640000000000),
    (-2717636400000000, -2717636400000000),
]
"""What the file says, and what Spark reads."""


def test_a_file_of_the_legacy_calendar(tmp_path: Path) -> None:
    day = pa.array([-141_428, 0], pa.int32()).view(pa.date32())
    at = pa.array([-141_428 * 86_400_000_000, 0], pa.timestamp("us", "UTC"))
    for version, shift in (("2.4.5", -10), ("3.0.1", 0)):
        rows = pa.table({"d": day, "at": at, "l": pa.ListArray.from_arrays([0, 1, 2], day)})
        rows = rows.replace_schema_metadata({"org.apache.spark.version": version})
        found = rows_of(unit := written(tmp_path, rows), like(unit))
        assert found["d"].cast(pa.int32()).to_pylist() == [-141_428 + shift, 0]
        assert found["at"].cast(pa.int64()).to_pylist() == [(-141_428 + shift) * 86_400_000_000, 0]
        assert found["l"][0].as_py() == ('["1582-10-04"]' if shift else '["1582-10-14"]')


# against plain Python


def python_text(value: Any) -> Any:
    """What JSON says of a value, as the JSON module reads it back."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, list):
        return [python_text(each) for each in value]
    if isinstance(value, dict):
        return {name: python_text(each) for name, each in value.items()}
    return value


LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)), (pa.string(), st.text(max_size=5)), (pa.bool_(), st.booleans()),
    (pa.float64(), st.floats()), (pa.binary(), st.binary(max_size=5)), (pa.date32(), st.dates()),
    (pa.decimal128(20, 8), st.decimals(-(10**11), 10**11, places=8)),
]  # fmt: skip


@st.composite
def nested(draw: Any, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    shape = draw(st.sampled_from(["leaf", "list", "struct"] if depth < 2 else ["list", "struct"])) if depth else "leaf"
    if shape == "leaf":
        kind, values = draw(st.sampled_from(LEAVES))
        return kind, st.none() | values
    if shape == "list":
        kind, values = draw(nested(depth - 1))
        return pa.list_(kind), st.none() | st.lists(values, max_size=4)
    parts = [draw(nested(depth - 1)) for _ in range(draw(st.integers(1, 3)))]
    kinds = {f'f{place} ü"': kind for place, (kind, _) in enumerate(parts)}
    values = {name: part[1] for name, part in zip(kinds, parts, strict=True)}
    return pa.struct(list(kinds.items())), st.none() | st.fixed_dictionaries(values)


@settings(max_examples=rounds(40, 150), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_json_says_what_the_value_is(data: st.DataObject) -> None:
    kind, strategy = data.draw(nested())
    values = data.draw(st.lists(strategy, max_size=6))
    found = json_text(pa.array(values, kind), Calendar()).to_pylist()
    for value, text in zip(values, found, strict=True):
        assert (text is None) == (value is None)
        if text is not None:
            assert json.loads(text, parse_float=parse) == as_read(python_text(value))


def parse(text: str) -> Any:
    return decimal.Decimal(text)


def as_read(value: Any) -> Any:
    """A number as `parse` reads it: a float by the digits that name it."""
    if isinstance(value, float):
        return decimal.Decimal(repr(value))
    if isinstance(value, list):
        return [as_read(each) for each in value]
    return {name: as_read(each) for name, each in value.items()} if isinstance(value, dict) else value


@settings(max_examples=rounds(200, 500), deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_are_named_exactly(double: float, single: float) -> None:
    assert float(float_text(double)) == double
    assert np.float32(float_text(single, single=True)) == np.float32(single)
    assert float_text(double).count(".") == 1


@settings(max_examples=rounds(40, 100), deadline=None)
@given(st.lists(st.none() | st.integers(0, 86_399_999_999), max_size=20), st.sampled_from(["us", "ns"]))
def test_times_are_what_python_says(micros: list[int | None], unit: str) -> None:
    scale = 1000 if unit == "ns" else 1
    values = pa.array([None if each is None else each * scale for each in micros], pa.time64(unit))
    found = Conversion(FileColumn("t", values.type, "string"), "string", Calendar())(values).to_pylist()
    assert found == [
        None if each is None else (dt.datetime.min + dt.timedelta(microseconds=each)).time().isoformat()
        for each in micros
    ]


@settings(max_examples=rounds(40, 100), deadline=None)
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20), st.booleans())
def test_nanoseconds_are_cut_downwards(nanos: list[int | None], zoned: bool) -> None:
    values = pa.array(nanos, pa.timestamp("ns", "UTC" if zoned else None))
    how = Conversion(FileColumn("t", values.type, "timestamp"), "timestamp", Calendar())
    found = how(values)
    assert found.cast(pa.int64()).to_pylist() == [None if each is None else each // 1000 for each in nanos]
