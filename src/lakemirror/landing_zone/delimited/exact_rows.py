"""The rows of delimited text by the exact reader, as columns of strings.

TableError `file-unreadable`, `value-invalid`, and for a header `columns-ambiguous`, `column-name-invalid`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakemirror.errors import TableError
from lakemirror.landing_zone.delimited.hints import hint_for_encoding, hint_for_name, hint_for_separator
from lakemirror.landing_zone.delimited.records import Record, RecordReader
from lakemirror.landing_zone.metadata import DelimitedFormat

_ROWS = 20_000  # in a batch


class ExactRows:
    """The rows that `reader` has not taken yet; `names` are those of the header."""

    def __init__(self, reader: RecordReader, names: Sequence[str], file: str, form: DelimitedFormat) -> None:
        self.names = names
        self._reader = reader
        self._file = file
        self._form = form

    def rows(self) -> Iterator[Record]:
        """The records, without the empty lines that are none."""
        for record in self._reader:
            if len(record.fields) > 1 or len(self.names) == 1 or record.fields[0] != (b"", False):
                yield record

    def columns(self, size: int) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
        """The rows that begin in the next `size` bytes: columns of strings, and the line on which each row begins."""
        rows: list[list[str | None]] = []
        lines: list[int] = []
        end = self._reader.taken + size
        for record in self.rows():
            if len(record.fields) != len(self.names):
                what = f"{len(record.fields)} fields where the header has {len(self.names)}"
                hint = hint_for_separator(self.names[0]) if len(self.names) == 1 else ""
                raise self._error("value-invalid", what, record, hint=hint)
            rows.append(self._texts(record))
            lines.append(record.line)
            if len(rows) >= _ROWS:
                yield self._batch(rows), lines
                rows, lines = [], []
            if self._reader.taken >= end:
                break
        if rows:
            yield self._batch(rows), lines

    def _texts(self, record: Record) -> list[str | None]:
        null = self._form.null_value
        found: list[str | None] = []
        for field, name in zip(record.fields, self.names, strict=True):
            text = _decoded(field.text, record, name, self._file)
            is_null = text == null if null is not None else not text and not field.quoted
            found.append(None if is_null else text)
        return found

    def _batch(self, rows: Sequence[Sequence[str | None]]) -> pa.RecordBatch:
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        return pa.RecordBatch.from_arrays(columns, names=self.names)

    def _error(self, code: str, what: str, record: Record, hint: str = "") -> TableError:
        return _error(code, what, record, self._file, hint=hint)


def header(reader: RecordReader, file: str, form: DelimitedFormat) -> list[str]:
    """The names of the columns, from the first record. TableError as the module's."""
    record = next(iter(reader), None)
    if record is None:
        raise TableError("file-unreadable", f"{file} holds no header", file=file)
    names = [_decoded(field.text, record, "the header", file) for field in record.fields]
    seen: dict[str, str] = {}
    for number, name in enumerate(names, start=1):
        hint = hint_for_name(name, form) if not record.fields[number - 1].quoted else ""
        if hint or not name.strip():
            what = f"is named {name[:100]!r}" if name.strip() else "has no name"
            message = f"{file}: column {number} of the header {what}"
            raise TableError("column-name-invalid", message, file=file, hint=hint or None)
        if name.lower() in seen:
            first = seen[name.lower()]
            message = f"{file}: the header names {first!r} and {name!r}"
            raise TableError("columns-ambiguous", message, file=file, column=name)
        seen[name.lower()] = name
    return names


def _decoded(text: bytes, record: Record, name: str, file: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"column {name}: {str(text[:100])[1:]} is not UTF-8"  # as Python writes bytes: 'M\\xfcller'
        raise _error("value-invalid", what, record, file, name, hint_for_encoding(text)) from error


def _error(code: str, what: str, record: Record, file: str, column: str | None = None, hint: str = "") -> TableError:
    message = f"{file}, line {record.line}: {what}"
    return TableError(code, message, file=file, row=record.line, column=column, hint=hint or None)
