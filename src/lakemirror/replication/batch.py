"""Which of the pending files one apply takes, and what their footers tell about them; pure, no file is opened.

pending files + the table's columns + its keys ─▶ next_batch ─▶ Batch: columns after it, append-only or mixed,
                                                                 the range of its keys
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.schema import Column, needs_mapping
from lakemirror.errors import TableError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.column_types import FileColumn, file_columns
from lakemirror.landing_zone.metadata import Warned
from lakemirror.landing_zone.row_markers import ROW_MARKER
from lakemirror.replication.schema_evolution import Rules, evolve

CONSTANT = "constant"  # the encoding of a column that has one value in the whole file, which the file does not hold

_MOST_SHAPES = 24  # scans of differently shaped files that one apply joins; more make the plan slow


@dataclass(frozen=True)
class BatchFile:
    """A change file with its columns as its footer shows them."""

    file: ChangeFile
    columns: tuple[FileColumn, ...]

    @property
    def shape(self) -> tuple[tuple[str, str, str], ...]:
        """Equal for files that one scan can read together."""
        return tuple((c.name, str(c.arrow_type), c.encoding) for c in self.columns)


@dataclass(frozen=True)
class Range:
    """The smallest and largest value of one key column over a batch, whether NULL may occur, and the column's type."""

    column: str
    low: Any
    high: Any
    nulls: bool
    type: str = ""


class UntrueStatistics(TableError):
    """A footer promised inserts alone and a row is none: the batch has to be read as mixed."""


@dataclass(frozen=True)
class Batch:
    """A run of files that becomes one commit.

    `columns`: the table's after it. `append_only`: every change is an insert, so nothing has to be looked for.
    `ranges`: bounds for some of the key columns, from footer statistics; a column without known bounds is absent.
    """

    files: tuple[BatchFile, ...]
    columns: tuple[Column, ...]
    append_only: bool
    ranges: tuple[Range, ...] = ()
    warnings: tuple[Warned, ...] = ()

    @property
    def rows(self) -> int:
        return sum(f.file.footer.num_rows for f in self.files)

    @property
    def bytes(self) -> int:
        return sum(f.file.entry.size for f in self.files)


def next_batch(
    files: Sequence[ChangeFile],
    columns: Sequence[Column],
    key_columns: Sequence[str],
    *,
    upsert_by_default: bool,
    most_files: int,
    most_bytes: int,
    trust_statistics: bool = True,
    rules: Rules | None = None,
) -> tuple[Batch | None, TableError | None]:
    """The longest run of files that one apply may take, and the error of the file behind it, if that one is bad.

    `columns` are the table's before the batch, none for a new table. With `trust_statistics` False, a marker column
    counts as mixed whatever its statistics say. `rules`: how the columns may grow.
    No batch where the first file is bad.
    """
    taken: list[BatchFile] = []
    warnings: dict[tuple[str, str], Warned] = {}
    after = tuple(columns)
    append_only = True
    size = 0
    shapes: set[object] = set()
    error: TableError | None = None
    for file in files:
        if taken and (len(taken) >= most_files or size + file.entry.size > most_bytes):
            break
        try:
            item = BatchFile(file, tuple(_columns(file)))
            grown = evolve(after, item.columns, file.entry.path, rules)
            inserts = _inserts_only(item, upsert_by_default, trust_statistics)
            if not inserts:
                _check_keys(item, grown, key_columns)
            if not grown:
                raise TableError(
                    "type-unsupported", f"{file.entry.path}: no column has a type yet", file=file.entry.path
                )
        except TableError as found:
            error = found
            break
        if item.shape not in shapes and len(shapes) >= _MOST_SHAPES:
            break
        shapes.add(item.shape)
        taken.append(item)
        after = grown
        append_only = append_only and inserts
        size += file.entry.size
        for warned in file.warnings:
            warnings.setdefault((warned.code, warned.message), warned)
        for column in item.columns:
            if column.note and column.name != ROW_MARKER:
                warnings.setdefault(
                    (column.name, column.note),
                    Warned("value-converted", f"column {column.name}: {column.note}", file.entry.path),
                )
            if needs_mapping(column.name):
                message = f"column {column.name!r} has a name that Delta holds by column mapping alone"
                warnings.setdefault((column.name, message), Warned("column-mapping", message, file.entry.path))
    if not taken:
        return None, error
    ranges = () if append_only else tuple(_ranges(taken, after, key_columns))
    return Batch(tuple(taken), after, append_only, ranges, tuple(warnings.values())), error


