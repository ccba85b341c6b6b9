"""One delimited file as one Parquet file, row by row in its order, with bounded memory."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.errors import TableError
from lakemirror.landing_zone.column_types import arrow_type
from lakemirror.landing_zone.delimited.exact_rows import ExactRows, header
from lakemirror.landing_zone.delimited.fast_reader import FastReader, Inexact, Piece, whole_rows
from lakemirror.landing_zone.delimited.hints import hint_for_separator, separator_line
from lakemirror.landing_zone.delimited.plain_values import is_number, looks_like
from lakemirror.landing_zone.delimited.records import Blocks, RecordReader
from lakemirror.landing_zone.delimited.text_source import utf8_blocks
from lakemirror.landing_zone.delimited.typed_text import TypedText
from lakemirror.landing_zone.delimited.values import BadValue
from lakemirror.landing_zone.metadata import DelimitedFormat, TableMetadata, Warned
from lakemirror.landing_zone.reserved_columns import NEVER_COLUMNS, ROW_MARKER, UNCHANGED
from lakemirror.landing_zone.zoneless import NTZ, Zones
from lakemirror.worker_pool import worker_pool

_THREADS = 2
_SAMPLE = 5_000  # rows
_GROUP_BYTES = 64 * 1024 * 1024


def convert(
    source: IO[bytes], target: IO[bytes] | str, *, file: str, metadata: TableMetadata, undeclared: str = "error",
    memory: int | None = None, zones: Zones | None = None,
) -> tuple[Warned, ...]:  # fmt: skip
    """Writes the rows of a delimited file as Parquet, in their order; returns the warnings.

    The source is read more than once: it can seek.

    `file` names it in errors, and by its suffix how it is compressed. `undeclared`: a column that SchemaDefinition
    does not name is an `error` or a column of `string`s. `memory`: the budget in bytes, which bounds how long one row
    may be. `zones`: how times without a zone are read; UTC by default.

    TableError `file-unreadable`, `file-too-large`, `value-invalid`, `row-marker-invalid`, `column-undeclared`,
    `columns-ambiguous`, `column-name-invalid`, with line and column where they exist; then the written file is
    incomplete.
    """
    writer: pq.ParquetWriter | None = None
    gathered: list[pa.RecordBatch] = []
    size = 0
    doubts = TextDoubts(metadata)
    try:
        for batch in read_columns(
            source, file=file, metadata=metadata, undeclared=undeclared, memory=memory, zones=zones
        ):
            doubts.look_at(batch)
            gathered.append(batch)
            size += batch.nbytes
            if size >= _GROUP_BYTES:
                writer = writer or _writer(target, gathered)
                writer.write_table(pa.Table.from_batches(gathered))
                gathered, size = [], 0
        if writer is None or gathered:
            writer = writer or _writer(target, gathered)
            writer.write_table(pa.Table.from_batches(gathered))
    finally:
        if writer is not None:
            writer.close()
    return doubts.warnings(file)


class TextDoubts:
    """Undeclared columns, which become strings although all their text looks like numbers or dates."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._declared = {column.name.lower() for column in metadata.columns}
        self._looks: dict[str, str] | None = None
        self._names: list[str] = []

    def look_at(self, batch: pa.RecordBatch) -> None:
        """Takes the first batch that has rows."""
        self._names = batch.schema.names
        if self._looks is None and batch.num_rows:
            self._looks = {
                name: looks_like(batch.column(index))
                for index, name in enumerate(batch.schema.names)
                if name.lower() not in self._declared and name not in NEVER_COLUMNS
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
    source: IO[bytes], *, file: str, metadata: TableMetadata, undeclared: str = "error", memory: int | None = None,
    zones: Zones | None = None,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """The same rows as typed columns, in blocks: at least one, which may have no row."""
    form, zones = metadata.delimited or DelimitedFormat(), zones or Zones()
    blocks, reader = _opened(source, file, form, memory)
    names = header(reader, file, form)
    text = TypedText(_types(names, file, metadata, undeclared, zones), form, zones)
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in text.types.items()])
    yield pa.RecordBatch.from_pylist([], schema)
    fast = FastReader({name: _parsed_type(name, kind, form) for name, kind in text.types.items()}, form)
    while True:
        reader.put_back()
        refused = yield from _fast(blocks, fast, reader.line, text)
        if refused is None:
            return
        # the exact reader says where the piece is wrong, or gives its rows
        reader = RecordReader(blocks, form, file, refused.line, memory)
        for texts, lines in ExactRows(reader, names, file, form).columns(len(refused.text)):
            try:
                yield text.values(texts)
            except BadValue as bad:
                raise text.error(bad, file, lines[bad.place]) from bad


