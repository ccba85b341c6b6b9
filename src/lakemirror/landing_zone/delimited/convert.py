"""One delimited file as one Parquet file, row by row in its order, with bounded memory."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import TableError
from lakemirror.landing_zone.delimited.fast_reader import Inexact, parsed, whole_rows
from lakemirror.landing_zone.delimited.hints import (
    hint_for_encoding,
    hint_for_separator,
    hint_for_value,
    separator_line,
)
from lakemirror.landing_zone.delimited.plain_values import converted_as_written, looks_like
from lakemirror.landing_zone.delimited.records import Record, RecordReader
from lakemirror.landing_zone.delimited.text_source import utf8_blocks
from lakemirror.landing_zone.delimited.values import BadValue, arrow_type
from lakemirror.landing_zone.metadata import ROW_MARKER, DelimitedFormat, TableMetadata, Warned

_ROWS = 20_000  # that the exact reader gathers
_THREADS = 2
_GROUP_BYTES = 64 * 1024 * 1024


def convert(
    source: IO[bytes], target: IO[bytes] | str, *, file: str, metadata: TableMetadata, undeclared: str = "error"
) -> tuple[Warned, ...]:
    """Writes the rows of a delimited file as Parquet, in their order; returns what there is to warn of.

    The source is read more than once: it can seek.

    `file` names it in errors, and by its suffix how it is compressed. `undeclared`: a column that SchemaDefinition
    does not name is an `error` or a column of `string`s. TableError `file-unreadable`, `value-invalid`,
    `row-marker-invalid`, `column-undeclared`, `columns-ambiguous`, `column-name-invalid`, with line and column where
    they exist; what was written is then of no use.
    """
    writer: pq.ParquetWriter | None = None
    gathered: list[pa.RecordBatch] = []
    size = 0
    doubts = TextDoubts(metadata)
    try:
        for batch in read_columns(source, file=file, metadata=metadata, undeclared=undeclared):
            writer = writer or pq.ParquetWriter(target, batch.schema)
            doubts.look_at(batch)
            gathered.append(batch)
            size += batch.nbytes
            if size >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(gathered))
                gathered, size = [], 0
        if writer is not None and gathered:
            writer.write_table(pa.Table.from_batches(gathered))
    finally:
        if writer is not None:
            writer.close()
    return doubts.warnings(file)


class TextDoubts:
    """Columns that nobody declared, so that they are strings, although all their text looks like numbers or dates."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._declared = {column.name.lower() for column in metadata.columns}
        self._looks: dict[str, str] | None = None
        self._names: list[str] = []

    def look_at(self, batch: pa.RecordBatch) -> None:
        """Takes the first batch that has rows."""
        self._names = batch.schema.names
        if self._looks is None and batch.num_rows:
            self._looks = {
                name: looks_like(batch.column(place))
                for place, name in enumerate(batch.schema.names)
                if name.lower() not in self._declared and name != ROW_MARKER
            }

    def warnings(self, file: str) -> tuple[Warned, ...]:
        """`text-looks-typed` for each such column, `separator-doubtful` for a header of one column with a separator."""
        found = [
            Warned("text-looks-typed", f"column {name} is a string, and its text looks like {what}", file)
            for name, what in (self._looks or {}).items()
            if what
        ]
        if len(self._names) == 1 and (hint := hint_for_separator(self._names[0])):
            found.append(
                Warned("separator-doubtful", f"the header is one column named {self._names[0]!r}: {hint}", file)
            )
        return tuple(found)


def read_columns(
    source: IO[bytes], *, file: str, metadata: TableMetadata, undeclared: str = "error"
) -> Iterator[pa.RecordBatch]:
    """The same rows as typed columns, in blocks: at least one, which may have no row."""
    form = metadata.delimited or DelimitedFormat()
    exact = _Exact(source, file, form)
    types = _types(exact.names, file, metadata, undeclared)
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in types.items()])
    yield pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    done = 0
    try:
        for batch in _fast(exact.rest(), types, schema, form):
            yield batch
            done += batch.num_rows
        return
    except (Inexact, BadValue):
        pass  # the exact reader says where, or gives the rows that follow
    seen = 0
    for texts, lines in _Exact(source, file, form).columns():
        if seen + texts.num_rows > done:
            yield _exactly_typed(texts, lines, max(0, done - seen), types, schema, file, form)
        seen += texts.num_rows


def line_of(source: IO[bytes], row: int, *, file: str, metadata: TableMetadata) -> int:
    """The line on which a row begins; rows count from 1, the header's line is 1."""
    rows = _Exact(source, file, metadata.delimited or DelimitedFormat()).rows()
    return next(itertools.islice(rows, row - 1, None)).line