def _columns(file: ChangeFile) -> list[FileColumn]:
    """The file's columns, and those that its partition folders give."""
    try:
        found = file_columns(file.footer)
        held = {column.name.lower() for column in found}
        given = [name for name, _ in file.constants if name.lower() not in held]
        return [*found, *(FileColumn(name, pa.string(), "string", encoding=CONSTANT) for name in given)]
    except pa.ArrowException as error:
        raise TableError(
            "file-unreadable", f"{file.entry.path}: its schema cannot be read: {error}", file=file.entry.path
        ) from error


def _inserts_only(item: BatchFile, upsert_by_default: bool, trust_statistics: bool) -> bool:
    """True where the footer proves that every row is an insert."""
    footer = item.file.footer
    if footer.num_rows == 0:
        return True
    marker = next((c for c in item.columns if c.name == ROW_MARKER), None)
    if marker is None:
        return not upsert_by_default
    if not _can_mark(marker.arrow_type):
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


def _can_mark(arrow_type: Any) -> bool:
    """An integer of any width or a string; the null type stands for a column of NULLs."""
    kind = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    return bool(pa.types.is_integer(kind) or is_text or pa.types.is_null(kind))


def _check_keys(item: BatchFile, columns: Sequence[Column], key_columns: Sequence[str]) -> None:
    """A file that is not proved to be inserts needs keys; whether a row really does is seen when it is read."""
    held = {c.name.lower() for c in columns}
    for key in key_columns:
        if key.lower() not in held:
            raise TableError(
                "key-column-absent",
                f"{item.file.entry.path}: key column {key!r} is neither in this file nor in the table",
                file=item.file.entry.path,
                column=key,
            )


def _ranges(files: Sequence[BatchFile], columns: Sequence[Column], key_columns: Sequence[str]) -> list[Range]:
    types = {c.name.lower(): c for c in columns}
    found = []
    for key in key_columns:
        column = types[key.lower()]
        if column.type in ("float", "double", "binary", "boolean"):
            continue  # statistics leave NaN out, and bounds of the others hold nothing back
        bounds = _range(files, column)
        if bounds is not None:
            found.append(bounds)
    return found


def _range(files: Sequence[BatchFile], column: Column) -> Range | None:
    low: Any = None
    high: Any = None
    nulls = False
    for item in files:
        if item.file.footer.num_rows == 0:
            continue
        own = next((c for c in item.columns if c.name.lower() == column.name.lower()), None)
        if own is None or own.table_type is None:
            nulls = True
            continue
        if own.note or own.encoding or own.table_type != column.type:
            return None
        chunks = _statistics(item.file.footer, own.name)
        if chunks is None:
            return None
        for chunk in chunks:
            nulls = nulls or not chunk.has_null_count or chunk.null_count > 0
            if not chunk.has_min_max:
                continue  # all of it NULL: `_statistics` lets nothing else through
            try:
                if not _bounding(chunk.min) or not _bounding(chunk.max):
                    return None
            except (OverflowError, ValueError):  # a day that Python has no name for
                return None
            low = chunk.min if low is None or chunk.min < low else low
            high = chunk.max if high is None or chunk.max > high else high
    if low is None:
        return None
    return Range(column.name, low, high, nulls, column.type)


def _bounding(value: Any) -> bool:
    if isinstance(value, decimal.Decimal):
        return value.is_finite()
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return "\x00" not in value and value.isprintable()
    return isinstance(value, int | datetime.date) and not isinstance(value, bool)


def _statistics(footer: pq.FileMetaData, name: str) -> list[pq.Statistics] | None:
    """The statistics of every chunk of a top-level column that holds rows; None where one is missing."""
    index = next((i for i in range(footer.num_columns) if footer.schema.column(i).path == name), None)
    if index is None:
        return None
    found = []
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
        found.append(statistics)
    return found
