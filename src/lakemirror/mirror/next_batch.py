"""Which of the pending files one apply takes, and what their footers say about them; opens no file.

pending files + the table's columns + its keys ─▶ next_batch ─▶ Batch: columns after it, append-only or mixed
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.schema import Column, needing_mapping
from lakemirror.errors import Bad, Rejected, TableError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.column_types import FileColumn, arrow_type, file_columns
from lakemirror.landing_zone.metadata import TableMetadata, Warned
from lakemirror.landing_zone.row_markers import (
    NEVER_COLUMNS,
    ROW_MARKER,
    UNCHANGED,
    can_mark,
    can_name_columns,
    misspelt_marker,
)
from lakemirror.landing_zone.zoneless import how_read
from lakemirror.mirror.schema_evolution import ColumnRules, check_sequence, evolve

CONSTANT = "constant"  # the encoding of a column that has one value in the whole file, that is not stored in the file


class BatchFile(NamedTuple):
    """A change file with its columns as its footer shows them. `known`: as of `ChangeUnit`."""

    file: ChangeFile
    columns: tuple[FileColumn, ...]
    known: frozenset[str] | None = None


@dataclass(frozen=True)
class Batch:
    """A run of files that becomes one commit.

    `columns`: the table's after it. `append_only`: every change is an insert, so no key has to be looked up.
    `rejected`: the file right after it, if that one cannot be applied. `partial`: a file may have partial rows.
    """

    files: tuple[BatchFile, ...]
    columns: tuple[Column, ...]
    append_only: bool
    warnings: tuple[Warned, ...] = ()
    rejected: Rejected | None = None
    partial: bool = False

    @cached_property
    def rows(self) -> int:
        return sum(f.file.footer.num_rows for f in self.files)

    @cached_property
    def bytes(self) -> int:
        return sum(f.file.entry.size for f in self.files)


class Limits(NamedTuple):
    """What one commit may take: a number of change files, their bytes together, and their decoded bytes (0: any)."""

    files: int = 1000
    bytes: int = 1 << 30
    decoded: int = 0


def next_batch(
    files: Sequence[ChangeFile],
    columns: Sequence[Column],
    metadata: TableMetadata,
    *,
    limits: Limits,
    rules: ColumnRules | None = None,
    mixed: bool = False,
) -> Batch:
    """The longest run of files that one apply may take. Raises Bad if the first one cannot be applied.

    `columns` are the table's before the batch, none for a new table. `rules`: how they may grow. `metadata`: what the
    publisher declares. `mixed`: a marker column counts as mixed, without regard to its statistics.
    """
    rules = rules or ColumnRules()
    taken: list[BatchFile] = []
    warnings: dict[tuple[str, str], Warned] = {}
    after, append_only, size = tuple(columns), True, 0
    partial, rejected = False, None
    decoded = 0
    for file in files:
        if taken and (len(taken) >= limits.files or size + file.entry.size > limits.bytes):
            break
        if limits.decoded:
            decoded += file.decoded
            if taken and decoded > limits.decoded:
                break
        try:
            item = BatchFile(file, tuple(_columns(file, after)))
            has_partial = _check_names(item, rules.misspelt_marker)
            grown = evolve(after, item.columns, file.entry.path, rules)
            inserts = not has_partial and _inserts_only(item, metadata.upsert_by_default, not mixed)
            if not inserts:
                _check_keys(item, grown, metadata.key_columns)
            if not grown:
                message = f"{file.entry.path}: no column has a type yet"
                raise TableError("type-unsupported", message, file=file.entry.path)
            if metadata.options.sequence and file.footer.num_rows:
                check_sequence(item.columns, grown, metadata.options.sequence, file.entry.path)
        except TableError as error:
            rejected = Rejected.of(error)
            break
        taken.append(item if not has_partial else item._replace(known=_known(item, grown)))
        after, append_only, size = grown, append_only and inserts, size + file.entry.size
        partial = partial or has_partial
        _warn(warnings, item, grown)
    if not taken:
        assert rejected is not None
        raise Bad(rejected)
    return Batch(tuple(taken), after, append_only, tuple(warnings.values()), rejected, partial)


def _warn(warnings: dict[tuple[str, str], Warned], item: BatchFile, columns: Sequence[Column]) -> None:
    """Adds what a file is warned of, each kind once in a batch. `columns`: the table's with this file."""
    path = item.file.entry.path
    for warned in item.file.warnings:
        warnings.setdefault((warned.code, warned.message), warned)
    kept = {column.name.lower(): column for column in columns}
    for column in item.columns:
        if column.note or column.zone or column.table_type == "timestamp_ntz":
            for note in _notes(column, kept.get(column.name.lower())):
                message = f"column {column.name}: {note}"
                warnings.setdefault((column.name, note), Warned("value-converted", message, path))
    for name in needing_mapping(column.name for column in item.columns):
        message = f"column {name!r} has a name that Delta holds by column mapping alone"
        warnings.setdefault((name, message), Warned("column-mapping", message, path))


def _columns(file: ChangeFile, columns: Sequence[Column]) -> list[FileColumn]:
    """The file's columns and those of its partition folders: in the table's type, or as strings."""
    try:
        stored = [
            replace(column, zone=file.zones[column.name]) if column.name in file.zones else column
            for column in file_columns(file.footer)
        ]
        held = {column.name.lower() for column in stored}
        types = {column.name.lower(): column.type for column in columns}
        given = [(name, types.get(name.lower(), "string"), value) for name, value in file.constants]
        return [*stored, *(_given(file, *constant) for constant in given if constant[0].lower() not in held)]
    except pa.ArrowException as error:
        raise TableError(
            "file-unreadable", f"{file.entry.path}: its schema cannot be read: {error}", file=file.entry.path
        ) from error