class _Exact:
    """The file by the exact reader: `names` from its first row, then the rows behind it."""

    def __init__(self, source: IO[bytes], file: str, form: DelimitedFormat) -> None:
        source.seek(0)
        self._file = file
        self._form = form
        blocks, line = separator_line(utf8_blocks(source, file, form.encoding), form, file)
        self._reader = RecordReader(blocks, form, file, line)
        self._records = iter(self._reader)
        self.names = self._header()

    def rest(self) -> Iterator[bytes]:
        return self._reader.rest()

    def rows(self) -> Iterator[Record]:
        """The records behind the header, without the empty lines that are none."""
        for record in self._records:
            if len(record.fields) > 1 or len(self.names) == 1 or record.fields[0] != (b"", False):
                yield record

    def columns(self) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
        """Blocks of rows as columns of strings, with the line on which each row begins."""
        rows: list[list[str | None]] = []
        lines: list[int] = []
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
        if rows:
            yield self._batch(rows), lines

    def _header(self) -> list[str]:
        record = next(self._records, None)
        if record is None:
            raise TableError("file-unreadable", f"{self._file} holds no header", file=self._file)
        names = [self._decode(field.text, record, name="the header") for field in record.fields]
        seen: dict[str, str] = {}
        for number, name in enumerate(names, start=1):
            if not name.strip():
                raise TableError(
                    "column-name-invalid", f"{self._file}: column {number} of the header has no name", file=self._file
                )
            if name.lower() in seen:
                first = seen[name.lower()]
                raise TableError(
                    "columns-ambiguous", f"{self._file}: the header names {first!r} and {name!r}", file=self._file,
                    column=name,
                )  # fmt: skip
            seen[name.lower()] = name
        return names

    def _texts(self, record: Record) -> list[str | None]:
        null = self._form.null_value
        found: list[str | None] = []
        for field, name in zip(record.fields, self.names, strict=True):
            text = self._decode(field.text, record, name=name)
            is_null = text == null if null is not None else not text and not field.quoted
            found.append(None if is_null else text)
        return found

    def _decode(self, text: bytes, record: Record, name: str) -> str:
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as error:
            shown = text[:100].decode("utf-8", "backslashreplace")
            what = f"column {name}: {shown!r} is not UTF-8"
            raise self._error("value-invalid", what, record, name, hint_for_encoding(text)) from error

    def _batch(self, rows: Sequence[Sequence[str | None]]) -> pa.RecordBatch:
        columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        return pa.RecordBatch.from_arrays(columns, names=self.names)

    def _error(self, code: str, what: str, record: Record, column: str | None = None, hint: str = "") -> TableError:
        message = f"{self._file}, line {record.line}: {what}"
        return TableError(code, message, file=self._file, row=record.line, column=column, hint=hint or None)


def _fast(
    blocks: Iterator[bytes], types: Mapping[str, str], schema: pa.Schema, form: DelimitedFormat
) -> Iterator[pa.RecordBatch]:
    """The rows by the fast reader, several pieces at once. Raises `Inexact` and `BadValue`."""

    def batch(piece: bytes) -> pa.RecordBatch:
        return _typed(parsed(piece, list(types), form), types, schema, form)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="delimited") as pool:
        at_work: deque[Future[pa.RecordBatch]] = deque()
        for piece in whole_rows(blocks, form):
            at_work.append(pool.submit(batch, piece))
            if len(at_work) > _THREADS:
                yield at_work.popleft().result()
        while at_work:
            yield at_work.popleft().result()


def _types(names: Sequence[str], file: str, metadata: TableMetadata, undeclared: str) -> dict[str, str]:
    """The table type of every column of the file, in its order; the row marker's is `int`."""
    declared = {column.name.lower(): column.table_type for column in metadata.columns}
    types = {}
    for name in names:
        if name == ROW_MARKER:
            types[name] = "int"
        elif name.lower() in declared:
            types[name] = declared[name.lower()]
        elif metadata.columns and undeclared != "string":
            raise TableError(
                "column-undeclared",
                f"{file}: SchemaDefinition does not name the column {name!r}",
                file=file,
                column=name,
                hint=(hint_for_separator(name) if len(names) == 1 else "") or None,
            )
        else:
            types[name] = "string"
    return types


def _typed(texts: pa.RecordBatch, types: Mapping[str, str], schema: pa.Schema, form: DelimitedFormat) -> pa.RecordBatch:
    arrays = [_column(texts.column(place), *each, form) for place, each in enumerate(types.items())]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(texts: pa.Array, name: str, kind: str, form: DelimitedFormat) -> pa.Array:
    """One column's values; row markers are plain numbers however the others are written."""
    return converted_as_written(texts, kind, DelimitedFormat() if name == ROW_MARKER else form)


def _exactly_typed(
    texts: pa.RecordBatch, lines: Sequence[int], skip: int, types: Mapping[str, str], schema: pa.Schema, file: str,
    form: DelimitedFormat,
) -> pa.RecordBatch:  # fmt: skip
    """The rows behind the first `skip`; TableError for the first value that does not convert, by line, then column."""
    texts, lines = texts.slice(skip), lines[skip:]
    found, bad = [], []
    for place, (name, kind) in enumerate(types.items()):
        try:
            found.append(_column(texts.column(place), name, kind, form))
        except BadValue as value:
            bad.append((value.place, name, kind, value.text))
    if bad:
        place, name, kind, text = min(bad, key=lambda each: each[0])
        shown = text if len(text) <= 100 else text[:99] + "…"
        code = "row-marker-invalid" if name == ROW_MARKER else "value-invalid"
        what = "an integer" if name == ROW_MARKER else kind
        raise TableError(
            code, f"{file}, line {lines[place]}, column {name}: {shown!r} is not {what}", file=file, row=lines[place],
            column=name, hint=hint_for_value(text, kind, form) or None,
        )  # fmt: skip
    return pa.RecordBatch.from_arrays(found, schema=schema)
