"""Arrow types that the contract does not map, converted as its section 6 says."""

from __future__ import annotations

import base64
import json
import math
import sys
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zoneless import NTZ, NoInstant, instants, zone_of

Convert = Callable[[pa.Array], pa.Array]


_DAY = 86_400_000_000  # microseconds
_YEARS = (-62_135_596_800_000_000, 253_402_300_799_999_999)  # 1 to 9999, in microseconds since 1970

t = pa.types


class _Nested(pa.ExtensionType):  # type: ignore[misc]
    """Lists and dicts of Python as the JSON text that they become."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "lakemirror.nested")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, data: bytes) -> _Nested:
        return cls()

    def __hash__(self) -> int:
        return hash(self.extension_name)

    def __str__(self) -> str:
        return "list or dict"


NESTED = _Nested()


class TypeWarning(UserWarning):
    """A column is published in another type than it was given in."""


class ColumnTypes:
    """The conversion of one table's columns; warns once per column and kind of change.

    `zoneless`: what times without a zone become, as the setting; empty: they stay as they are, and that is said.
    """

    def __init__(self, table: str, zoneless: str = "") -> None:
        self.table = table
        self.zoneless = zoneless
        self._warned: set[str] = set()

    def conform(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The same rows in types that the contract knows, all columns nullable, without columns of the null type.

        `type-unsupported` for a type that section 6 does not name and that has no plain form.
        """
        _check_names(reader.schema.names, self.table)
        kept: list[tuple[int, pa.Field, Convert | None]] = []
        for position, field in enumerate(reader.schema):
            if pa.types.is_null(field.type):
                continue
            _refuse_repeated_fields(field, self.table)
            target, convert, reason = self._place(field.type, field.name)
            if reason:
                self.warn(f"{self.table}: column {field.name} of type {field.type} is published as {reason}")
            if t.is_timestamp(target) and target.tz is None:
                target, convert = self._with_zone(target, convert, field.name)
            kept.append((position, pa.field(field.name, target), convert))
        schema = pa.schema([field for _, field, _ in kept])
        days = [place for place, field in enumerate(schema) if t.is_timestamp(field.type) or t.is_date32(field.type)]
        if schema.equals(reader.schema, check_metadata=True) and not days:
            return reader

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                arrays = [
                    batch.column(position) if convert is None else convert(batch.column(position))
                    for position, _, convert in kept
                ]
                for place in days:
                    self._look_at_years(arrays[place], schema.names[place])
                yield _batch(arrays, schema, batch.num_rows)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _place(self, kind: pa.DataType, column: str) -> tuple[pa.DataType, Convert | None, str]:
        """The type in the file, the conversion (None: unchanged), and the warning (empty: nothing is lost)."""
        placed = place(kind)
        if placed is None:
            raise LakemirrorError(
                "type-unsupported",
                f"{self.table}: column {column} has type {kind}, which change files cannot hold",
                table=self.table,
                column=column,
                hint="Publish the column in another type, such as a string or a number.",
            )
        return placed

    def _with_zone(self, kind: pa.DataType, convert: Convert | None, column: str) -> tuple[pa.DataType, Convert | None]:
        """How times without a zone are published."""
        if not self.zoneless:
            self.warn(f"{self.table}: {unsaid_zone(column)}")
        if self.zoneless in ("", NTZ):
            return kind, convert
        zone = zone_of(self.zoneless)
        return pa.timestamp("us", "UTC"), lambda array: as_instants(convert(array) if convert else array, zone, column)

    def _look_at_years(self, array: pa.Array, column: str) -> None:
        bounds = pc.min_max(array.cast(pa.timestamp("us")) if t.is_timestamp(array.type) else array)
        first, last = (
            pc.cast(bounds[name], pa.int64() if t.is_timestamp(array.type) else pa.int32()).as_py()
            for name in ("min", "max")
        )
        if first is None:
            return
        low, high = _YEARS if t.is_timestamp(array.type) else (each // _DAY for each in _YEARS)
        if first < low or last > high:
            self.warn(
                f"{self.table}: column {column} has values outside of the years 1 to 9999; they are published "
                "unchanged, and Python and readers that are built on it cannot show them"
            )

    def warn(self, message: str) -> None:
        """Warns once."""
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, TypeWarning, stacklevel=frames_to_user())


def place(kind: pa.DataType) -> tuple[pa.DataType, Convert | None, str] | None:
    """The mapping of a type (contract section 6): type in the file, conversion, warning. None: unsupported."""
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


