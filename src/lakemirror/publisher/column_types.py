"""Arrow types that the contract does not map, converted as its section 6 says."""

from __future__ import annotations

import base64
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.errors import LakemirrorError

Convert = Callable[[pa.Array], pa.Array]


class TypeWarning(UserWarning):
    """A column is published in another type than it was given in."""


class ColumnTypes:
    """The conversion of one table's columns; warns once per column and kind of change."""

    def __init__(self, table: str) -> None:
        self.table = table
        self._warned: set[str] = set()

    def conform(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The same rows in types that the contract knows, all columns nullable, without columns of the null type.

        `type-unsupported` for a type that section 6 does not name and that has no plain form.
        """
        _refuse_ambiguous(reader.schema.names, self.table)
        kept: list[tuple[int, pa.Field, Convert | None]] = []
        for position, field in enumerate(reader.schema):
            if pa.types.is_null(field.type):
                continue
            target, convert, reason = self._place(field.type, field.name)
            if reason:
                self.warn(f"{self.table}: column {field.name} of type {field.type} is published as {reason}")
            kept.append((position, pa.field(field.name, target), convert))
        schema = pa.schema([field for _, field, _ in kept])
        if schema.equals(reader.schema, check_metadata=True):
            return reader

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                arrays = [
                    batch.column(position) if convert is None else convert(batch.column(position))
                    for position, _, convert in kept
                ]
                yield _batch(arrays, schema, batch.num_rows)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _place(self, kind: pa.DataType, column: str) -> tuple[pa.DataType, Convert | None, str]:
        """The type in the file, the conversion (None: unchanged), and the warning (empty: nothing is lost)."""
        placed = place(kind)
        if placed is None:
            raise LakemirrorError(
                "type-unsupported",
                f"{self.table}: column {column} has type {kind}, which change files have no place for",
                table=self.table,
                column=column,
                hint="Publish the column in another type, such as a string or a number.",
            )
        return placed

    def warn(self, message: str) -> None:
        """Warns once."""
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, TypeWarning, stacklevel=_frames_to_user())


def place(kind: pa.DataType) -> tuple[pa.DataType, Convert | None, str] | None:
    """The mapping of a type (contract section 6): type in the file, conversion, warning. None: unsupported."""
    t = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _place_extension(kind)
    if t.is_dictionary(kind):
        return _place_dictionary(kind)
    if t.is_run_end_encoded(kind):
        return _through(kind.value_type, pc.run_end_decode)
    if t.is_boolean(kind) or t.is_integer(kind) or t.is_float32(kind) or t.is_float64(kind) or t.is_date32(kind):
        return kind, None, ""
    if t.is_string(kind) or t.is_binary(kind) or kind == pa.large_string() or kind == pa.large_binary():
        return kind, None, ""
    if t.is_float16(kind):
        return _cast(pa.float32(), "")
    if t.is_date64(kind):
        return _cast(pa.date32(), "")
    if t.is_decimal(kind):
        return _place_decimal(kind)
    if t.is_timestamp(kind):
        if kind.unit == "ns":
            return _cast(pa.timestamp("us", kind.tz), "a timestamp in microseconds: what is finer is cut off")
        return (kind, None, "") if kind.unit != "s" else _cast(pa.timestamp("ms", kind.tz), "")
    if t.is_time(kind):
        return pa.string(), _time_text, "a string HH:MM:SS[.ffffff]"
    if t.is_duration(kind):
        return _cast(pa.int64(), f"a whole number ({kind.unit})")
    if t.is_fixed_size_binary(kind):
        return _cast(pa.binary(), "")
    if t.is_string_view(kind):
        return pa.string(), lambda array: _without_views(array, pa.string()), ""
    if t.is_binary_view(kind):
        return pa.binary(), lambda array: _without_views(array, pa.binary()), ""
    if t.is_nested(kind) and not t.is_union(kind):
        return pa.string(), _json_text, "a JSON string"
    return None


def named_type(text: str) -> pa.DataType:
    """The type a user names: `string`, `int64`, `double`, `date`, `timestamp`, `decimal(10,2)`, …; `input-invalid`."""
    named = {
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "smallint": pa.int16(),
        "boolean": pa.bool_(),
    }
    word = text.strip().lower()
    if word in named:
        return named[word]
    try:
        if word.startswith("decimal(") and word.endswith(")"):
            precision, _, scale = word[len("decimal(") : -1].partition(",")
            return pa.decimal128(int(precision), int(scale or 0))
        return pa.type_for_alias(word)
    except (ValueError, pa.ArrowException) as error:
        raise LakemirrorError(
            "input-invalid",
            f"{text!r} is no type",
            hint="Types: string, boolean, int16, int32, int64, float, double, decimal(p,s), date, timestamp, binary.",
        ) from error


def _through(inner: pa.DataType, decode: Convert) -> tuple[pa.DataType, Convert | None, str] | None:
    placed = place(inner)
    if placed is None:
        return None
    target, convert, reason = placed
    return target, decode if convert is None else lambda array: convert(decode(array)), reason


def _place_dictionary(kind: Any) -> tuple[pa.DataType, Convert | None, str] | None:
    placed = place(kind.value_type)
    if placed is None:
        return None
    target, convert, reason = placed
    # the values first: there are fewer of them, and Arrow cannot decode views
    return (
        target,
        lambda array: (convert(array.dictionary) if convert else array.dictionary).take(array.indices),
        reason,
    )


def _place_extension(kind: Any) -> tuple[pa.DataType, Convert | None, str] | None:
    if kind.extension_name == "arrow.uuid":
        return pa.string(), lambda array: _uuid_text(array.storage), ""
    if kind.extension_name == "arrow.bool8":
        return pa.bool_(), lambda array: array.storage.cast(pa.bool_()), ""
    return _through(kind.storage_type, lambda array: array.storage)


def _place_decimal(kind: Any) -> tuple[pa.DataType, Convert | None, str] | None:
    precision, scale = max(kind.precision, kind.scale), kind.scale
    if scale < 0:  # Parquet has no negative scale
        precision, scale = precision - scale, 0
    if precision > 38:
        return None
    target = pa.decimal128(precision, scale)
    return (kind, None, "") if kind == target else _cast(target, "")


def _cast(target: pa.DataType, reason: str) -> tuple[pa.DataType, Convert | None, str]:
    return target, lambda array: array.cast(target, safe=False), reason


def _without_views(array: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return array.cast(target)
    except pa.ArrowNotImplementedError:  # an older pyarrow
        return pa.array(array.to_pylist(), target)


def _time_text(array: pa.Array) -> pa.Array:
    """`HH:MM:SS`, with six digits of fraction where there is one."""
    micros = array.cast(pa.time64("us"), safe=False)
    return pc.replace_substring_regex(micros.cast(pa.string()), r"\.000000$", "")


def _uuid_text(storage: pa.Array) -> pa.Array:
    def text(value: bytes | None) -> str | None:
        if value is None:
            return None
        digits = value.hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    return pa.array([text(value) for value in storage.to_pylist()], pa.string())


def _json_text(array: pa.Array) -> pa.Array:
    kind = array.type
    return pa.array(
        [
            None if value is None else json.dumps(_plain(value, kind), ensure_ascii=False, separators=(",", ":"))
            for value in array.to_pylist()
        ],
        pa.string(),
    )


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value as JSON can hold it: maps as objects, bytes in base64, values without a JSON form as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {_key(key): _plain(item, kind.item_type) for key, item in value}
    if isinstance(value, list):
        return [_plain(item, kind.value_type) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key, default=str)


def _batch(arrays: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    # a batch without columns still has rows; nothing of it can be published
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["_"]).select([])


def _frames_to_user() -> int:
    """How many calls are between `warn` and the code that uses the publisher."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("lakemirror.publisher"):
        frame, level = frame.f_back, level + 1
    return level


def _refuse_ambiguous(names: Iterable[str], table: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other is not name:
            raise LakemirrorError(
                "columns-ambiguous",
                f"{table}: columns {other} and {name} differ by no more than case",
                table=table,
                column=name,
                hint="Rename one of the two columns.",
            )
