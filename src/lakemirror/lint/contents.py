"""What is wrong inside one change file: columns against the files before it, markers and keys row by row.

Of Parquet the pages of all columns are counted, and only the marker and the key columns are decoded, in small batches,
strings as dictionaries: a small file that unfolds to gigabytes stays small here. Delimited text is read completely, in
blocks, and its rows are named by their lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.delta.schema import Column
from lakemirror.errors import TableError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.column_types import FileColumn, file_columns, table_type
from lakemirror.landing_zone.delimited import TextDoubts, line_of, read_columns
from lakemirror.landing_zone.findings import Finding, from_warning, reported
from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.landing_zone.row_markers import (
    INSERT,
    NEVER_COLUMNS,
    ROW_MARKER,
    UNCHANGED,
    UPSERT,
    can_mark,
    can_name_columns,
    is_misspelt,
    marker_number,
    misspelt_marker,
)
from lakemirror.landing_zone.unchanged_columns import read_unchanged
from lakemirror.landing_zone.zoneless import Zones, how_read
from lakemirror.mirror.schema_evolution import Rules, evolved, zone_reader
from lakemirror.parquet.pages import pages_of_group
from lakemirror.storage import Storage

MAX_ROWS = 20_000_000  # of one file; the rest is not looked at
_BATCH_ROWS = 65_536
_BATCH_BYTES = 16 * 1024 * 1024
_MARKERS = {0, 1, 2, 4}


@dataclass
class SeenColumns:
    """The columns of a table as its files so far make them, by name in lower case."""

    columns: dict[str, Column] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # the file in which each was seen first
    said: set[str] = field(default_factory=set)  # columns whose times without a zone were reported

    def take(self, column: FileColumn, file: str, rules: Rules) -> TableError | None:
        """Adds the column as the engine would (`schema_evolution`); the error with which the engine would stop."""
        lower = column.name.lower()
        try:
            grown = evolved(self.columns.get(lower), column, file, rules)
        except TableError as error:
            if error.code == "type-changed":
                error.message = f"{error.message} since {self.files[lower].rpartition('/')[2]}"
            return error
        if grown is not None:
            self.columns[lower] = grown
            self.files.setdefault(lower, file)
        return None

    def zone_found(self, name: str, zone: str) -> str | None:
        """What is said once about a column that has times without a zone; None after the first time, and for one that
        keeps them as they are.
        """
        lower = name.lower()
        column = self.columns.get(lower)
        if column is None or column.type != "timestamp" or lower in self.said:
            return None
        self.said.add(lower)
        return how_read(zone or column.zone)


@dataclass(frozen=True)
class Expected:
    """What the table's metadata says about rows; `keys` is None where it is not known, because it does not parse.

    `rules`, `undeclared` and `memory` are the settings of the database, as the engine uses them.
    """

    table: str
    keys: tuple[str, ...] | None
    upsert_by_default: bool
    rules: Rules
    undeclared: str
    memory: int


def check_content(storage: Storage, change: ChangeFile, expected: Expected, seen: SeenColumns) -> Iterator[Finding]:
    """The findings in one file, columns first."""
    path, table = change.entry.path, expected.table
    try:
        columns = file_columns(change.footer)
    except pa.ArrowException as error:
        yield reported("file-unreadable", f"its schema cannot be read: {_line(error)}", table=table, file=path)
        return
    findings = list(_check_columns(columns, path, expected, seen))
    yield from findings
    if change.footer.num_rows <= 0 or any(
        f.code in ("columns-ambiguous", "row-marker-invalid", "partial-row-invalid") for f in findings
    ):
        return
    try:
        yield from _check_rows(storage, change, columns, expected, seen)
    except FileNotFoundError:
        return  # deleted by its publisher since the listing
    except (pa.ArrowException, OSError, ValueError, LookupError, MemoryError) as error:
        yield reported("file-unreadable", f"its rows cannot be read: {_line(error)}", table=table, file=path)


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
    marker, keys = _looked_at(columns, expected)
    rows, before = _Rows(), 0
    doubts = TextDoubts(metadata)
    doubts.look_at(pa.RecordBatch.from_pylist([], schema))
    stopped: TableError | None = None
    try:
        for block in blocks:
            doubts.look_at(block)
            if marker is not None:
                _look_at_markers(block.column(ROW_MARKER), before, rows, expected.upsert_by_default)
            elif expected.upsert_by_default and block.num_rows and rows.needs_key is None:
                rows.needs_key = before + 1
            for key, column in keys.items():
                if column is not None:
                    _look_at_key(key, block.column(column.name), before, rows)
            _look_at_unchanged(block, before, rows, columns, expected, seen)
            before += block.num_rows
    except TableError as error:
        stopped = error
    for finding in _row_findings(rows, keys, path, expected):
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
            yield found(error.code, error.message.removeprefix(f"{path}: "))
        elif column.table_type == "timestamp_ntz" and (said := seen.zone_found(column.name, "")):
            yield found("value-converted", f"column {column.name}: {said}")


@dataclass
class _Rows:
    """What the rows read so far showed: the first row (from 1) of each kind, and how many there were."""

    bad_marker: int | None = None
    bad_value: object = None
    bad_count: int = 0
    needs_key: int | None = None
    null_keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    bad_names: tuple[int, str] | None = None

    def bad(self, row: int, value: object, count: int) -> None:
        if self.bad_marker is None:
            self.bad_marker, self.bad_value = row, value
        self.bad_count += count


def _check_rows(
    storage: Storage, change: ChangeFile, columns: Sequence[FileColumn], expected: Expected, seen: SeenColumns
) -> Iterator[Finding]:
    marker, keys = _looked_at(columns, expected)
    to_read = [column for column in (marker, *keys.values()) if column is not None and not _is_nested(column)]
    to_read += [column for column in columns if column.name == UNCHANGED]
    rows = _Rows()
    if marker is None and expected.upsert_by_default:
        rows.needs_key = 1
    _check_pages(storage, change)
    done = 0
    for batch in _batches(storage, change, to_read):
        if marker is not None:
            _look_at_markers(batch.column(ROW_MARKER), done, rows, expected.upsert_by_default)
        for key, column in keys.items():
            if column is not None and column in to_read:
                _look_at_key(key, batch.column(column.name), done, rows)
        _look_at_unchanged(batch, done, rows, columns, expected, seen)
        done += batch.num_rows
        if done >= MAX_ROWS:
            break
    yield from _row_findings(rows, keys, change.entry.path, expected)
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


def _row_findings(rows: _Rows, keys: dict[str, FileColumn | None], path: str, expected: Expected) -> Iterator[Finding]:
    def found(code: str, message: str, row: int | None, column: str | None = None) -> Finding:
        return reported(code, message, table=expected.table, file=path, row=row, column=column)

    if rows.bad_marker is not None:
        more = f", and {rows.bad_count - 1} more like it" if rows.bad_count > 1 else ""
        message = f"row marker {str(rows.bad_value)[:100]!r} is not one of 0, 1, 2, 4{more}"
        yield found("row-marker-invalid", message, rows.bad_marker, ROW_MARKER)
    if rows.bad_names is not None:
        row, why = rows.bad_names
        yield found("partial-row-invalid", f"{UNCHANGED} {why}", row, UNCHANGED)
    if rows.needs_key is not None and expected.keys == ():
        yield found("key-columns-missing", "an update, delete or upsert needs key columns", rows.needs_key)
    for key, column in keys.items():
        if column is None and rows.needs_key is not None:
            yield found("key-column-absent", f"key column {key} is not in the file", rows.needs_key, key)
        elif column is None:
            yield found("key-null", f"key column {key} is not in the file: its rows get NULL", None, key)
        elif key in rows.null_keys:
            first, count = rows.null_keys[key]
            yield found("key-null", f"key column {key} is NULL in {count} rows", first, key)


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


def _look_at_markers(values: pa.Array, done: int, rows: _Rows, upsert_by_default: bool) -> None:
    values = values.storage if isinstance(values, pa.ExtensionArray) else values
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    codes: dict[str, list[int]] = {"bad": [], "keyed": []}
    for code, value in enumerate(encoded.dictionary):
        number = _marker_number(value.as_py())
        if value.is_valid and number not in _MARKERS:
            codes["bad"].append(code)
        elif number in (1, 2, 4):
            codes["keyed"].append(code)
    bad = pc.is_in(encoded.indices, value_set=pa.array(codes["bad"], encoded.indices.type))
    count = pc.sum(bad).as_py() or 0
    if count:
        first = pc.index(bad, True).as_py()
        rows.bad(done + first + 1, encoded[first].as_py(), count)
    if rows.needs_key is None:
        keyed = pc.is_in(encoded.indices, value_set=pa.array(codes["keyed"], encoded.indices.type))
        if upsert_by_default:
            keyed = pc.or_(keyed, encoded.is_null())
        first = pc.index(keyed, True).as_py()
        rows.needs_key = done + first + 1 if first >= 0 else None


def _look_at_unchanged(
    batch: pa.RecordBatch, done: int, rows: _Rows, columns: Sequence[FileColumn], expected: Expected, seen: SeenColumns
) -> None:
    """Finds the first row whose `__unchangedColumns__` the engine rejects."""
    if UNCHANGED not in batch.schema.names or rows.bad_names is not None:
        return
    names = {column.name.lower(): column.name for column in columns if column.name not in NEVER_COLUMNS}
    names |= {lower: column.name for lower, column in seen.columns.items()}
    default = UPSERT if expected.upsert_by_default else INSERT
    markers = np.full(batch.num_rows, default, np.int8)
    if ROW_MARKER in batch.schema.names:
        given = [_marker_number(value) if value is not None else default for value in batch[ROW_MARKER].to_pylist()]
        markers = np.array([value if value in _MARKERS else INSERT for value in given], np.int8)
    _, wrong = read_unchanged(batch[UNCHANGED], markers, names, {key.lower() for key in expected.keys or ()})
    if wrong is not None:
        rows.bad_names = done + wrong[0] + 1, wrong[1]


def _look_at_key(key: str, values: pa.Array, done: int, rows: _Rows) -> None:
    if values.null_count:
        first = pc.index(values.is_null(), True).as_py()
        earlier, count = rows.null_keys.get(key, (done + first + 1, 0))
        rows.null_keys[key] = (earlier, count + values.null_count)


def _marker_number(value: object) -> int | None:
    """The marker's number; None where it is no whole number."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    return marker_number(text)


def _is_nested(column: FileColumn) -> bool:
    return bool(pa.types.is_nested(column.arrow_type))


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
