"""Rows of Python values: each value is published as it is, or refused with its row and column."""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
import uuid
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounds import rounds

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing, LandingTable
from lakemirror.publisher.exact_values import Refused, cast_exactly, column

pytestmark = pytest.mark.filterwarnings("ignore::lakemirror.publisher.declared_types.TypeWarning")

UTC = dt.timezone.utc
DAY, NOON = dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 12)
AWARE = NOON.replace(tzinfo=UTC)
BIG = 2**53 + 1
ID = uuid.UUID(int=7)
NAN = float("nan")
INT64 = pa.int64()


class Colour(enum.IntEnum):
    RED = 1


class Word(str, enum.Enum):
    A = "a"


def endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.fixture
def table(tmp_path: Path) -> LandingTable:
    return Landing(tmp_path).table("t", ["id"])


def stored(table: LandingTable, values: list[Any]) -> tuple[pa.DataType, list[Any]]:
    """The column of one published file."""
    published = table.insert([{"id": number, "v": value} for number, value in enumerate(values)])
    assert published is not None
    found = pq.read_table(published.path)["v"]
    return found.type, found.to_pylist()


def refused(table: LandingTable, rows: Any) -> LakemirrorError:
    before = len(list(table.folder.glob("*.parquet")))
    with pytest.raises(LakemirrorError) as caught:
        table.insert(rows)
    assert len(list(table.folder.glob("*.parquet"))) == before
    return caught.value


MIXED = [
    [DAY, NOON], [NOON, DAY], [NOON, AWARE], [AWARE, NOON], [True, 2], [2, True], [1.5, True], [D(1), False],
    ["a", 1], [1, "a"], ["a", 1.5], ["1", D(1)], ["a", b"b"], [b"b", "a"], ["a", DAY], [DAY, "2026-01-02"],
    [[1], "a"], [{"a": 1}, 1], [ID, "a"], [dt.time(1), NOON], [dt.timedelta(1), 5], ["a", NAN], [True, NAN],
    [1.5, BIG], [1, 2.5, BIG], [NAN, BIG], [1.5, 10**400], [D("1.5"), NAN], [D("1.5"), math.inf], [D("1.5"), 1e300],
    [D(1), D("NaN")], [D(10) ** 37, D("0.01")], [1, 10**38], [0.5, np.int64(BIG)], [np.bool_(True), 1],
    [np.datetime64("2026-01-02"), NOON], [pd.Timestamp(NOON), DAY], [1, {1}], [1, object()], [1, 1j],
    [NOON, pd.Timestamp("2026-01-01 00:00:00.123456789")], [NOON, np.datetime64("2026-01-01T00:00:00.123456789")],
    [dt.time(1), dt.time(1, tzinfo=UTC)], [{"a": 1}, {"a": {2}}], [{"a": 1}, {1: "x", "1": "y"}], ["a", "\ud800"],
    [[1], endless()],
]  # fmt: skip


@pytest.mark.parametrize("values", MIXED, ids=range(len(MIXED)))
def test_what_cannot_share_a_column_is_refused_with_its_row(table: LandingTable, values: list[Any]) -> None:
    error = refused(table, [{"id": number, "v": value} for number, value in enumerate(values)])
    assert (error.row, error.column, "internal" in error.code) == (len(values), "v", False)
    assert error.code in ("value-invalid", "type-changed") and f"row {len(values)}, column v" in error.message


