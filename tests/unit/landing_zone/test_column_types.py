"""Types of Parquet columns in the table (contract section 6)."""

from __future__ import annotations

import io
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from folders import parquet, patient
from hypothesis import given
from hypothesis import strategies as st

from lakemirror.errors import TableError
from lakemirror.landing_zone.column_types import FileColumn, file_columns, fits, note, table_type

TABLE_TYPES = [
    (pa.int8(), "smallint"), (pa.int16(), "smallint"), (pa.int32(), "int"), (pa.int64(), "bigint"),
    (pa.uint8(), "smallint"), (pa.uint16(), "int"), (pa.uint32(), "bigint"), (pa.uint64(), "decimal(20,0)"),
    (pa.float32(), "float"), (pa.float64(), "double"), (pa.bool_(), "boolean"),
    (pa.decimal128(38, 3), "decimal(38,3)"), (pa.decimal128(1, 0), "decimal(1,0)"),
    (pa.decimal256(9, 9), "decimal(9,9)"),
    (pa.string(), "string"), (pa.large_string(), "string"), (pa.string_view(), "string"),
    (pa.dictionary(pa.int32(), pa.string()), "string"), (pa.dictionary(pa.int8(), pa.int64()), "bigint"),
    (pa.binary(), "binary"), (pa.large_binary(), "binary"), (pa.binary_view(), "binary"), (pa.binary(7), "binary"),
    (pa.date32(), "date"), (pa.date64(), "date"),
    (pa.timestamp("s"), "timestamp_ntz"), (pa.timestamp("ms"), "timestamp_ntz"),
    (pa.timestamp("us", "Europe/Paris"), "timestamp"),
    (pa.timestamp("ns"), "timestamp_ntz"),
    (pa.time32("ms"), "string"), (pa.time64("us"), "string"), (pa.time64("ns"), "string"),
    (pa.list_(pa.int32()), "string"), (pa.large_list(pa.int32()), "string"), (pa.list_(pa.int32(), 2), "string"),
    (pa.struct([("a", pa.int32())]), "string"), (pa.map_(pa.string(), pa.int32()), "string"),
    (pa.duration("us"), "bigint"), (pa.uuid(), "string"), (pa.json_(), "string"),
    (pa.null(), None),
]  # fmt: skip


@pytest.mark.parametrize(("arrow_type", "expected"), TABLE_TYPES, ids=str)
def test_the_table_type_of_each_type(arrow_type: pa.DataType, expected: str | None) -> None:
    assert table_type(arrow_type) == expected


@pytest.mark.parametrize(
    "arrow_type", [pa.float16(), pa.decimal256(39, 0), pa.decimal128(5, -2), pa.month_day_nano_interval()]
)
def test_types_without_a_place(arrow_type: pa.DataType) -> None:
    with pytest.raises(TableError) as caught:
        table_type(arrow_type)
    assert caught.value.code == "type-unsupported"


@pytest.mark.parametrize(
    ("arrow_type", "word"),
    [
        (pa.timestamp("ns"), "microseconds"),
        (pa.timestamp("ns", "UTC"), "microseconds"),
        (pa.time64("ns"), "microseconds"),
        (pa.list_(pa.int32()), "list"),
        (pa.struct([("a", pa.int32())]), "struct"),
        (pa.map_(pa.string(), pa.int32()), "map"),
        (pa.duration("ms"), "ms"),
        (pa.dictionary(pa.int8(), pa.timestamp("ns")), "microseconds"),
    ],
    ids=str,
)
def test_what_the_table_does_not_keep_is_noted(arrow_type: pa.DataType, word: str) -> None:
    assert word in (note(arrow_type) or "")


@pytest.mark.parametrize(
    "arrow_type", [t for t, _ in TABLE_TYPES if "[ns" not in str(t) and not pa.types.is_nested(t)], ids=str
)
def test_nothing_else_is_noted(arrow_type: pa.DataType) -> None:
    if not pa.types.is_duration(arrow_type):
        assert note(arrow_type) is None


# a footer's columns


def columns_of(table: pa.Table, **options: object) -> dict[str, FileColumn]:
    footer = pq.read_metadata(io.BytesIO(parquet(table, **options)))
    return {column.name: column for column in file_columns(footer)}


def test_the_columns_of_a_file_in_their_order() -> None:
    found = columns_of(pa.table({"b": [1], "a": ["x"], "n": pa.nulls(1)}))
    assert [(c.name, c.table_type, c.note) for c in found.values()] == [
        ("b", "bigint", None),
        ("a", "string", None),
        ("n", None, None),
    ]


@pytest.mark.parametrize("store_schema", [True, False])
def test_encodings_are_those_of_the_right_column_beside_nested_ones(store_schema: bool) -> None:
    moments = pa.array([1], pa.timestamp("ns"))
    table = pa.table(
        {
            "s": pa.array([{"x": 1, "y": [{"z": 1, "w": 2}]}]),
            "m": pa.array([[("k", {"v": 1.0})]], pa.map_(pa.string(), pa.struct([("v", pa.float64())]))),
            "l": pa.array([[[1]]]),
            "u": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))),
            "f": pa.array([b"ab"], pa.binary(2)),
            "t": moments,
            "a.b": [1],
        }
    )
    found = columns_of(table, store_schema=store_schema, use_deprecated_int96_timestamps=True)
    assert {name: c.encoding for name, c in found.items()} == {
        "s": "", "m": "", "l": "", "u": "uuid", "f": "", "t": "int96", "a.b": "",
    }  # fmt: skip
    assert {name: c.table_type for name, c in found.items()} == {
        "s": "string", "m": "string", "l": "string", "u": "string", "f": "binary", "t": "timestamp", "a.b": "bigint",
    }  # fmt: skip
    assert found["t"].note is None  # INT96 is what Spark wrote for years, nothing to warn of


