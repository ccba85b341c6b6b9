"""Tables of a source and their columns, whatever database it is: what a load and the stream must know of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakemirror.errors import TableError
from lakemirror.publisher.capture.source_form import SourceForm
from lakemirror.publisher.capture.value_casts import Conversion, cast


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
class ColumnRule:
    """How a type of the source becomes a column of change files. `load`: SQL, in which `{}` is the column. `loaded`,
    `streamed`: conversions; None: the value as it arrives. `warning`, `refused`: said of the column and its type.
    """

    arrow_type: pa.DataType = field(default_factory=pa.string)
    load: str = "{}"
    loaded: Conversion | None = None
    streamed: Conversion | None = None
    warning: str = ""
    refused: str = ""

    def column(self, name: str, type_name: str, sql: str, key: bool) -> SourceColumn:
        """The column of this name. `sql`: it as SQL writes it."""
        plain, described = cast(self.arrow_type), f"column {name} of type {type_name}"
        return SourceColumn(
            name,
            type_name,
            self.arrow_type,
            key,
            self.load.replace("{}", sql),
            self.loaded or plain,
            self.streamed or plain,
            f"{described} {self.warning}" if self.warning else "",
            f"{described} {self.refused}" if self.refused else "",
        )


@dataclass(frozen=True)
class SourceTable:
    """A table of the source. `qualified`: its name as SQL writes it; `number`: lower for an older table. `key`: the
    columns that identify a row. `rows`: the database's estimate. `left_out`: columns that the log does not have, as
    generated ones. `problem`: why it cannot be captured. `form`: what tells this table from another one of its name.
    `denied`: what the role may not do with it, each with the statement that allows it.
    """

    schema: str
    name: str
    qualified: str
    number: int
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...]
    rows: int = 0
    left_out: tuple[str, ...] = ()
    problem: TableError | None = None
    form: SourceForm = field(default_factory=SourceForm)
    denied: tuple[tuple[str, str], ...] = ()

    @property
    def id(self) -> tuple[str, str]:
        """The schema and the name, by which a capture knows the table."""
        return self.schema, self.name

    @property
    def title(self) -> str:
        """The name as messages and options have it: `schema.table`."""
        return f"{self.schema}.{self.name}"

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns and types of its change files."""
        return pa.schema([(column.name, column.arrow_type) for column in self.columns])

    @property
    def refused(self) -> SourceColumn | None:
        """The first column whose values cannot be kept."""
        return next((column for column in self.columns if column.refused), None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is said once about its columns."""
        generated = (f"column {name} is left out: the stream does not have it" for name in self.left_out)
        return (*(column.warning for column in self.columns if column.warning), *generated)

    def error(self, code: str, message: str, hint: str, column: str | None = None) -> TableError:
        """An error of this table."""
        return TableError(code, message, hint=hint, table=self.title, column=column)


def followed(tables: Iterable[SourceTable], said: Mapping[str, Any] | None) -> list[SourceTable]:
    """The tables that the landing zone's `_capture.json` names; all, where there is none."""
    known = None if said is None else {each.get("table") for each in said.get("tables", [])}
    return [table for table in tables if known is None or table.title in known]