KEPT: list[tuple[list[Any], pa.DataType, list[Any] | None]] = [
    ([1, 2**63 - 1, None, -(2**63)], INT64, None),
    ([1, 2**64], pa.decimal128(38, 0), [D(1), D(2**64)]),
    ([1, 2.5, 2**60], pa.float64(), None),
    ([D("1.10"), 0.1, 2, None], pa.decimal128(3, 2), [D("1.10"), D("0.10"), D(2), None]),
    ([D("1E+5"), D("0.05")], pa.decimal128(8, 2), None),
    ([D("12345678901234567.89"), 1.5], pa.decimal128(19, 2), None),
    ([np.int8(1), None, 300], INT64, None),
    ([np.int8(1), np.int8(2)], pa.int8(), None),
    ([np.float32(0.1), 0.1], pa.float64(), [float(np.float32(0.1)), 0.1]),
    ([np.float32(0.1)], pa.float32(), None),
    ([np.bool_(True), None, False], pa.bool_(), None),
    ([np.str_("a"), Word.A], pa.string(), ["a", "a"]),
    ([Colour.RED, 2], INT64, None),
    ([np.datetime64("2026-01-02"), DAY], pa.date32(), [DAY, DAY]),
    ([np.datetime64("2026-01-02T12", "ns"), NOON, pd.NaT], pa.timestamp("us"), [NOON, NOON, None]),
    ([pd.Timestamp(AWARE), AWARE, pd.NA], pa.timestamp("us", "UTC"), [AWARE, AWARE, None]),
    (
        [AWARE, dt.datetime(2026, 1, 2, 13, tzinfo=dt.timezone(dt.timedelta(hours=1)))],
        pa.timestamp("us", "UTC"),
        [AWARE, AWARE],
    ),
    ([bytearray(b"a"), memoryview(b"b"), b"c"], pa.binary(), [b"a", b"b", b"c"]),
    ([{"a": 1}, {"b": 2.5}, {}], pa.string(), ['{"a":1}', '{"b":2.5}', "{}"]),
    ([[1, 2.5], (BIG, None), np.array([1, 2])], pa.string(), ["[1,2.5]", f"[{BIG},null]", "[1,2]"]),
    ([{"d": D("1.10"), "t": NOON, "n": NAN}], pa.string(), ['{"d":"1.10","t":"2026-01-02T12:00:00","n":"nan"}']),
    ([ID, None], pa.string(), [str(ID), None]),
    ([dt.time(1, 2, 3), None, dt.time(1, microsecond=5)], pa.string(), ["01:02:03", None, "01:00:00.000005"]),
    ([pa.scalar(5), None], INT64, [5, None]),
]


@pytest.mark.parametrize(("values", "kind", "found"), KEPT, ids=range(len(KEPT)))
def test_what_one_type_holds_is_kept(
    table: LandingTable, values: list[Any], kind: pa.DataType, found: list[Any] | None
) -> None:
    assert stored(table, values) == (kind, values if found is None else found)


LATER: list[tuple[Any, list[Any]]] = [
    (5, [True, "5", 5.5, NAN, D("5.5"), 2**63, DAY, b"5", [5]]),
    (1.5, [BIG, True, "1.5", D("12345678901234567.89"), NOON]),
    (D("1.25"), [D("1.125"), 0.125, NAN, D("12.5"), "1", True]),
    ("text", [5, 1.5, True, b"text", DAY, NOON]),
    (True, [1, 0, "true", 1.0]),
    (DAY, [NOON, AWARE, 5, "2026-01-02T05:00:00", "today"]),
    (NOON, [DAY, AWARE, 5]),
    (AWARE, [DAY, NOON, 5, 1.5]),
    (b"b", ["b", 1]),
]


@pytest.mark.parametrize(("first", "later"), LATER, ids=lambda value: str(value)[:50])
def test_a_later_call_with_another_type_is_refused(tmp_path: Path, first: Any, later: list[Any]) -> None:
    """In the same process, and in another one that knows the table by its files alone."""
    table = Landing(tmp_path).table("t", ["id"])
    table.insert([{"id": 1, "v": first}])
    for again in (table, Landing(tmp_path).table("t", ["id"])):
        for value in later:
            rows = [{"id": 2, "v": first}, {"id": 3, "v": value}]
            error = refused(again, rows[1:])
            assert (error.row, error.column) == (1, "v"), value
            assert error.code in ("value-invalid", "type-changed")
            if value is not NAN:  # which is a missing value to pandas
                assert refused(again, pd.DataFrame({"id": [3], "v": pd.Series([value], dtype=object)})).row == 1


