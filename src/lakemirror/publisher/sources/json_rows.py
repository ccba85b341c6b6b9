"""Rows of JSON lines, or of one array of objects: numbers are read as their text, nothing goes through floating point.

    lines ─▶ objects, numbers as text ─▶ a type for each column ─▶ columns

A JSON string stays a string, whatever it looks like. A field that is null and one that is absent are both NULL. Objects
and arrays in a field are its JSON text, in which the two stay different.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.column_types import table_type
from lakemirror.landing_zone.delimited.plain_values import converted_as_written
from lakemirror.landing_zone.delimited.values import BadValue
from lakemirror.publisher.declared_types import TypeWarning
from lakemirror.publisher.disk_rows import DiskParts
from lakemirror.publisher.sources.text_types import (
    PLAIN,
    Choice,
    Guess,
    KnownTypes,
    first_lost,
    hint_for_another_type,
    shown,
)

ROWS = 20_000  # in a part
NUMBER, STRING, TRUTH, NESTED = "numbers", "strings", "true and false", "objects and arrays"

_KINDS: dict[type, str] = {bytes: NUMBER, str: STRING, bool: TRUTH, dict: NESTED, list: NESTED}


class _Part(NamedTuple):
    """Some rows as columns, and the line of each; numbers are their text as bytes."""

    lines: list[int]
    columns: dict[str, list[Any]]


def read_json_lines(
    stream: IO[bytes], name: str, known: KnownTypes, tell: Callable[[Choice], None]
) -> pa.RecordBatchReader:
    """The rows; each column's type is told before. Memory is bounded, except for one array of objects.

    `input-invalid`, `columns-ambiguous` and `value-invalid` name the line; `type-changed` for values of another kind
    than were published before.
    """
    parts, columns = DiskParts(), _Columns(name, known)
    found = _objects(stream, name)
    while chunk := list(itertools.islice(found, ROWS)):
        names = dict.fromkeys(itertools.chain.from_iterable(row for _, row in chunk))
        part = _Part([line for line, _ in chunk], {name: [row.get(name) for _, row in chunk] for name in names})
        columns.look_at(part)
        parts.add(part)
    choices = columns.choices()
    for choice in choices:
        tell(choice)
    schema = pa.schema([(each.column, each.kind) for each in choices])
    return pa.RecordBatchReader.from_batches(schema, columns.batches(parts, schema))


class _Columns:
    """The columns of one input, in the order in which they appear."""

    def __init__(self, name: str, known: KnownTypes) -> None:
        self._name = name
        self._known = known
        self._guesses: dict[str, Guess] = {}
        self._kinds: dict[str, str] = {}  # what the values of a column are, empty while all are NULL

    def look_at(self, part: _Part) -> None:
        for column, values in part.columns.items():
            self._kinds.setdefault(column, "")
            if not self._known.is_named(column):
                self._look_at_column(column, values, part.lines)

    def _look_at_column(self, column: str, values: list[Any], lines: list[int]) -> None:
        kinds = {_KINDS[each] for each in set(map(type, values)) - {type(None)}}
        if kinds and not self._kinds[column]:
            self._kinds[column] = _KINDS[type(next(value for value in values if value is not None))]
        if kinds - {self._kinds[column]}:
            raise self._several_kinds(column, values, lines)
        if self._kinds[column] == NUMBER and self._known.of(column) is None:
            self._guesses.setdefault(column, Guess()).look_at(pa.array(values, pa.string()))

    def choices(self) -> list[Choice]:
        return [self._known.choice(column) or self._guessed(column) for column in self._kinds]

    def _guessed(self, column: str) -> Choice:
        kind = self._kinds[column]
        if kind == NUMBER:
            return self._guesses[column].choice(column)
        if kind == NESTED:
            warnings.warn(f"column {column} of {kind} is published as a JSON string", TypeWarning, 5)
            return Choice(column, pa.string(), "objects and arrays as JSON")
        types = {STRING: pa.string(), TRUTH: pa.bool_(), "": pa.null()}
        return Choice(column, types[kind], kind or "no value yet")

    def batches(self, parts: Iterable[_Part], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for lines, columns in parts:
            arrays = [
                self._array(field, columns[field.name], lines)
                if field.name in columns
                else pa.nulls(len(lines), field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, field: pa.Field, values: list[Any], lines: list[int]) -> pa.Array:
        kinds = {_KINDS[each] for each in set(map(type, values)) - {type(None)}}
        if not kinds:
            return pa.nulls(len(values), field.type)
        if kinds == {TRUTH} and pa.types.is_boolean(field.type):
            return pa.array(values, field.type)
        guessed, named = self._known.of(field.name) is None, self._known.is_named(field.name)
        if not guessed and not named:
            for kind in kinds - _fitting(field.type):
                raise self._changed(field, kind, values, lines)
        if pa.types.is_nested(field.type):
            return pa.array([None if value is None else json.loads(_text(value)) for value in values], field.type)
        if kinds - {STRING, NUMBER}:
            values = [value if type(value) in (str, bytes, type(None)) else _text(value) for value in values]
        try:
            texts = pa.array(values, pa.string())
            place = -1 if guessed or named else first_lost(texts, field.type, is_key=self._known.is_key(field.name))
            if place < 0 and field.type != pa.string():
                place = texts.index("").as_py()  # which text as delimited would take for NULL
            if place >= 0:
                raise BadValue(place, texts[place].as_py())
            kind = table_type(field.type) or "string"
            return converted_as_written(texts, kind, PLAIN, field.name, self._known.zones).cast(field.type)
        except BadValue as bad:
            hint = hint_for_another_type(field.name)
            what = f"{bad.text[:100]!r} {bad.why or f'is not {shown(field.type)}'}"
            raise self._error("value-invalid", what, field.name, lines[bad.place], hint) from bad
        except (UnicodeError, RecursionError) as error:
            raise self._error("value-invalid", str(error), field.name, lines[_unwritable(values)]) from error

    def _several_kinds(self, column: str, values: list[Any], lines: list[int]) -> LakemirrorError:
        before = self._kinds[column]
        line, kind = next(
            (line, _KINDS[type(value)])
            for value, line in zip(values, lines, strict=True)
            if value is not None and _KINDS[type(value)] != before
        )
        return self._error(
            "value-invalid",
            f"the column holds {before} and {kind}",
            column,
            line,
            f"Correct the value, or publish the column as text: --types {column}=text.",
        )

    def _changed(self, field: pa.Field, kind: str, values: list[Any], lines: list[int]) -> LakemirrorError:
        line = next(
            line for value, line in zip(values, lines, strict=True) if value is not None and _KINDS[type(value)] == kind
        )
        return self._error(
            "type-changed",
            f"the column was published as {shown(field.type)}, now it holds {kind}",
            field.name,
            line,
            f"Publish values of the former type, name one with --types {field.name}=TYPE, or recreate the table.",
        )

    def _error(self, code: str, what: str, column: str, line: int, hint: str | None = None) -> LakemirrorError:
        return LakemirrorError(
            code, f"{self._name}, line {line}, column {column}: {what}", file=self._name, row=line, column=column,
            hint=hint,
        )  # fmt: skip


def _fitting(kind: pa.DataType) -> set[str]:
    """What JSON values a column may get that was published in this type before."""
    t = pa.types
    if t.is_string(kind) or t.is_large_string(kind):
        return {STRING, NUMBER, NESTED}  # numbers that no type gives back are text, too
    if t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind):
        return {NUMBER}
    return {TRUTH} if t.is_boolean(kind) else {STRING}


def _objects(stream: IO[bytes], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each object with its line; those of an array have their number in it."""
    is_begun = False
    for number, line in enumerate(iter(stream.readline, b""), start=1):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not text.strip():
            continue
        is_array = not is_begun and text.lstrip().startswith(b"[")
        is_begun = True
        try:
            found = _decoded((text + stream.read() if is_array else text).strip().decode("utf-8"))
        except _Ambiguous as error:
            raise LakemirrorError(
                "columns-ambiguous", f"{name}: line {number}: an object has the name {str(error)!r} twice", file=name,
                row=number, column=str(error), hint="Give each name once in an object.",
            ) from error  # fmt: skip
        except (ValueError, RecursionError) as error:
            raise LakemirrorError("input-invalid", f"{name}: line {number}: {error}", file=name, row=number) from error
        for place, each in enumerate(found if is_array else [found], start=1):
            if not isinstance(each, dict):
                raise LakemirrorError("input-invalid", f"{name}: line {number} holds no JSON object", row=number)
            yield (place if is_array else number), each


def _decoded(text: str) -> Any:
    """The JSON value that the text is. ValueError, RecursionError."""
    found, end = _DECODER.raw_decode(text)
    if end != len(text):
        raise ValueError(f"text behind the JSON value, at character {end + 1}")
    return found


class _Ambiguous(Exception):
    """A name that an object has twice."""


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _Ambiguous(next(name for name in names if names.count(name) > 1))
    return found


def _text(value: Any) -> str:
    """A value's JSON, its numbers as they were written."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(name)}:{_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return _quoted(value)


def _quoted(value: str | bool | None) -> str:
    return json.dumps(value, ensure_ascii=False)


def _unwritable(values: Sequence[Any]) -> int:
    """The place of the first value that is no text in UTF-8: half of a surrogate pair."""
    for place, value in enumerate(values):
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeError:
                return place
    return 0


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=str.encode, parse_int=str.encode, parse_constant=str.encode
)  # fmt: skip

__all__ = ["read_json_lines"]
