"""What is wrong inside one change file: columns against the files before it, markers and keys row by row.

Of Parquet the pages of all columns are counted, and only the marker and the key columns are decoded, in small batches,
strings as dictionaries: a small file that unfolds to gigabytes stays small here. Delimited text is read completely, in
blocks, and its rows are named by their lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import TableError, first_line
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.column_types import FileColumn, file_columns, fits, table_type
from lakemirror.landing_zone.delimited import TextDoubts, line_of, read_columns
from lakemirror.landing_zone.findings import Finding, from_error, from_warning, reported
from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.landing_zone.reserved_columns import SOURCE_TIME
from lakemirror.landing_zone.row_markers import (
    NEVER_COLUMNS,
    ROW_MARKER,
    UNCHANGED,
    can_mark,
    can_name_columns,
    is_misspelt,
    misspelt_marker,
)
from lakemirror.landing_zone.zoneless import Zones
from lakemirror.lint.rows import (
    Expected,
    Rows,
    SeenColumns,
    look_at_key,
    look_at_markers,
    look_at_sequence,
    look_at_unchanged,
    row_findings,
)
from lakemirror.mirror.schema_evolution import check_sequence, zone_reader
from lakemirror.parquet.pages import pages_of_group
from lakemirror.storage import Storage

MAX_ROWS = 20_000_000  # of one file; the rest is not looked at
_BATCH_ROWS = 65_536
_BATCH_BYTES = 16 * 1024 * 1024


def check_content(storage: Storage, change: ChangeFile, expected: Expected, seen: SeenColumns) -> Iterator[Finding]:
    """The findings in one file, columns first."""
    path, table = change.entry.path, expected.table
    try:
        columns = file_columns(change.footer)
    except pa.ArrowException as error:
        yield reported("file-unreadable", f"its schema cannot be read: {first_line(error)}", table=table, file=path)
        return
    findings = list(_check_columns(columns, path, expected, seen))
    yield from findings
    if change.footer.num_rows > 0:
        yield from _check_sequence(columns, path, expected, seen)
    if change.footer.num_rows <= 0 or any(
        f.code in ("columns-ambiguous", "row-marker-invalid", "partial-row-invalid") for f in findings
    ):
        return
    try:
        yield from _check_rows(storage, change, columns, expected, seen)
    except FileNotFoundError:
        return  # deleted by its publisher since the listing
    except (pa.ArrowException, OSError, ValueError, LookupError, MemoryError) as error:
        yield reported("file-unreadable", f"its rows cannot be read: {first_line(error)}", table=table, file=path)


def check_delimited(
    source: IO[bytes], path: str, metadata: TableMetadata, expected: Expected, seen: SeenColumns
) -> Iterator[Finding]:
    """The findings in one delimited file, columns first; `row` of each is its line.

    What cannot be read ends the look at the file: TableError, as the engine would raise it.
    """
    zones = Zones(zone_reader(tuple(seen.columns.values()), expected.rules.zoneless))
    blocks = read_columns(
        source, file=path, metadata=metadata, undeclared=expected.undeclared, memory=expected.memory, zones=zones
    )
    schema = next(blocks).schema
    columns = [FileColumn(each.name, each.type, table_type(each.type)) for each in schema]
    yield from _check_columns(columns, path, expected, seen)
    yield from _check_sequence(columns, path, expected, seen)
    marker, keys = _looked_at(columns, expected)
    rows, before = Rows(), 0
    doubts = TextDoubts(metadata)
    doubts.look_at(pa.RecordBatch.from_pylist([], schema))
    stopped: TableError | None = None
    try:
        for block in blocks:
            doubts.look_at(block)
            if marker is not None:
                look_at_markers(block.column(ROW_MARKER), before, rows, expected.upsert_by_default)
            elif expected.upsert_by_default and block.num_rows and rows.needs_key is None:
                rows.needs_key = before + 1
            for key, column in keys.items():
                if column is not None:
                    look_at_key(key, block.column(column.name), before, rows)
            look_at_sequence(block, before, rows, expected)
            look_at_unchanged(block, before, rows, columns, expected, seen)
            before += block.num_rows
    except TableError as error:
        stopped = error
    for finding in row_findings(rows, keys, path, expected):
        line = line_of(source, finding.row, file=path, metadata=metadata) if finding.row else None
        yield replace(finding, row=line)
    yield from (from_warning(each, expected.table) for each in doubts.warnings(path))
    for name, zone in zones.met.items():
        if said := seen.zone_found(name, zone):
            message = f"column {name}: {said}"
            yield reported("value-converted", message, table=expected.table, file=path, column=name)
    if stopped is not None:
        raise stopped


def _check_columns(
    columns: Sequence[FileColumn], path: str, expected: Expected, seen: SeenColumns
) -> Iterator[Finding]:
    names: dict[str, str] = {}
    for index, column in enumerate(columns):

        def found(code: str, message: str, name: str = column.name) -> Finding:
            return reported(code, message, table=expected.table, file=path, column=name)

        if column.name == ROW_MARKER:
            if ROW_MARKER in names.values():
                yield found("columns-ambiguous", f"the column {ROW_MARKER} is there twice")
            names[column.name.lower()] = column.name
            if not can_mark(column.arrow_type):
                yield found("row-marker-invalid", f"{ROW_MARKER} is {column.arrow_type}, neither integer nor string")
            continue
        if column.name == UNCHANGED and can_name_columns(column.arrow_type):
            names[column.name.lower()] = column.name
            continue
        if column.name == UNCHANGED:
            yield found("partial-row-invalid", f"{UNCHANGED} is {column.arrow_type}; it must be a list of strings")
            continue
        if column.name == SOURCE_TIME and expected.times and not fits(column.table_type or "timestamp", "timestamp"):
            yield found("type-unsupported", f"{SOURCE_TIME} is {column.arrow_type}; it must be a timestamp")
            continue
        earlier = names.setdefault(column.name.lower(), column.name)
        if sum(each.name.lower() == column.name.lower() for each in columns) > 1 and earlier != column.name:
            yield found("columns-ambiguous", f"columns {earlier} and {column.name} differ in case alone")
        elif [each.name for each in columns[:index]].count(column.name) == 1:
            yield found("columns-ambiguous", f"the column {column.name} is there twice")
        if is_misspelt(column.name):
            fatal = (
                column.name == misspelt_marker([each.name for each in columns]) and not expected.rules.misspelt_marker
            )
            if fatal:
                message = f"the column {column.name} is almost {ROW_MARKER}, and the file has no row marker column"
                yield found("row-marker-misspelt", message)
                continue
            yield found("row-marker-spelling", f"the column {column.name} is no row marker")
        if column.note:
            yield found("value-converted", f"column {column.name}: {column.note}")
        if error := seen.take(column, path, expected.rules):
            yield from_error(error, expected.table)
        elif column.table_type == "timestamp_ntz" and (said := seen.zone_found(column.name, "")):
            yield found("value-converted", f"column {column.name}: {said}")


def _check_sequence(
    columns: Sequence[FileColumn], path: str, expected: Expected, seen: SeenColumns
) -> Iterator[Finding]:
    try:
        check_sequence(columns, tuple(seen.columns.values()), expected.sequence, path)
    except TableError as error:
        if error.code != "sequence-missing" or error.column not in seen.without_sequence:
            yield from_error(error, expected.table)
        if error.code == "sequence-missing":
            seen.without_sequence.add(error.column)


def _check_rows(
    storage: Storage, change: ChangeFile, columns: Sequence[FileColumn], expected: Expected, seen: SeenColumns
) -> Iterator[Finding]:
    marker, keys = _looked_at(columns, expected)
    to_read = [column for column in (marker, *keys.values()) if column is not None and not _is_nested(column)]
    ordering = {name.lower() for name in expected.sequence}
    to_read += [column for column in columns if column.name == UNCHANGED or column.name.lower() in ordering]
    rows = Rows()
    if marker is None and expected.upsert_by_default:
        rows.needs_key = 1
    _check_pages(storage, change)
    done = 0
    for batch in _batches(storage, change, to_read):
        if marker is not None:
            look_at_markers(batch.column(ROW_MARKER), done, rows, expected.upsert_by_default)
        for key, column in keys.items():
            if column is not None and column in to_read:
                look_at_key(key, batch.column(column.name), done, rows)
        look_at_sequence(batch, done, rows, expected)
        look_at_unchanged(batch, done, rows, columns, expected, seen)
        done += batch.num_rows
        if done >= MAX_ROWS:
            break
    yield from row_findings(rows, keys, change.entry.path, expected)
    if done < change.footer.num_rows and to_read:
        message = f"only the first {done} of {change.footer.num_rows} rows were looked at"
        yield reported("rows-unchecked", message, table=expected.table, file=change.entry.path)


def _looked_at(
    columns: Sequence[FileColumn], expected: Expected
) -> tuple[FileColumn | None, dict[str, FileColumn | None]]:
    """The marker column, and the column of each key; None where the file has none."""
    by_lower = {column.name.lower(): column for column in columns if column.name not in NEVER_COLUMNS}
    marker = next((column for column in columns if column.name == ROW_MARKER), None)
    return marker, {key: by_lower.get(key.lower()) for key in expected.keys or ()}


def _check_pages(storage: Storage, change: ChangeFile) -> None:
    """ValueError where pages hold other rows than the footer says, as when the engine reads them."""
    with storage.open(change.entry.path) as stream:
        for group in range(change.footer.num_row_groups):
            pages_of_group(stream, change.footer, group)


def _batches(storage: Storage, change: ChangeFile, columns: Sequence[FileColumn]) -> Iterator[pa.RecordBatch]:
    if not columns:
        return
    names = list(dict.fromkeys(column.name for column in columns))
    texts = [column.name for column in columns if pa.types.is_string(column.arrow_type)]
    with storage.open(change.entry.path) as stream:
        file = pq.ParquetFile(stream, read_dictionary=texts, pre_buffer=False)
        yield from file.iter_batches(_batch_rows(change.footer, names), columns=names, use_threads=False)


def _batch_rows(footer: pq.FileMetaData, names: Sequence[str]) -> int:
    """How many rows keep a batch small, by what the footer says about sizes."""
    size: int = 0
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for index in range(row_group.num_columns):
            chunk = row_group.column(index)
            if chunk.path_in_schema in names:
                size += chunk.total_uncompressed_size
    rows: int = footer.num_rows
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * max(1, rows) // max(1, size)))


def _is_nested(column: FileColumn) -> bool:
    return bool(pa.types.is_nested(column.arrow_type))