def test_a_later_value_that_fits_gets_the_former_type(table: LandingTable) -> None:
    first = {"id": 1, "i": 5, "f": 1.5, "d": D("1.25"), "t": AWARE, "s": "a", "n": [1]}
    table.insert([first])
    table.insert([{"id": 2, "i": 6.0, "f": 2, "d": 1.25, "t": "2026-01-02 12:00:00", "s": None, "n": {"a": 1}}])
    one, two = (pq.read_table(path) for path in sorted(table.folder.glob("*.parquet")))
    assert one.schema == two.schema
    (row,) = two.drop_columns(["__rowMarker__"]).to_pylist()
    assert row == {"id": 2, "i": 6, "f": 2.0, "d": D("1.25"), "t": AWARE, "s": None, "n": '{"a":1}'}


def test_names_count_without_regard_to_case(table: LandingTable) -> None:
    table.insert([{"id": 1, "v": 1.5}])
    table.insert([{"ID": 2, "V": 2}])
    assert pq.read_schema(table.folder / f"{2:020d}.parquet").field("V").type == pa.float64()
    for names in (["id", "v", "v"], ["id", "v", "V"]):
        with pytest.raises(LakemirrorError, match="columns-ambiguous"):
            table.insert(pd.DataFrame([[1, 2, 3]], columns=names))


def test_objects_of_pandas_are_read_as_python_has_them(table: LandingTable) -> None:
    frame = pd.DataFrame({"id": [1, 2], "v": pd.Series([DAY, NOON], dtype=object)})
    assert refused(table, frame).row == 2
    frame = pd.DataFrame({"id": [1, 2, 3], "v": pd.Series(["a", NAN, None], dtype=object), "w": [1.5, NAN, 2]})
    table.insert(frame)
    found = pq.read_table(next(table.folder.glob("*.parquet")))
    assert found["v"].to_pylist() == ["a", None, None]
    assert found["w"].to_pylist() == [1.5, None, 2]


DECLARED: list[tuple[pa.DataType, list[Any], list[Any]]] = [
    (INT64, [5, 5.0, D(5)], [5.5, NAN, D("5.5"), "x", 2**63]),
    (pa.float32(), [0.1, 0.5, 2**24], [0.123456789, 1e300, 2**24 + 1]),
    (pa.float64(), [0.1, D("0.1"), 2**60], [BIG, D("12345678901234567.89"), 10**400]),
    (pa.decimal128(10, 2), [19.99, D("1.5"), 3], [1.555, NAN, D("0.001"), 10**8]),
    (pa.date32(), [DAY, "2026-01-02"], [NOON, "x", 5]),
    (pa.timestamp("s"), [NOON], [NOON.replace(microsecond=1)]),
    (pa.timestamp("us", "UTC"), [AWARE], []),
    (pa.timestamp("us", "UTC"), [NOON], ["noon"]),
    (pa.string(), ["a"], []),
    (pa.string(), [5, 6], []),
    (pa.bool_(), [True], [2]),
]


@pytest.mark.parametrize(("kind", "held", "not_held"), DECLARED, ids=lambda value: str(value)[:50])
def test_a_declared_type_holds_the_value_or_refuses_it(
    tmp_path: Path, kind: pa.DataType, held: list[Any], not_held: list[Any]
) -> None:
    table = Landing(tmp_path).table("t", ["id"], columns=pa.schema([("v", kind)]))
    for value in held:
        table.insert([{"id": 1, "v": None}, {"id": 2, "v": value}])
    for value in not_held:
        error = refused(table, [{"id": 1, "v": None}, {"id": 2, "v": value}])
        assert (error.code, error.row, error.column) == ("value-invalid", 2, "v"), value