def as_instants(values: pa.Array, zone: str, column: str) -> pa.Array:
    """Times without a zone as instants in UTC, in microseconds; `value-invalid` for one that does not occur there."""
    try:
        return instants(values.cast(pa.timestamp("us")), zone)
    except (NoInstant, pa.ArrowException) as error:
        hint = "Correct the value, or choose what such times become: zoneless, or --zoneless."
        raise LakemirrorError("value-invalid", f"column {column}: {error}", column=column, hint=hint) from error


def unsaid_zone(column: str) -> str:
    """What is said once about a column whose times have no zone, where nobody said what they mean."""
    return (
        f"column {column} has times without a zone, which a mirror reads as UTC by default. Say what they are with "
        "zoneless, or --zoneless: utc, ntz, or a zone such as Europe/Berlin"
    )


def named_type(text: str) -> pa.DataType:
    """The type a user names: `string`, `int64`, `double`, `date`, `timestamp`, `decimal(10,2)`, …; `input-invalid`."""
    named = {
        "text": pa.string(),
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
    if kind == NESTED:
        return pa.string(), lambda array: array.storage, "a JSON string"
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
    """`HH:MM:SS`, with six digits of fraction where there is one. Arrow has no text for a day's end, `24:00:00`."""
    micros = array.cast(pa.time64("us"), safe=False)
    numbers = micros.view(pa.int64())
    ends = pc.equal(numbers, _DAY)
    text = pc.if_else(ends, pa.scalar(0, pa.int64()), numbers).view(pa.time64("us")).cast(pa.string())
    return pc.if_else(ends, "24:00:00", pc.replace_substring_regex(text, r"\.000000$", ""))


def _uuid_text(storage: pa.Array) -> pa.Array:
    texts = [None if value is None else str(uuid.UUID(bytes=value)) for value in storage.to_pylist()]
    return pa.array(texts, pa.string())


def _json_text(array: pa.Array) -> pa.Array:
    kind = array.type
    return pa.array(
        [None if value is None else json_text(value, kind) for value in array.to_pylist()],
        pa.string(),
    )


def json_text(value: Any, kind: pa.DataType | None = None) -> str:
    """A value as JSON, without blanks. `kind`: its Arrow type, where it is no plain JSON value."""
    plain = value if kind is None else _plain(value, kind)
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value as JSON can hold it: maps as objects, lists and structs by their parts."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if value is not None and pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if value is not None and pa.types.is_map(kind):
        return {_key(key): _plain(item, kind.item_type) for key, item in value}
    if isinstance(value, list):
        return [_plain(item, kind.value_type) for item in value]
    return json_leaf(value)


def json_leaf(value: Any) -> Any:
    """A single value as JSON can hold it: bytes in base64, values without a JSON form as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key, default=str)


def _batch(arrays: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    # a batch without columns still has rows; nothing of it can be published
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["_"]).select([])


def frames_to_user() -> int:
    """How many calls are between `warn` and the code that uses the publisher."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("lakemirror.publisher"):
        frame, level = frame.f_back, level + 1
    return level


def _check_names(names: Iterable[str], table: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not name.strip() or "\0" in name:
            raise LakemirrorError(
                "column-name-invalid",
                f"{table}: a column is named {name!r}",
                table=table,
                column=name,
                hint="Give every column a name, without a zero byte.",
            )
        if (other := seen.get(name.lower())) is not None:
            raise LakemirrorError(
                "columns-ambiguous",
                f"{table}: columns {other} and {name} differ by no more than case"
                if other != name
                else f"{table}: the column {name} is there twice",
                table=table,
                column=name,
                hint="Rename one of the two columns.",
            )
        seen[name.lower()] = name


def _refuse_repeated_fields(column: pa.Field, table: str) -> None:
    """`columns-ambiguous` for a struct that has a name twice: its JSON would have it twice."""
    kinds = [column.type]
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, pa.BaseExtensionType):
            kinds.append(kind.storage_type)
        elif pa.types.is_nested(kind):
            fields = [kind.field(place) for place in range(kind.num_fields)]
            kinds += [field.type for field in fields]
            names = [field.name for field in fields]
            if pa.types.is_struct(kind) and len(set(names)) < len(names):
                raise LakemirrorError(
                    "columns-ambiguous",
                    f"{table}: column {column.name} of type {column.type} has a field twice",
                    table=table,
                    column=column.name,
                    hint="Rename one of the two fields.",
                )