def _notes(file_column: FileColumn, column: Column | None) -> Iterator[str]:
    """What there is to say of a column of a file that the table does not keep as it is."""
    if file_column.name in NEVER_COLUMNS:
        return
    if file_column.note:
        yield file_column.note
    is_zoneless = file_column.table_type == "timestamp_ntz" or file_column.zone
    if is_zoneless and column is not None and column.type == "timestamp":
        yield how_read(column.zone)


def _given(file: ChangeFile, name: str, type_: str, value: str | None) -> FileColumn:
    """A column whose value is in a partition folder's name. TableError `value-invalid` where that is not a value of the
    type.
    """
    kind = arrow_type(type_)
    if kind is None:
        return FileColumn(name, pa.string(), "string", encoding=CONSTANT)
    try:
        pa.scalar(value, pa.string()).cast(kind)
    except pa.ArrowException as error:
        path = file.entry.path
        message = f"{path}: the folder gives {name} = {str(value)[:100]!r}, and the column is {type_} in the table"
        raise TableError("value-invalid", message, file=path, column=name) from error
    return FileColumn(name, kind, type_, encoding=CONSTANT)


def _check_names(item: BatchFile, misspelt_is_column: bool) -> bool:
    """A file has one column named exactly `__rowMarker__`, or no column with a similar name (contract section 3).

    True if the file may have partial rows.
    """
    path = item.file.entry.path
    names = [column.name for column in item.columns]
    marked = names.count(ROW_MARKER)
    if marked > 1:
        raise TableError(
            "columns-ambiguous", f"{path}: {marked} columns are named {ROW_MARKER}", file=path, column=ROW_MARKER
        )
    like = misspelt_marker(names)
    if like is not None and not misspelt_is_column:
        raise TableError(
            "row-marker-misspelt",
            f"{path}: column {like!r} is almost {ROW_MARKER}, and the file has no row marker column",
            file=path,
            column=like,
        )
    return UNCHANGED in names and _may_be_partial(item)


def _known(item: BatchFile, columns: Sequence[Column]) -> frozenset[str]:
    """The columns that partial rows of a file may name. `columns`: the table's with this file."""
    return frozenset([column.name.lower() for column in columns] + [column.name.lower() for column in item.columns])


def _may_be_partial(item: BatchFile) -> bool:
    """True for a file with rows and a column that names unchanged columns. TableError `partial-row-invalid`,
    `columns-ambiguous`."""
    found = [column for column in item.columns if column.name == UNCHANGED]
    path, kind = item.file.entry.path, found[0].arrow_type
    if len(found) > 1:
        message = f"{path}: {len(found)} columns are named {UNCHANGED}"
        raise TableError("columns-ambiguous", message, file=path, column=UNCHANGED)
    if not can_name_columns(kind):
        message = f"{path}: {UNCHANGED} is {kind}; it must be a list of strings"
        raise TableError("partial-row-invalid", message, file=path, column=UNCHANGED)
    return bool(item.file.footer.num_rows)


def _inserts_only(item: BatchFile, upsert_by_default: bool, trust_statistics: bool) -> bool:
    """True where the footer says that every row is an insert. The rows are checked against it when they are read."""
    footer = item.file.footer
    if footer.num_rows == 0:
        return True
    marker = next((c for c in item.columns if c.name == ROW_MARKER), None)
    if marker is None:
        return not upsert_by_default
    if not can_mark(marker.arrow_type):
        raise TableError(
            "row-marker-invalid",
            f"{item.file.entry.path}: {ROW_MARKER} is {marker.arrow_type}; it must be an integer or a string",
            file=item.file.entry.path,
            column=ROW_MARKER,
        )
    if not trust_statistics or upsert_by_default:
        return False
    chunks = _statistics(footer, ROW_MARKER)
    return chunks is not None and all(str(s.min) == "0" and str(s.max) == "0" for s in chunks)


def _check_keys(item: BatchFile, columns: Sequence[Column], key_columns: Sequence[str]) -> None:
    """A file that may hold more than inserts needs keys; each row is checked when it is read."""
    held = {column.name.lower() for column in columns} | {column.name.lower() for column in item.columns}
    for key in key_columns:
        if key.lower() not in held:
            raise TableError(
                "key-column-absent",
                f"{item.file.entry.path}: key column {key!r} is neither in this file nor in the table",
                file=item.file.entry.path,
                column=key,
            )


def _statistics(footer: pq.FileMetaData, name: str) -> list[pq.Statistics] | None:
    """The statistics of every chunk of a top-level column that holds rows; None where one is missing."""
    index = next((i for i in range(footer.num_columns) if footer.schema.column(i).path == name), None)
    if index is None:
        return None
    of_chunks = []
    for group in range(footer.num_row_groups):
        chunk = footer.row_group(group).column(index)
        if chunk.num_values == 0 and footer.row_group(group).num_rows == 0:
            continue
        statistics = chunk.statistics
        if statistics is None:
            return None
        all_null = statistics.has_null_count and statistics.null_count == footer.row_group(group).num_rows
        if not statistics.has_min_max and not all_null:
            return None
        of_chunks.append(statistics)
    return of_chunks
