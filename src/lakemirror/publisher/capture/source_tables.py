"""Tables of a source and their columns, whatever database it is: what a load and the stream must know of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.source_form import SourceForm
from lakemirror.publisher.capture.table_folders import matches
from lakemirror.publisher.declared_types import named_type

Conversion = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class ValueOptions:
    """What a user says of values. `numeric`: the type of numbers without a scale; None: text. `infinite_null`: infinite
    dates and NaN in a decimal become NULL, else they are errors.
    """

    numeric: pa.DataType | None = None
    infinite_null: bool = False


@dataclass(frozen=True)
class SourceColumn:
    """A column of the source. `load_expression`: SQL in its place in a load. `key`: it is a key column. `warning`:
    what is said once. `refused`: why its values cannot be kept; empty if they can.

    `from_load`, `from_event` raise `BadValue` at the first value that cannot be kept.
    """

    name: str
    type_name: str
    arrow_type: pa.DataType
    key: bool
    load_expression: str
    from_load: Conversion = field(repr=False)
    from_event: Conversion = field(repr=False)
    warning: str = ""
    refused: str = ""


@dataclass(frozen=True)
class SourceTable:
    """A table of the source. `qualified`: its name as SQL writes it; `number`: lower for an older table. `key`: the
    columns that identify a row. `rows`: the database's estimate. `left_out`: columns that the log does not have, as
    generated ones. `problem`: why it cannot be captured. `form`: what tells this table from another one of its name.
    """

    schema: str
    name: str
    qualified: str
    number: int
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...]
    is_partitioned: bool = False
    rows: int = 0
    left_out: tuple[str, ...] = ()
    problem: TableError | None = None
    form: SourceForm = field(default_factory=SourceForm)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is said once about its columns."""
        generated = (f"column {name} is left out: the stream does not have it" for name in self.left_out)
        return (*(column.warning for column in self.columns if column.warning), *generated)


def value_options(options: CaptureOptions) -> ValueOptions:
    """What the options say of values. `input-invalid`, `setting-invalid` for a type that is no decimal."""
    numeric = named_type(options.numeric) if options.numeric else None
    if numeric is not None and not pa.types.is_decimal(numeric):
        raise LakemirrorError(
            "input-invalid", f"{options.numeric} is no decimal", hint="Give one, such as --numeric decimal(38,9)."
        )
    return ValueOptions(numeric, options.infinite == "null")


def followed(tables: Iterable[SourceTable], said: Mapping[str, Any] | None) -> list[SourceTable]:
    """The tables that the landing zone's `_capture.json` names; all, where there is none."""
    known = None if said is None else {each.get("table") for each in said.get("tables", [])}
    return [table for table in tables if known is None or f"{table.schema}.{table.name}" in known]


def is_wanted(schema: str, name: str, qualified: str, options: CaptureOptions) -> bool:
    """True if the options name the table."""
    named = (schema, name, qualified)
    return matches(*named, options.tables) and not matches(*named, options.exclude)
