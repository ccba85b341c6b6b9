"""Checks one data file: it exists, it can be read, and all that the log and the footer say of it is true.

add action ─▶ size ─▶ footer ─▶ rows, decoded in batches ─▶ statistics ─▶ vector ─▶ living rows for whoever asks
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.log import Action
from lakemirror.storage.place import Place, opened, place
from lakemirror.verify import vectors
from lakemirror.verify.bounds import Tally, footer_problems, statistics_problems
from lakemirror.verify.columns import TableColumn, in_type, places
from lakemirror.verify.finding import Finding, is_refused
from lakemirror.verify.log_replay import exact_json, real_path
from lakemirror.verify.row_batches import parquet_file, row_batches

Sink = Callable[[pa.RecordBatch], None]
"""Takes living rows, in the table's columns and types."""


@dataclass
class FileReport:
    """The result for one data file of a table. `rows`: its living rows."""

    table: str = ""
    file: str = ""
    rows: int = 0
    findings: list[Finding] = field(default_factory=list)

    def found(self, code: str, message: str) -> None:
        """Adds a finding about the file."""
        self.findings.append(Finding(code, self.table, f"{self.file}: {message}", self.file))


def check_file(
    folder: Place,
    table: str,
    add: Action,
    columns: tuple[TableColumn, ...],
    *,
    sink: Sink | None = None,
    before: Sequence[Mapping[str, Any]] = (),
    rows: bool = True,
) -> FileReport:
    """The findings of one `add` action. Never raises for the file.

    `sink` takes its living rows. `before`: vectors that the file had before its present one. `rows` False: only what
    costs no decoding: presence, size, footer, vector.
    """
    report = FileReport(table, real_path(add["path"]))
    path = _path(folder, add)
    try:
        size = path.stat().st_size
    except OSError as error:
        code = "verify-impossible" if is_refused(error) else "verify-file-missing"
        report.found(code, f"it cannot be found: {error.strerror}")
        return report
    if size != int(add["size"]):
        report.found("verify-file-size", f"it has {size} bytes where the log says {add['size']}")
    stats = _statistics(add, report)
    tally = Tally()
    try:
        with parquet_file(opened(path), page_checksum_verification=True) as file:
            gone = _vector(folder, add, file.metadata.num_rows, before, report)
            if not rows:
                _compare_counts(stats, file.metadata.num_rows, report)
                report.rows = file.metadata.num_rows - len(gone)
                return report
            for batch, first in _decoded(file, columns, tally, report):
                living = _living(batch, first, gone)
                report.rows += living.num_rows
                if sink is not None and living.num_rows:
                    sink(_in_columns(living, columns, file.schema_arrow, add))
            if file.metadata.num_rows != tally.rows:
                message = f"the footer says {file.metadata.num_rows} rows and has {tally.rows}"
                report.found("verify-footer-untrue", message)
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
        code = "verify-impossible" if is_refused(error) else "verify-file-unreadable"
        report.found(code, f"it cannot be read: {next(iter(str(error).splitlines()), error)}")
        return report
    for code, message in statistics_problems(stats, tally, columns, deleted=len(gone)):
        report.found(code, message)
    return report


def living_rows(folder: Place, add: Action, columns: tuple[TableColumn, ...]) -> Iterator[pa.RecordBatch]:
    """The living rows of one `add` action in batches, in the table's columns and types. Nothing is checked.

    ArrowException, OSError or ValueError where the file or its vector cannot be read.
    """
    path = _path(folder, add)
    with parquet_file(opened(path)) as file:
        gone = np.empty(0, np.uint64)
        if add.get("deletionVector"):
            bitmap, code, message = vectors.read(folder, add["deletionVector"])
            if code:
                raise ValueError(f"{path}: its deletion vector: {message}")
            gone = np.array(bitmap.to_array(), np.uint64)
        for batch, first in _decoded(file, columns, Tally(), FileReport()):
            living = _living(batch, first, gone)
            if living.num_rows:
                yield _in_columns(living, columns, file.schema_arrow, add)


def _path(folder: Place, add: Action) -> Place:
    return place(add["path"]) if ":/" in add["path"] else folder / real_path(add["path"])


