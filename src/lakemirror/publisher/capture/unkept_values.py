"""A value of the source that change files cannot hold, as an error with the row that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from lakemirror.errors import TableError
from lakemirror.landing_zone.delimited.values import BadValue
from lakemirror.publisher.capture.source_tables import SourceColumn
from lakemirror.publisher.capture.value_casts import Conversion

INFINITE = "it is infinite"
"""Why a date or time is refused that an option makes NULL."""
ZERO = "it is no date"
"""The same of a date with zeros in it."""


def kept(
    table: str, column: SourceColumn, convert: Conversion, values: pa.Array, key_of: Callable[[int], Iterable[Any]]
) -> pa.Array:
    """The values of a column as `convert` gives them. `capture-value` with the key of the row whose value cannot be
    kept, which `key_of` gives for the row's place."""
    try:
        return convert(values)
    except BadValue as bad:
        key = ", ".join(str(part) for part in key_of(bad.place))
        raise _value_error(table, column, key or "without key", bad) from bad


def _value_error(table: str, column: SourceColumn, key: str, bad: BadValue) -> TableError:
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
