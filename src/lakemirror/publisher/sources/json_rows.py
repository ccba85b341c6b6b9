"""Rows of JSON lines, or of one array of objects: numbers are read as their text, nothing goes through floating point.

    lines ─▶ objects, numbers as text ─▶ a type for each column ─▶ columns

A JSON string stays a string, whatever it looks like. A field that is null and one that is absent are both NULL. Objects
and arrays in a field are its JSON text, in which the two stay different.
"""

from __future__ import annotations

import itertools
import json
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
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
TOGETHER = 500  # lines that are decoded by one call
NUMBER, STRING, TRUTH, NESTED = "numbers", "strings", "true and false", "objects and arrays"

_KINDS: dict[type, str] = {bytes: NUMBER, str: STRING, bool: TRUTH, dict: NESTED, list: NESTED}


class _Part(NamedTuple):
    """Some rows as columns of text, truth values apart, and the line of each row."""

    lines: Sequence[int]
    columns: dict[str, pa.Array]


def read_json_lines(
    stream: IO[bytes], name: str, known: KnownTypes, tell: Callable[[Choice], None]
) -> pa.RecordBatchReader:
    """The rows; each column's type is told before. Memory is bounded, except for one array of objects.

    `input-invalid`, `columns-ambiguous` and `value-invalid` name the line; `type-changed` for values of another kind
    than were published before.
    """
    parts, columns = DiskParts(), _Columns(name, known)
    for lines, rows in _objects(stream, name):
        names = dict.fromkeys(itertools.chain.from_iterable(rows))
        part = {name: columns.texts(name, [row.get(name) for row in rows], lines) for name in names}
        parts.add(_Part(lines, part), sum(texts.nbytes for texts in part.values()))
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

    def texts(self, column: str, values: list[Any], lines: Sequence[int]) -> pa.Array:
        """The values as text, or as truth values, looked at for the column's type."""
        kinds = {_KINDS[each] for each in set(map(type, values)) - {type(None)}}
        type_ = self._known.of(column)
        is_held = type_ is not None and not self._known.is_named(column)
        self._kinds.setdefault(column, "")
        if not self._known.is_named(column):
            if kinds and not self._kinds[column]:
                self._kinds[column] = _KINDS[type(next(value for value in values if value is not None))]
            if kinds - {self._kinds[column]}:
                raise self._other_kind(column, values, lines, {self._kinds[column]}, None)
        if is_held and kinds - _fitting(type_):
            raise self._other_kind(column, values, lines, _fitting(type_), type_)
        try:
            texts = _as_texts(values, kinds, is_json=type_ is not None and pa.types.is_nested(type_))
        except (UnicodeError, RecursionError) as error:
            raise self._error("value-invalid", str(error), column, lines[_unwritable(values)]) from error
        if is_held and texts.type == pa.string():
            place = first_lost(texts, type_, is_key=self._known.is_key(column))
            if place >= 0:
                raise self._refused(BadValue(place, texts[place].as_py()), column, type_, lines)
        if type_ is None and self._kinds[column] == NUMBER:
            self._guesses.setdefault(column, Guess()).look_at(texts)
        return texts

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
                self._array(columns[field.name], field, lines)
                if field.name in columns
                else pa.nulls(len(lines), field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, texts: pa.Array, field: pa.Field, lines: Sequence[int]) -> pa.Array:
        """The values of a column in its type."""
        if texts.null_count == len(texts):
            return pa.nulls(len(texts), field.type)
        if texts.type == field.type:
            return texts
        if pa.types.is_nested(field.type):
            return pa.array([None if text is None else json.loads(text) for text in texts.to_pylist()], field.type)
        texts = texts.cast(pa.string())
        try:
            if (place := texts.index("").as_py()) >= 0:  # which text as delimited would take for NULL
                raise BadValue(place, "")
            kind = table_type(field.type) or "string"
            return converted_as_written(texts, kind, PLAIN, field.name, self._known.zones).cast(field.type)
        except BadValue as bad:
            raise self._refused(bad, field.name, field.type, lines) from bad

    def _refused(self, bad: BadValue, column: str, kind: pa.DataType, lines: Sequence[int]) -> LakemirrorError:
        what = f"{bad.text[:100]!r} {bad.why or f'is not {shown(kind)}'}"
        return self._error("value-invalid", what, column, lines[bad.place], hint_for_another_type(column))

    def _other_kind(
        self, column: str, values: list[Any], lines: Sequence[int], kinds: Collection[str], before: pa.DataType | None
    ) -> LakemirrorError:
        """The error of the first value that is of none of these kinds. `before`: the type that was published before."""
        found = ((line, _KINDS[type(value)]) for value, line in zip(values, lines, strict=True) if value is not None)
        line, kind = next((line, kind) for line, kind in found if kind not in kinds)
        if before is None:
            hint = f"Correct the value, or publish the column as text: --types {column}=text."
            what = f"the column holds {self._kinds[column]} and {kind}"
            return self._error("value-invalid", what, column, line, hint)
        hint = f"Publish values of the former type, name one with --types {column}=TYPE, or recreate the table."
        what = f"the column was published as {shown(before)}, now it holds {kind}"
        return self._error("type-changed", what, column, line, hint)

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