def test_a_type_without_a_place_stops_no_other_column() -> None:
    found = columns_of(pa.table({"h": pa.array([1], pa.float16()), "i": [1]}))
    assert found["h"].table_type is None
    assert "halffloat" in (found["h"].unsupported or "")
    assert (found["i"].table_type, found["i"].unsupported) == ("bigint", None)


def test_a_deeply_nested_column_is_text() -> None:
    deep = pa.int32()
    for _ in range(60):
        deep = pa.struct([("a", deep), ("b", pa.int8())])
    found = columns_of(pa.table({"deep": pa.nulls(1, deep), "last": pa.array([1], pa.uint16())}))
    assert (found["deep"].table_type, found["last"].table_type) == ("string", "int")


# what fits

FITS = {
    ("smallint", "int"), ("smallint", "bigint"), ("int", "bigint"), ("float", "double"),
    ("smallint", "float"), ("smallint", "double"), ("int", "double"),
    ("decimal(5,2)", "decimal(6,2)"), ("decimal(5,2)", "decimal(6,3)"), ("decimal(5,2)", "decimal(38,20)"),
    ("smallint", "decimal(5,0)"), ("int", "decimal(12,2)"), ("bigint", "decimal(20,0)"), ("bigint", "decimal(19,0)"),
    ("decimal(4,0)", "smallint"), ("decimal(9,0)", "int"), ("decimal(18,0)", "bigint"), ("decimal(3,0)", "bigint"),
}  # fmt: skip


@pytest.mark.parametrize(("file_type", "column_type"), sorted(FITS))
def test_what_fits(file_type: str, column_type: str) -> None:
    assert fits(file_type, column_type)
    assert fits(file_type, file_type)


@pytest.mark.parametrize(
    ("file_type", "column_type"),
    [
        *sorted((b, a) for a, b in FITS),
        ("decimal(5,2)", "decimal(5,3)"), ("decimal(5,2)", "decimal(5,1)"), ("decimal(5,2)", "decimal(38,36)"),
        ("int", "decimal(9,0)"), ("bigint", "decimal(18,0)"), ("int", "decimal(10,1)"), ("smallint", "decimal(4,0)"),
        ("decimal(5,0)", "smallint"), ("decimal(10,0)", "int"), ("decimal(19,0)", "bigint"),
        ("decimal(20,0)", "bigint"),
        ("decimal(4,1)", "int"), ("bigint", "double"), ("int", "float"), ("bigint", "float"),
        ("decimal(3,1)", "double"),
        ("int", "string"), ("string", "int"), ("date", "timestamp"), ("timestamp", "date"), ("boolean", "int"),
        ("binary", "string"), ("string", "binary"), ("double", "decimal(38,10)"), ("date", "string"),
        ("decimal(5,2)x", "decimal(6,2)"),
    ],
)  # fmt: skip
def test_what_does_not_fit(file_type: str, column_type: str) -> None:
    assert not fits(file_type, column_type)


_LARGEST = {"smallint": 2**15 - 1, "int": 2**31 - 1, "bigint": 2**63 - 1}
_TYPES = st.sampled_from(["smallint", "int", "bigint", "float", "double"]) | st.integers(1, 38).flatmap(
    lambda p: st.integers(0, p).map(lambda s: f"decimal({p},{s})")
)


def extremes(type_: str) -> list[Fraction]:
    """The values of a type that are hardest to hold in another one."""
    if type_ in _LARGEST:
        return [Fraction(_LARGEST[type_]), Fraction(-_LARGEST[type_] - 1), Fraction(_LARGEST[type_] - 1)]
    if type_ in ("float", "double"):
        return [Fraction(2) ** (127 if type_ == "float" else 1023), Fraction(1, 2**20)]
    precision, scale = map(int, type_[8:-1].split(","))
    return [Fraction(10**precision - 1, 10**scale), Fraction(1, 10**scale)]


def holds(type_: str, value: Fraction) -> bool:
    if type_ in _LARGEST:
        return value.denominator == 1 and -_LARGEST[type_] - 1 <= value <= _LARGEST[type_]
    if type_ == "float":
        return abs(value) < 2**128 and Fraction(float(pa.scalar(float(value), pa.float32()).as_py())) == value
    if type_ == "double":
        return Fraction(float(value)) == value
    precision, scale = map(int, type_[8:-1].split(","))
    scaled = value * 10**scale
    return scaled.denominator == 1 and abs(scaled) < 10**precision


@patient
@given(_TYPES, _TYPES)
def test_what_fits_loses_no_value(file_type: str, column_type: str) -> None:
    if fits(file_type, column_type):
        assert all(holds(column_type, value) for value in extremes(file_type))


@patient
@given(_TYPES, _TYPES)
def test_whole_numbers_and_decimals_fit_wherever_they_can(file_type: str, column_type: str) -> None:
    if "float" in (file_type, column_type) or "double" in (file_type, column_type):
        return
    assert fits(file_type, column_type) == all(holds(column_type, value) for value in extremes(file_type))


def test_the_check_of_decimals_checks_something() -> None:
    assert holds("decimal(3,1)", Fraction(Decimal("99.9")))
    assert not holds("decimal(3,1)", Fraction(Decimal("99.99")))
