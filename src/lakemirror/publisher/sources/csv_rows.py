"""Rows of CSV text: types of columns are found from their text, values as people write them are read as declared.

text ─▶ landing_zone.delimited, all as strings ─▶ text_types: a type for each column ─▶ the strings in these types
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa

from lakemirror.error_codes import CODES
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.column_types import table_type
from lakemirror.landing_zone.delimited import BadValue, TypedText, line_of, read_columns
from lakemirror.landing_zone.delimited.hints import hint_for_separator
from lakemirror.landing_zone.delimited.plain_values import looks_like
from lakemirror.landing_zone.metadata import DelimitedFormat, TableMetadata
from lakemirror.landing_zone.row_markers import ROW_MARKER
from lakemirror.landing_zone.zoneless import Zones
from lakemirror.publisher.declared_types import TypeWarning
from lakemirror.publisher.disk_rows import DiskParts
from lakemirror.publisher.sources.text_types import Choice, Guess, KnownTypes, first_lost, hint_for_another_type, shown


def read_csv(
    stream: IO[bytes], name: str, known: KnownTypes, form: DelimitedFormat, tell: Callable[[Choice], None]
) -> pa.RecordBatchReader:
    """The rows of CSV text. It is read once; `stream` can seek, for the line of a value that is refused.

    Each column's type is told before. Warns (TypeWarning) of columns that stay strings although their text looks like
    numbers or dates. `value-invalid` with line and column, `columns-ambiguous` and `column-name-invalid` for the
    header, `input-invalid` for text that cannot be read.
    """
    text = _Text(stream, name, form, known.zones)
    choices, batches = _choices(text, known)
    for choice in choices:
        tell(choice)
    schema = pa.schema([(each.column, each.kind) for each in choices])
    return pa.RecordBatchReader.from_batches(schema, text.typed(batches, schema))


@dataclass(frozen=True)
class _Text:
    """The text of one file, read by the landing zone's reader of delimited text."""

    stream: IO[bytes]
    name: str
    form: DelimitedFormat
    zones: Zones

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, all of them strings."""
        with self._errors():
            yield from read_columns(self.stream, file=self._file, metadata=self._metadata, undeclared="string")

    def typed(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The same rows in their types; `value-invalid` with line and column."""
        text = TypedText({each.name: table_type(each.type) or "string" for each in schema}, self.form, self.zones)
        row = 0
        for batch in batches:
            try:
                values = text.values(batch)
            except BadValue as bad:
                with self._errors():
                    raise text.error(bad, self._file, self.line_of(row + bad.place + 1)) from bad
            row += batch.num_rows
            arrays = [
                pa.nulls(batch.num_rows) if pa.types.is_null(field.type) else column.cast(field.type)
                for field, column in zip(schema, values.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def line_of(self, row: int) -> int:
        return line_of(self.stream, row, file=self._file, metadata=self._metadata)

    @property
    def _file(self) -> str:
        """The name without the suffix that tells of compression: the stream is not compressed any more."""
        return re.sub(r"\.(gz|zst|snappy)$", "", self.name)

    @property
    def _metadata(self) -> TableMetadata:
        return TableMetadata(file_format="CSV", delimited=self.form)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """What the reader says of a change file, said of a file to publish."""
        try:
            yield
        except LakemirrorError as error:
            code = "input-invalid" if error.code in ("file-unreadable", "file-too-large") else error.code
            raise LakemirrorError(
                code, error.message, hint=_hint(code, error), file=self.name, row=error.row, column=error.column
            ) from error


def _choices(text: _Text, known: KnownTypes) -> tuple[list[Choice], Iterable[pa.RecordBatch]]:
    """The type of each column, in the order of the header, and the rows; all were looked at, unless none needs it."""
    batches = text.batches()
    names = next(batches).schema.names
    columns = [name for name in names if name != ROW_MARKER]
    guesses = {name: Guess(text.form) for name in columns if known.of(name) is None}
    held = {name: kind for name in columns if not known.is_named(name) and (kind := known.of(name)) is not None}
    looks: dict[str, str] = {}
    looked_at, row = DiskParts(), 0
    for batch in batches if guesses or held else ():
        for name, kind in held.items():
            place = first_lost(batch[name], kind, text.form, is_key=known.is_key(name))
            if place >= 0:
                raise _does_not_come_back(text, row + place + 1, name, batch[name][place].as_py(), kind)
        for name, guess in guesses.items():
            guess.look_at(batch[name])
            if name not in looks:
                looks[name] = looks_like(batch[name].slice(0, 1000))
        looked_at.add(batch, batch.nbytes)
        row += batch.num_rows
    choices = [known.choice(name) or guesses[name].choice(name) for name in columns]
    if ROW_MARKER in names:
        choices.insert(names.index(ROW_MARKER), Choice(ROW_MARKER, pa.int32(), "row markers", guessed=False))
    _warn_of_text(choices, looks, text.form)
    return choices, looked_at if guesses or held else batches


def _does_not_come_back(text: _Text, row: int, column: str, value: str, kind: pa.DataType) -> LakemirrorError:
    line = text.line_of(row)
    return LakemirrorError(
        "value-invalid",
        f"{text.name}, line {line}, column {column}: {value[:100]!r} is not how {shown(kind)} is written, the type "
        "that was published before",
        hint=f"Correct the text; if its value counts and not how it is written, add --types {column}={shown(kind)}; or "
        "recreate the table.",
        file=text.name,
        row=line,
        column=column,
    )


def _warn_of_text(choices: Sequence[Choice], looks: Mapping[str, str], form: DelimitedFormat) -> None:
    given = {name for name, value in (("dateFormat", form.date_format), ("timestampFormat", form.timestamp_format),
             ("decimalSeparator", form.decimal_separator != "."), ("thousandsSeparator", form.thousands_separator))
             if value}  # fmt: skip
    if len(choices) == 1 and (hint := hint_for_separator(choices[0].column)):
        message = f"the header is one column, {choices[0].column!r}. {_as_option(hint)}"
        warnings.warn(message, TypeWarning, 4)
    for choice in choices:
        look = looks.get(choice.column, "") if pa.types.is_string(choice.kind) else ""
        if any(property in look for property in given):
            continue
        for property, option in _OPTIONS.items():
            look = look.replace(f"{property} ", f"{option} ").replace(f"{property}", option)
        if look:
            message = f"column {choice.column} is published as a string; its text looks like {look}"
            warnings.warn(message, TypeWarning, 4)


def _hint(code: str, error: LakemirrorError) -> str:
    """What a publisher can do about an error of the reader, whose own hint is for the mirror."""
    if code != "value-invalid" or error.hint != CODES[code].hint:
        return _HINTS.get(code) or _as_option(error.hint)
    if not error.column:
        return "Correct the line."
    return hint_for_another_type(error.column)


def _as_option(hint: str) -> str:
    """A hint to declare a property, as a hint to give an option."""
    found = re.findall(r'"(\w+)": "(.*?)"(?= and "| in )', hint)
    options = [f'{_OPTIONS[name]} "{value}"' for name, value in found if name in _OPTIONS]
    return f"Add {' '.join(options)}." if options else hint


_HINTS = {
    "columns-ambiguous": "Rename one of the two columns in the header.",
    "column-name-invalid": "Give every column a name in the header, without a zero byte.",
}
_OPTIONS = {
    "decimalSeparator": "--decimal",
    "thousandsSeparator": "--thousands",
    "dateFormat": "--date-format",
    "timestampFormat": "--timestamp-format",
    "columnSeparator": "--delimiter",
    "encoding": "--encoding",
}