def header_names(source: IO[bytes], *, file: str, metadata: TableMetadata) -> list[str]:
    """The names of the columns, from the header. TableError as of `convert`."""
    form = metadata.delimited or DelimitedFormat()
    _, reader = _opened(source, file, form)
    return list(header(reader, file, form))


def line_of(source: IO[bytes], row: int, *, file: str, metadata: TableMetadata) -> int:
    """The line on which a row begins; rows count from 1, the header's line is 1."""
    form = metadata.delimited or DelimitedFormat()
    _, reader = _opened(source, file, form)
    rows = ExactRows(reader, header(reader, file, form), file, form).rows()
    record = next(itertools.islice(rows, row - 1, None), None)
    return record.line if record is not None else row + 1  # the file is another by now


def _opened(
    source: IO[bytes], file: str, form: DelimitedFormat, memory: int | None = None
) -> tuple[Blocks, RecordReader]:
    """The text from its beginning, and a reader that is before the header."""
    source.seek(0)
    text, line = separator_line(utf8_blocks(source, file, form.encoding), form, file)
    blocks = Blocks(text)
    return blocks, RecordReader(blocks, form, file, line, memory)


def _fast(
    blocks: Blocks, reader: FastReader, line: int, text: TypedText
) -> Generator[pa.RecordBatch, None, Piece | None]:
    """The rows by the fast reader, several pieces at once, and the first piece that it refuses.

    Afterwards that piece and all text after it are in `blocks`.
    """

    def batch(piece: Piece) -> pa.RecordBatch:
        return text.values(reader.parsed(piece))

    at_work: deque[tuple[Piece, Future[pa.RecordBatch]]] = deque()
    with worker_pool(_THREADS, "delimited") as pool:
        pieces = whole_rows(blocks, text.form, line)
        while True:
            while len(at_work) <= _THREADS and (piece := next(pieces, None)) is not None:
                at_work.append((piece, pool.submit(batch, piece)))
            if not at_work:
                return None
            piece, future = at_work[0]
            try:
                found = future.result()
            except (Inexact, BadValue):
                for each, behind in reversed(at_work):
                    behind.cancel()
                    blocks.put_back(each.text)
                return piece
            at_work.popleft()
            yield found


def _writer(target: IO[bytes] | str, rows: Sequence[pa.RecordBatch]) -> pq.ParquetWriter:
    """Writes rows such as these. A dictionary of a column that hardly repeats takes most of the time of a write.

    Rows with a marker are read once, soon and here; others may become a data file of the table as they are.
    """
    schema = rows[0].schema
    first = max(rows[:8], key=lambda batch: batch.num_rows).slice(0, _SAMPLE)
    repeating = [
        name
        for name, column in zip(schema.names, first.columns, strict=True)
        if pc.count_distinct(column).as_py() * 4 <= len(column)
    ]
    codec = "none" if ROW_MARKER in schema.names else "snappy"
    return pq.ParquetWriter(target, schema, use_dictionary=repeating, compression=codec)


def _types(names: Sequence[str], file: str, metadata: TableMetadata, undeclared: str, zones: Zones) -> dict[str, str]:
    """The table type of every column of the file, in its order; the row marker's is `int`."""
    declared = {column.name.lower(): column.table_type for column in metadata.columns}
    types = {}
    for name in names:
        if name == ROW_MARKER:
            types[name] = "int"
        elif name == UNCHANGED:
            types[name] = "string"
        elif name.lower() in declared:
            kind = declared[name.lower()]
            types[name] = "timestamp_ntz" if kind == "timestamp" and zones.of(name) == NTZ else kind
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


def _parsed_type(name: str, kind: str, form: DelimitedFormat) -> pa.DataType:
    """The type in which Arrow parses a column: a number's where it reads the text as the contract does, else text."""
    plain = name == ROW_MARKER or (form.decimal_separator == "." and not form.thousands_separator)
    return arrow_type(kind) if plain and is_number(kind) and not kind.startswith("decimal") else pa.string()
