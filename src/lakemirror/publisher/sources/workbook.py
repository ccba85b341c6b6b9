"""Rows of a spreadsheet (.xlsx): its first row names the columns, each column's cells decide its type."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.landing_zone.zoneless import NoInstant, Zones, instants
from lakemirror.publisher.declared_types import TypeWarning
from lakemirror.publisher.disk_rows import DiskParts
from lakemirror.publisher.exact_values import MOST_DIGITS
from lakemirror.publisher.sources.text_types import Choice, KnownTypes, hint_for_another_type, shown

ROWS = 5_000  # in a part
CELL_BYTES = 64  # of memory, about
WHOLE_DOUBLES = 2**53  # a double gives back every whole number up to this one

_Row = tuple[int, Sequence[Any]]  # its number in the sheet, from 1, and its cells


def read_workbook(
    stream: IO[bytes], name: str, known: KnownTypes, sheet: str, tell: Callable[[Choice], None]
) -> pa.RecordBatchReader:
    """The rows of one sheet, the first where none is named. Formulas count as the values that were saved with them.

    Whole numbers become int64, or decimal(38,0); other numbers double, as the spreadsheet has them; dates without a
    time date32. A column of mixed cells becomes strings, with a TypeWarning. Each column's type is told. Memory is
    bounded.
    `excel-reader-missing`, `input-invalid`, `columns-ambiguous`, `value-invalid`.
    """
    rows = _rows(stream, name, sheet)
    header = _header(next(rows, None), name)
    guesses = {column: _CellTypes() for column in header if known.of(column) is None}
    parts = DiskParts()
    while part := list(itertools.islice(rows, ROWS)):
        for _, cells in part:
            if any(cell is not None for cell in cells[len(header) :]):
                raise _nameless(name, next(i for i, cell in enumerate(cells) if i >= len(header) and cell is not None))
        for place, column in enumerate(header):
            if column in guesses:
                guesses[column].look_at(_cells(part, place))
        parts.add(part, len(part) * len(header) * CELL_BYTES)
    choices = [known.choice(column) or guesses[column].choice(column) for column in header]
    for choice in choices:
        tell(choice)
    schema = pa.schema([(each.column, each.kind) for each in choices])
    return pa.RecordBatchReader.from_batches(schema, _batches(parts, schema, name, known.zones))


def _rows(stream: IO[bytes], name: str, sheet: str) -> Iterator[_Row]:
    """The rows that hold something."""
    try:
        import openpyxl
    except ImportError as error:
        raise SetupError("excel-reader-missing", "openpyxl is not installed, which reads .xlsx files") from error
    try:
        book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
    except Exception as error:  # zip, XML and key errors of a broken file
        raise LakemirrorError("input-invalid", f"{name}: is no readable .xlsx file: {error}", file=name) from error
    if sheet and sheet not in book.sheetnames:
        raise LakemirrorError(
            "input-invalid",
            f"{name}: has no sheet {sheet!r}",
            file=name,
            hint=f"Name one of its sheets: {', '.join(book.sheetnames)}.",
        )
    for number, cells in enumerate((book[sheet] if sheet else book.worksheets[0]).iter_rows(values_only=True), start=1):
        if any(cell is not None for cell in cells):
            yield number, cells
    book.close()


def _header(row: _Row | None, name: str) -> list[str]:
    if row is None:
        raise LakemirrorError("input-invalid", f"{name}: the sheet is empty", file=name)
    number, cells = row
    if number > 1:
        raise _nameless(name, 0)
    width = max(place + 1 for place, cell in enumerate(cells) if cell is not None)
    header = [str(cell).strip() if cell is not None else "" for cell in cells[:width]]
    if not all(header):
        raise _nameless(name, header.index(""))
    seen: dict[str, str] = {}
    for column in header:
        if column.lower() in seen:
            raise LakemirrorError(
                "columns-ambiguous", f"{name}: row 1 names {seen[column.lower()]!r} and {column!r}", file=name, row=1,
                column=column, hint="Rename one of the two columns.",
            )  # fmt: skip
        seen[column.lower()] = column
    return header


def _nameless(name: str, place: int) -> LakemirrorError:
    return LakemirrorError(
        "column-name-invalid", f"{name}: column {place + 1} has no name in row 1", file=name, row=1,
        hint="Give every column a name in the first row.",
    )  # fmt: skip


def _cells(rows: Sequence[_Row], place: int) -> list[Any]:
    return [cells[place] if place < len(cells) else None for _, cells in rows]


class _CellTypes:
    """What the cells of one column are, part after part."""

    def __init__(self) -> None:
        self._kinds: set[type] = set()
        self._has_time = False
        self._has_fraction = False
        self._largest = 0  # of the whole numbers

    def look_at(self, cells: Iterable[Any]) -> None:
        for cell in cells:
            if cell is None:
                continue
            self._kinds.add(type(cell))
            if type(cell) in (int, float):
                if isinstance(cell, int) or (cell.is_integer() and abs(cell) <= WHOLE_DOUBLES):
                    self._largest = max(self._largest, abs(int(cell)))
                else:
                    self._has_fraction = True
            elif isinstance(cell, dt.datetime):
                self._has_time = self._has_time or cell.time() != dt.time()

    def choice(self, column: str) -> Choice:
        kinds = self._kinds
        if not kinds:
            return Choice(column, pa.null(), "no value yet")
        if kinds <= {int, float}:
            return self._number(column)
        if kinds <= {dt.datetime, dt.date}:
            kind = pa.timestamp("us") if self._has_time else pa.date32()
            return Choice(column, kind, "dates and times" if self._has_time else "dates")
        single = {bool: pa.bool_(), str: pa.string(), dt.time: pa.time64("us"), dt.timedelta: pa.duration("us")}
        (kind, reason) = (single.get(next(iter(kinds))), "") if len(kinds) == 1 else (None, "")
        if kind is not None:
            return Choice(column, kind, reason)
        warnings.warn(f"column {column} holds cells of several kinds and is published as strings", TypeWarning, 3)
        return Choice(column, pa.string(), "cells of several kinds")

    def _number(self, column: str) -> Choice:
        digits = len(str(self._largest))
        if self._has_fraction and self._largest <= WHOLE_DOUBLES:
            return Choice(column, pa.float64(), "numbers of a spreadsheet are doubles")
        if self._has_fraction or digits > MOST_DIGITS:
            return Choice(column, pa.string(), f"{digits} digits" + " beside fractions" * self._has_fraction)
        if self._largest < 2**63:
            return Choice(column, pa.int64(), "whole numbers")
        return Choice(column, pa.decimal128(MOST_DIGITS, 0), f"{digits} digits")


def _batches(parts: Iterable[list[_Row]], schema: pa.Schema, name: str, zones: Zones) -> Iterator[pa.RecordBatch]:
    for part in parts:
        arrays = [_column(part, place, field, name, zones) for place, field in enumerate(schema)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(rows: Sequence[_Row], place: int, field: pa.Field, name: str, zones: Zones) -> pa.Array:
    cells = _cells(rows, place)
    try:
        values = [_as(cell, field.type) for cell in cells]
        if pa.types.is_timestamp(field.type) and field.type.tz:
            return _instants(pa.array(values, pa.timestamp("us")), field, zones)
        return pa.array(values, field.type)
    except NoInstant as error:
        raise _bad_cell(name, rows[error.row][0], field.name, str(error)) from error
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
        bad = next((bad for bad, cell in enumerate(cells) if not _fits(cell, field.type)), 0)
        why = f"{str(cells[bad])[:100]!r} is not {shown(field.type)}"
        raise _bad_cell(name, rows[bad][0], field.name, why) from error


def _instants(local: pa.Array, field: pa.Field, zones: Zones) -> pa.Array:
    """The cells of a column of instants; that they have no zone is noted."""
    zone = zones.of(field.name)
    if local.null_count < len(local):
        zones.met[field.name] = zone
    return instants(local, zone).cast(field.type)


def _bad_cell(name: str, row: int, column: str, why: str) -> LakemirrorError:
    return LakemirrorError(
        "value-invalid", f"{name}, row {row}, column {column}: {why}", file=name, row=row, column=column,
        hint=hint_for_another_type(column),
    )  # fmt: skip


def _as(cell: Any, kind: pa.DataType) -> Any:
    """The cell as a value that Arrow takes for the type. ValueError for another kind of value, and for a lost digit."""
    t = pa.types
    if cell is None:
        return None
    if t.is_string(kind) or t.is_large_string(kind):
        if isinstance(cell, float) and cell.is_integer():
            return str(int(cell))
        return cell if isinstance(cell, str) else str(cell)
    if t.is_date(kind) or t.is_timestamp(kind):
        return _as_moment(cell, t.is_date(kind))
    if t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind):
        return _as_number(cell, kind)
    if t.is_boolean(kind) and not isinstance(cell, bool):
        raise ValueError("no truth value")
    return cell


def _as_moment(cell: Any, is_day: bool) -> Any:
    if not isinstance(cell, dt.date):
        raise ValueError("no date")
    if not isinstance(cell, dt.datetime):
        return cell if is_day else dt.datetime.combine(cell, dt.time())
    if is_day and cell.time() != dt.time():
        raise ValueError("a time of day")
    return cell.date() if is_day else cell


def _as_number(cell: Any, kind: pa.DataType) -> Any:
    if type(cell) not in (int, float):
        raise ValueError("no number")
    if pa.types.is_decimal(kind):
        return decimal.Decimal(repr(cell))
    if pa.types.is_integer(kind):
        if int(cell) != cell:
            raise ValueError("a fraction")
        return int(cell)
    if pa.types.is_float32(kind) and pa.scalar(cell, kind).cast(pa.string()).as_py() not in (repr(cell), f"{cell:g}"):
        raise ValueError("more digits than a float has")
    return cell


def _fits(cell: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([_as(cell, kind)], kind)
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError):
        return False
    return True