ARROW: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([0.5, 1.555]), pa.decimal128(10, 2)),
    (pa.array([0.5, 0.123456789]), pa.float32()),
    (pa.array([D("1.00"), D("12345678901234567.89")]), pa.float64()),
    (pa.array([dt.datetime(2026, 1, 2), NOON]), pa.date32()),
    (pa.array([1, BIG]), pa.float64()),
    (pa.array([1, 2]), pa.bool_()),
    (pa.array([1.0, NAN]), INT64),
    (pa.array(["1", "x"]), INT64),
    (pa.array(["2026-01-02", "2026-13-02"]), pa.timestamp("us", "UTC")),
]


@pytest.mark.parametrize(("array", "kind"), ARROW, ids=lambda value: str(getattr(value, "type", value)))
def test_arrow_values_are_cast_exactly_or_refused(tmp_path: Path, array: pa.Array, kind: pa.DataType) -> None:
    table = Landing(tmp_path).table("t", columns=pa.schema([("v", kind)]))
    batches = [pa.record_batch({"v": array.slice(0, 1)}), pa.record_batch({"v": array})]
    error = refused(table, pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert (error.code, error.row, error.column) == ("value-invalid", 3, "v")


def test_numbers_that_arrow_s_own_cast_refuses() -> None:
    assert cast_exactly(pa.array([2**60, None]), pa.float64()).to_pylist() == [2.0**60, None]
    assert cast_exactly(pa.array([19.99]), pa.decimal128(10, 2)).to_pylist() == [D("19.99")]


ANY = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.decimals(allow_nan=True),
    st.text(max_size=5), st.binary(max_size=5), st.dates(), st.datetimes(), st.datetimes(timezones=st.just(UTC)),
    st.times(), st.uuids(), st.timedeltas(), st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)  # fmt: skip
KINDS = [
    None, pa.int16(), INT64, pa.float32(), pa.float64(), pa.decimal128(20, 5), pa.string(), pa.binary(), pa.bool_(),
    pa.date32(), pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.time64("us"),
]  # fmt: skip


@given(st.lists(ANY, max_size=4), st.sampled_from(KINDS))
@settings(max_examples=rounds(300, 3000), deadline=None)
def test_any_values_come_back_or_are_refused(values: list[Any], kind: pa.DataType | None) -> None:
    try:
        found = column(values, kind)
    except Refused as refused:
        assert 0 <= refused.place < len(values)
        return
    for value, back in zip(values, found.to_pylist(), strict=True):
        assert same(value, back, found.type), (value, back, found.type)


def test_a_number_far_below_the_last_digit_of_a_decimal_is_refused() -> None:
    kind = pa.decimal128(20, 5)
    for value in (2.106014391798533e-59, D("1e-80"), D("1." + "0" * 80 + "1")):
        with pytest.raises(Refused):
            column([value], kind)
    assert column([D("1." + "0" * 80), D("0e-90")], kind).to_pylist() == [D("1.00000"), D("0.00000")]


def same(value: Any, back: Any, kind: pa.DataType) -> bool:
    if isinstance(value, list | dict):
        return bool(json.loads(back) == value)
    if isinstance(value, float) and math.isnan(value):
        return isinstance(back, float) and math.isnan(back)
    if isinstance(value, D) and value.is_nan():
        return isinstance(back, float) and math.isnan(back)
    if isinstance(value, float) and isinstance(back, D):
        return D(repr(value)) == back
    if pa.types.is_float32(kind) and isinstance(value, float | D):
        return float(str(np.float32(back))) == float(value)
    if isinstance(value, D) and isinstance(back, float):
        return D(repr(back)) == value
    if isinstance(value, str) and not isinstance(back, str):
        return True  # a date or time as its text: parsed
    if isinstance(value, uuid.UUID) or (isinstance(value, dt.time) and isinstance(back, str)):
        return str(value) == back
    return bool(value == back) and isinstance(value, bool) == isinstance(back, bool)
