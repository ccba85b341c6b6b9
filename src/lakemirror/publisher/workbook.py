"""Rows of a spreadsheet (.xlsx): its first row names the columns, each column's cells decide its type."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Sequence
from typing import IO, Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.publisher.arrow_input import Types
from lakemirror.publisher.column_types import TypeWarning


def read_workbook(stream: IO[bytes], name: str, types: Types, sheet: str = "") -> pa.RecordBatchReader:
    """The rows of one sheet, the first where none is named. Formulas count as the values that were saved with them.

    Numbers become int64 where all are whole, else double; dates without a time become date32. A column of mixed
    cells becomes strings, with a TypeWarning. `types` are those of columns that are known. `excel-reader-missing`,
    `input-invalid`, `value-invalid`.
    """
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
            "input-invalid", f"{name}: has no sheet {sheet!r}", file=name, hint=f"It has {', '.join(book.sheetnames)}."
        )
    rows = list((book[sheet] if sheet else book.worksheets[0]).iter_rows(values_only=True))
    book.close()
    return _table(rows, name, types).to_reader()


def _table(rows: Sequence[Sequence[Any]], name: str, types: Types) -> pa.Table:
    while rows and all(cell is None for cell in rows[-1]):
        rows = rows[:-1]
    if not rows:
        raise LakemirrorError("input-invalid", f"{name}: the sheet is empty", file=name)
    width = max((place + 1 for row in rows for place, cell in enumerate(row) if cell is not None), default=0)
    header = [str(cell).strip() if cell is not None else "" for cell in rows[0][:width]]
    if not all(header):
        raise LakemirrorError(
            "input-invalid", f"{name}: column {header.index('') + 1} has no name in row 1", file=name, row=1
        )
    filled = [row for row in rows[1:] if any(cell is not None for cell in row)]
    arrays = []
    for place, column in enumerate(header):
        cells = [row[place] if place < len(row) else None for row in filled]
        arrays.append(_column(cells, column, name, types.get(column)))
    return pa.Table.from_arrays(arrays, names=header)


def _column(cells: list[Any], column: str, name: str, kind: pa.DataType | None) -> pa.Array:
    wanted = _kind(cells) if kind is None else kind
    if wanted is None:
        warnings.warn(f"column {column} holds cells of several kinds and is published as strings", TypeWarning, 3)
        wanted = pa.string()
    values = [_as(cell, wanted) for cell in cells]
    try:
        return pa.array(values, wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        place = next((place for place, value in enumerate(values) if not _fits(value, wanted)), 0)
        raise LakemirrorError(
            "value-invalid",
            f"{name}, row {place + 2}, column {column}: {str(cells[place])[:100]!r} is not {wanted}",
            file=name,
            row=place + 2,
            column=column,
            hint=f"Correct the cell, or publish the column as strings: --column {column}=string.",
        ) from error


def _kind(cells: list[Any]) -> pa.DataType | None:
    """The type that holds all cells; None where they are of several kinds."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if not kinds:
        return pa.null()
    if kinds <= {int, float}:
        whole = all(cell is None or (float(cell).is_integer() and abs(cell) < 2**53) for cell in cells)
        return pa.int64() if whole else pa.float64()
    if kinds <= {dt.datetime, dt.date}:
        days = all(not isinstance(cell, dt.datetime) or cell.time() == dt.time() for cell in cells if cell is not None)
        return pa.date32() if days else pa.timestamp("us")
    single = {bool: pa.bool_(), str: pa.string(), dt.time: pa.time64("us"), dt.timedelta: pa.duration("us")}
    return single.get(kinds.pop()) if len(kinds) == 1 else None


def _as(cell: Any, kind: pa.DataType) -> Any:
    """The cell as a value that Arrow takes for the type; as it is where there is none."""
    if cell is None:
        return None
    if pa.types.is_string(kind):
        if isinstance(cell, float) and cell.is_integer():
            return str(int(cell))
        return cell if isinstance(cell, str) else str(cell)
    if pa.types.is_date(kind) and isinstance(cell, dt.datetime) and cell.time() == dt.time():
        return cell.date()
    if pa.types.is_timestamp(kind) and type(cell) is dt.date:
        return dt.datetime.combine(cell, dt.time())
    if pa.types.is_integer(kind) and isinstance(cell, float) and cell.is_integer():
        return int(cell)
    if pa.types.is_decimal(kind) and isinstance(cell, int | float):
        import decimal

        return decimal.Decimal(repr(cell) if isinstance(cell, float) else cell)
    return cell


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


__all__ = ["read_workbook"]