def _as_texts(values: list[Any], kinds: set[str], is_json: bool) -> pa.Array:
    """The values as text; as truth values where all are. `is_json`: also a string becomes its JSON."""
    if kinds == {TRUTH} and not is_json:
        return pa.array(values, pa.bool_())
    if is_json or kinds - {STRING, NUMBER}:
        plain = (type(None),) if is_json else (str, bytes, type(None))
        values = [value if type(value) in plain else _text(value) for value in values]
    return pa.array(values, pa.string())


def _objects(stream: IO[bytes], name: str) -> Iterator[tuple[Sequence[int], list[dict[str, Any]]]]:
    """Objects, some at a time, and the line of each; those of an array have their number in it."""
    for lines, values in _values(stream, name):
        if set(map(type, values)) != {dict}:
            line = next(line for line, value in zip(lines, values, strict=True) if type(value) is not dict)
            raise LakemirrorError("input-invalid", f"{name}: line {line} holds no JSON object", row=line)
        yield lines, values


def _values(stream: IO[bytes], name: str) -> Iterator[tuple[Sequence[int], list[Any]]]:
    texts = ((number, text) for number, line in enumerate(stream, start=1) if (text := _stripped(line, number)))
    first = next(texts, None)
    if first is not None and first[1].startswith(b"["):
        found = _decoded([(first[0], first[1] + stream.read())], name)[0]
        for begin in range(0, len(found), ROWS):
            some = found[begin : begin + ROWS]
            yield range(begin + 1, begin + 1 + len(some)), some
        return
    rest = itertools.chain([first] if first is not None else [], texts)
    numbers: list[int] = []
    values: list[Any] = []
    while chunk := list(itertools.islice(rest, min(ROWS, TOGETHER))):
        numbers += [number for number, _ in chunk]
        values += _decoded(chunk, name)
        if len(values) >= ROWS:
            yield numbers, values
            numbers, values = [], []
    if values:
        yield numbers, values


def _stripped(line: bytes, number: int) -> bytes:
    return (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()


def _decoded(lines: Sequence[tuple[int, bytes]], name: str) -> list[Any]:
    """The JSON value of each line, which has its number. `input-invalid`, `columns-ambiguous`."""
    with suppress(ValueError, RecursionError, _Ambiguous):
        return _decoded_together([text for _, text in lines])
    found = []
    for number, text in lines:
        try:
            found.append(_DECODER.decode(text.decode("utf-8")))
        except _Ambiguous as error:
            raise LakemirrorError(
                "columns-ambiguous", f"{name}: line {number}: an object has the name {str(error)!r} twice", file=name,
                row=number, column=str(error), hint="Give each name once in an object.",
            ) from error  # fmt: skip
        except (ValueError, RecursionError) as error:
            raise LakemirrorError("input-invalid", f"{name}: line {number}: {error}", file=name, row=number) from error
    return found


def _decoded_together(lines: Sequence[bytes]) -> list[Any]:
    """The same by one call, three times as fast; ValueError where a line is not one JSON value by itself.

    Between the lines is a string that no line has. Where all of these strings come back in their places, no value
    goes beyond its line.
    """
    found: list[Any] = _DECODER.decode("[" + _BETWEEN_LINES.join(line.decode("utf-8") for line in lines) + "]")
    if len(found) != 2 * len(lines) - 1 or found[1::2].count(_NO_LINE) != len(lines) - 1:
        raise ValueError("a line is no JSON value")
    return found[::2]


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


_NO_LINE = uuid.uuid4().hex
_BETWEEN_LINES = f',"{_NO_LINE}",'
_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=str.encode, parse_int=str.encode, parse_constant=str.encode
)  # fmt: skip