def _statistics(add: Action, report: FileReport) -> Mapping[str, Any]:
    try:
        return exact_json(add["stats"]) if add.get("stats") else {}
    except (ValueError, TypeError, ArithmeticError) as error:
        report.found("verify-statistics-unreadable", f"its statistics cannot be read: {error}")
        return {}


def _compare_counts(stats: Mapping[str, Any], rows: int, report: FileReport) -> None:
    promised = stats.get("numRecords", rows)
    if promised != rows:
        report.found("verify-row-count", f"statistics say {promised} rows, the footer {rows}")


def _decoded(
    file: pq.ParquetFile, columns: tuple[TableColumn, ...], tally: Tally, report: FileReport
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Batches of rows, each with the number of its first row; every row group is compared with its footer."""
    at = places(columns, file.schema_arrow)
    for index in range(file.num_row_groups):
        group = Tally()
        for batch in row_batches(file, index):
            batch.validate(full=True)  # text that is no UTF-8 is found here
            first = tally.rows + group.rows
            group.add(batch, at)
            yield batch, first
        for problem in footer_problems(file.metadata.row_group(index), group, at, file.schema_arrow):
            report.found("verify-footer-untrue", f"footer of row group {index}: {problem}")
        tally.join(group)


def _vector(
    folder: Place, add: Action, rows: int, before: Sequence[Mapping[str, Any]], report: FileReport
) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The numbers of the rows that the file's deletion vector deletes."""
    if not add.get("deletionVector"):
        return np.empty(0, np.uint64)
    bitmap, code, message = vectors.read(folder, add["deletionVector"])
    if code:
        report.found(code, f"its deletion vector: {message}")
    if bitmap and bitmap.max() >= rows:
        message = f"its deletion vector deletes row {bitmap.max()}, and the file has {rows} rows"
        report.found("verify-vector-outside", message)
    for earlier in before[-1:]:
        old, wrong, _ = vectors.read(folder, earlier)
        if not wrong and old - bitmap:
            message = f"its deletion vector lacks {len(old - bitmap)} rows that an earlier vector of the file deletes"
            report.found("verify-vector-foreign", message)
    numbers = np.array(bitmap.to_array(), np.uint64)
    return numbers[numbers < np.uint64(rows)]


def _living(batch: pa.RecordBatch, first: int, gone: np.ndarray[Any, np.dtype[np.uint64]]) -> pa.RecordBatch:
    if not len(gone):
        return batch
    begin, end = np.searchsorted(gone, [first, first + batch.num_rows])
    if begin == end:
        return batch
    mask = np.ones(batch.num_rows, bool)
    mask[(gone[begin:end] - np.uint64(first)).astype(np.int64)] = False
    return batch.filter(pa.array(mask))


def _in_columns(
    batch: pa.RecordBatch, columns: tuple[TableColumn, ...], schema: pa.Schema, add: Action
) -> pa.RecordBatch:
    at = places(columns, schema)
    values = add.get("partitionValues") or {}
    arrays, names = [], []
    for column in columns:
        if column.type is None:
            continue
        if column.partition:
            text = values.get(column.physical, values.get(column.name))
            array = _partition_value(text, column.type, batch.num_rows)
        elif column.physical in at:
            array = in_type(batch.column(at[column.physical]), column.type)
        else:
            array = pa.nulls(batch.num_rows, column.type)
        arrays.append(array)
        names.append(column.name)
    return pa.RecordBatch.from_arrays(arrays, names)


def _partition_value(text: str | None, type_: pa.DataType, rows: int) -> pa.Array:
    """A partition value of an `add` action in the column's type; the empty text is NULL (Delta protocol)."""
    if text is None or text == "":
        return pa.nulls(rows, type_)
    value: Any = text
    if pa.types.is_decimal(type_):
        value = Decimal(text)
    elif pa.types.is_binary(type_):
        value = text.encode()
    elif pa.types.is_boolean(type_):
        value = text.lower() == "true"
    if not isinstance(value, str):
        return pa.repeat(pa.scalar(value, type_), rows)
    if pa.types.is_timestamp(type_):
        return pa.repeat(pa.scalar(text.replace(" ", "T")).cast(pa.timestamp("us")).cast(type_), rows)
    return pa.repeat(pa.scalar(text).cast(type_), rows)
