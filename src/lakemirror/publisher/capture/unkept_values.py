"""A value of the source that change files cannot hold, as an error with the row that has it."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from lakemirror.errors import TableError
from lakemirror.landing_zone.delimited.values import BadValue

INFINITE = "it is infinite"
"""Why a date or time is refused that an option makes NULL."""
ZERO = "it is no date"
"""The same of a date with zeros in it."""


class Column(Protocol):
    """A column of the source: its name, its type there, and the type in change files."""

    @property
    def name(self) -> str: ...
    @property
    def type_name(self) -> str: ...
    @property
    def arrow_type(self) -> Any: ...


def value_error(table: str, column: Column, key: str, bad: BadValue) -> TableError:
    """`capture-value`: the value of this row cannot be kept. `key`: the row's key as people read it."""
    value = f" {bad.text[:100]!r}" if bad.text else ""
    option = "--infinite null writes NULL for it" if _is_infinite(bad) else ""
    if not option and column.type_name.startswith("numeric") and pa.types.is_decimal(column.arrow_type):
        option = "give more digits by --numeric decimal(38,S), or leave the option out: numbers become text"
    return TableError(
        "capture-value",
        f"{table}: row {key}: column {column.name} of type {column.type_name} has the value{value}, which cannot be "
        f"kept: {bad.why or 'it does not fit'}",
        hint=f"Correct the value in the source; or {option}." if option else None,
        table=table,
        column=column.name,
    )


def _is_infinite(bad: BadValue) -> bool:
    return bad.why in (INFINITE, ZERO) or bad.text in ("NaN", "Infinity", "-Infinity", "infinity", "-infinity")
