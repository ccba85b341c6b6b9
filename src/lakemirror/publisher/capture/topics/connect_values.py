"""Columns of a topic, as the schema in its messages names them: Debezium's and Kafka Connect's types, exactly.

    schema of a message (JSON) ─▶ columns ─▶ values of JSON ─▶ values as a database's capture gives them

Values are kept exactly, or refused. A schema is needed: without one, numbers are guesses.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.errors import TableError
from lakemirror.publisher.capture.envelope import EventColumn

_NUMBERS = {
    "int8": pa.int16(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "float": pa.float32(), "float32": pa.float32(), "double": pa.float64(), "float64": pa.float64(),
}  # fmt: skip
_RAW = {"boolean": pa.bool_(), "float": pa.float64(), "float32": pa.float64(), "double": pa.float64()}
_MICROSECOND = dt.timedelta(microseconds=1)
_SHIFTS = {"Timestamp": 1000, "MicroTimestamp": 1, "Time": 1000, "MicroTime": 1}  # to microseconds

Convert = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class TopicColumn:
    """A column: its name, the Arrow type of its values, how JSON has them, and how they are converted."""

    name: str
    arrow_type: pa.DataType
    event: EventColumn
    from_event: Convert


def columns_of(schema: Mapping[str, Any], table: str) -> tuple[TopicColumn, ...]:
    """The columns of an envelope's schema. TableError `capture-value` where it is no envelope, `type-unsupported`."""
    sides = {each.get("field"): each for each in schema.get("fields") or () if isinstance(each, Mapping)}
    row = sides.get("after")
    if row is None or "op" not in sides:
        raise TableError(
            "capture-value",
            f"{table}: its messages are no envelopes of Debezium",
            table=table,
            hint="Let Debezium write whole envelopes, without ExtractNewRecordState.",
        )
    return tuple(_column(field, table) for field in row.get("fields") or ())


def key_columns(key: bytes | None) -> tuple[str, ...]:
    """The names of the key columns, from the key of a message; none where it has no key."""
    content = json.loads(key) if key else None
    if not isinstance(content, dict):
        return ()
    schema = content.get("schema")
    if isinstance(schema, dict) and "payload" in content:
        return tuple(field["field"] for field in schema.get("fields") or ())
    return tuple(content)


def _column(field: Mapping[str, Any], table: str) -> TopicColumn:
    name, kind, meaning = field["field"], field["type"], str(field.get("name") or "")
    short = meaning.rpartition(".")[2]
    column = partial(_made, name, table)
    if short == "Decimal":
        parameters = field.get("parameters") or {}
        scale = int(parameters.get("scale", 0))
        type_ = pa.decimal128(min(38, int(parameters.get("connect.decimal.precision", 38))), scale)
        return column(type_, pa.string(), partial(_each, type_, partial(_decimal, scale)))
    if short == "VariableScaleDecimal":
        raw = pa.struct([("scale", pa.int64()), ("value", pa.string())])
        return column(pa.string(), raw, partial(_each, pa.string(), _variable_decimal))
    if short == "Date" and kind == "int32":
        return column(pa.date32(), pa.int64(), lambda values: values.cast(pa.int32()).cast(pa.date32()))
    if short in ("Timestamp", "MicroTimestamp", "NanoTimestamp") and kind == "int64":
        return column(pa.timestamp("us"), pa.int64(), partial(_timestamps, _SHIFTS.get(short, 0)))
    if short == "ZonedTimestamp":
        type_ = pa.timestamp("us", "UTC")
        return column(type_, pa.string(), partial(_each, type_, _instant))
    if short in ("Time", "MicroTime", "NanoTime") and kind in ("int32", "int64"):
        return column(pa.string(), pa.int64(), partial(_each, pa.string(), partial(_time, short)))
    if kind == "bytes":
        return column(pa.binary(), pa.string(), partial(_each, pa.binary(), base64.b64decode))
    if kind in _NUMBERS:
        type_ = _NUMBERS[kind]
        return column(type_, _RAW.get(kind, pa.int64()), lambda values: values.cast(type_))
    if kind == "boolean":
        return column(pa.bool_(), pa.bool_(), lambda values: values)
    if kind == "string":
        return column(pa.string(), pa.string(), lambda values: values)
    if kind == "array" and (field.get("items") or {}).get("type") == "string":
        return column(pa.list_(pa.string()), pa.list_(pa.string()), lambda values: values)
    message = f"{table}: column {name} has the type {meaning or kind}, which is not captured from topics"
    raise TableError("type-unsupported", message, table=table, column=name)


def _made(name: str, table: str, type_: pa.DataType, raw: pa.DataType, convert: Convert) -> TopicColumn:
    def checked(values: pa.Array) -> pa.Array:
        try:
            return convert(values)
        except (pa.ArrowException, ValueError, ArithmeticError, OverflowError, KeyError) as error:
            message = f"{table}: a value of column {name} is no {type_}: {str(error)[:200]}"
            raise TableError("capture-value", message, table=table, column=name) from error

    return TopicColumn(name, type_, EventColumn(name, raw), checked)


def _each(type_: pa.DataType, convert: Callable[[Any], Any], values: pa.Array) -> pa.Array:
    return pa.array([None if value is None else convert(value) for value in values.to_pylist()], type_)


def _decimal(scale: int, text: str) -> Decimal:
    """The big-endian bytes of a number without its scale, in Base64; or the number as text."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return Decimal(text)
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale)


def _variable_decimal(value: Mapping[str, Any]) -> str:
    number = int.from_bytes(base64.b64decode(value["value"]), "big", signed=True)
    digits = (0 if number >= 0 else 1, tuple(int(digit) for digit in str(abs(number))), -int(value["scale"]))
    return format(Decimal(digits), "f")


def _timestamps(shift: int, values: pa.Array) -> pa.Array:
    """Milliseconds, microseconds, or (0) nanoseconds, which must be whole microseconds: exact or refused."""
    if shift:
        return pc.multiply_checked(values, shift).cast(pa.timestamp("us"))
    return values.cast(pa.timestamp("ns")).cast(pa.timestamp("us"))


def _instant(text: str) -> dt.datetime:
    whole = dt.datetime.fromisoformat(text.replace("Z", "+00:00") if "." not in text else _six_digits(text))
    if whole.tzinfo is None:
        raise ValueError(f"{text} has no zone")
    return whole


def _six_digits(text: str) -> str:
    """ISO text whose fraction of a second has six digits, as Python before 3.11 reads it; ValueError for finer ones."""
    before, _, rest = text.partition(".")
    digits = rest[: next((at for at, mark in enumerate(rest) if not mark.isdigit()), len(rest))]
    if digits[6:].strip("0"):
        raise ValueError(f"{text} is finer than a microsecond")
    zone = rest[len(digits) :].replace("Z", "+00:00")
    return f"{before}.{digits[:6]:0<6}{zone}"


def _time(kind: str, value: int) -> str:
    if kind == "NanoTime" and value % 1000:
        raise ValueError(f"{value} ns are finer than a microsecond")
    microseconds = value * _SHIFTS[kind] if kind in _SHIFTS else value // 1000
    seconds, fraction = divmod(microseconds, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}" if fraction else text
