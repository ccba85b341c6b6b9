"""What an engine is asked to do and what it gives back: plain data that can be pickled.

    ApplyPlan ─▶ RowWork ─▶ engine.run ─▶ RowResult (files written, nothing committed)
                              └ units ─▶ kernels

A kernel is a pure Arrow function from a unit to Arrow batches. It knows storage paths, nothing of Spark, nothing of
threads. Whatever is wrong with a row is a value (`BadRow`), so that every engine gives the same error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakemirror.landing_zone.column_types import FileColumn
from lakemirror.storage import Entry

Action = dict[str, Any]

FILE, ROW, MARKER = "__lakemirror_file__", "__lakemirror_row__", "__lakemirror_marker__"
"""Columns that go with a key through a fold: number of the change file, row in it from 0, row marker. Columns of such
names are refused (`schema_evolution`)."""


@dataclass(frozen=True)
class ChangeUnit:
    """Rows of one change file.

    `path`: where the file is read. `name`: its path below the database, for messages. `number`: its place in the
    order of all change files of the table. `columns`: as its footer shows them. `constants`: columns that its
    partition folders give. `row_groups`: those of the unit, None all; `first_row`: number of the unit's first row in
    the file, from 0. `rows`, `bytes`: of the unit, as the footer says; the reader checks the number of rows. `listed`:
    the file as the landing zone's listing showed it: in a store, this content is read or none.
    """

    path: str
    name: str
    number: int
    columns: tuple[FileColumn, ...]
    rows: int
    bytes: int
    constants: tuple[tuple[str, str | None], ...] = ()
    row_groups: tuple[int, ...] | None = None
    first_row: int = 0
    listed: Entry | None = None


@dataclass(frozen=True)
class TargetColumn:
    """A column of the Delta table: logical name, name in the data files, type as Spark SQL writes it, Parquet field id
    (of column mapping; None without). `stored` False: a key column that no file has typed yet; it is NULL in every row,
    and neither the table nor its files have it."""

    name: str
    physical_name: str
    type: str
    field_id: int | None = None
    nullable: bool = True
    stored: bool = True


@dataclass(frozen=True)
class Target:
    """The Delta table that rows go into, with its columns after the apply.

    `path`: the table's folder. `partition_columns`, `key_columns`: names of columns, in the table's spelling.
    `vectors`: rows are deleted by deletion vectors; otherwise their files are written again without them. `feed`: the
    change data feed is written. `constraints`: names and SQL expressions of CHECK constraints; only Spark can evaluate
    them.
    """

    path: str
    columns: tuple[TargetColumn, ...]
    partition_columns: tuple[str, ...] = ()
    key_columns: tuple[str, ...] = ()
    vectors: bool = True
    feed: bool = False
    constraints: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class BadRow:
    """Why a change file cannot be applied: a code of `errors.CODES`, and where. `row` counts from 1, None unknown."""

    code: str
    file: str
    message: str
    row: int | None = None
    column: str | None = None


@dataclass(frozen=True)
class RowWork:
    """The row work of one apply.

    `append_only`: the footers promise that every change is an insert; a row that is none is BadRow
    `marker-statistics`, and the batch is planned again as mixed. `default_marker`: of rows without one.
    `candidates`: `add` actions of the data files that may hold a key of the batch; empty for a new table.
    """

    target: Target
    changes: tuple[ChangeUnit, ...]
    append_only: bool
    default_marker: int
    candidates: tuple[Action, ...] = ()

    @property
    def rows(self) -> int:
        """Changes, as the footers count them."""
        return sum(unit.rows for unit in self.changes)


@dataclass(frozen=True)
class RowResult:
    """What an engine did: data files that are written and not committed yet.

    `adds`: `add` actions of new files. `deleted`: row numbers (int64, ascending) that are deleted of each candidate,
    by its `path`; rows that its old vector holds may be among them. `rewritten`: paths of candidates that `adds`
    replaces, where the table has no vectors. `changes`: `cdc` actions of the change data feed. `error`: then nothing
    else holds, and what was written is removed.
    """

    adds: tuple[Action, ...] = ()
    deleted: Mapping[str, pa.Array] = field(default_factory=dict)
    rewritten: tuple[str, ...] = ()
    changes: tuple[Action, ...] = ()
    error: BadRow | None = None


@dataclass(frozen=True)
class RewriteWork:
    """Data files that become fewer, without their deleted rows: compaction. `files`: `add` actions with vectors."""

    target: Target
    files: tuple[Action, ...]
    into: int
    """How many files they become."""
