"""The input and output of an engine: plain data that can be pickled.

    ApplyPlan ─▶ RowWork ─▶ engine.run ─▶ RowResult (files written, nothing committed)
                              └ units ─▶ kernels

A kernel is a function from a unit to Arrow batches. It uses storage paths, and neither Spark nor threads. An error in
a row is a value (`errors.Rejected`) that `errors.Bad` carries, so that every engine reports the same error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from lakemirror.delta.statistics_columns import BY_DEFAULT, StatisticsColumns
from lakemirror.landing_zone.column_types import FileColumn
from lakemirror.landing_zone.reserved_columns import ADDED_COLUMNS, DELETED, START_AT
from lakemirror.landing_zone.row_markers import DELETE
from lakemirror.landing_zone.table_options import HARD, SOFT
from lakemirror.storage import Entry

Action = dict[str, Any]

FILE, ROW, MARKER = "__lakemirror_file__", "__lakemirror_row__", "__lakemirror_marker__"
NAMES = "__lakemirror_names__"
SEQUENCE, DEAD, DIED = "__lakemirror_sequence__", "__lakemirror_dead__", "__lakemirror_died__"
PLACES = (FILE, ROW, MARKER, NAMES, SEQUENCE, DEAD, DIED)
"""Columns that accompany keys in a fold: the change file's number, the row in it from 0, the row marker, the columns
that a partial row leaves out, the values of the sequence as a struct, and whether the table's row is a deleted one that
is kept, and since when. A table's columns may not have these names (`schema_evolution`).
"""


@dataclass(frozen=True)
class ChangeUnit:
    """Rows of one change file.

    `path`: the file to read. `name`: its path below the database, for messages. `number`: its position in the order of
    the table's change files. `columns`: from its footer. `constants`: values of columns from its partition folders.
    `row_groups`: those of the unit; None: all. `first_row`: number of the unit's first row in the file, from 0.
    `rows`, `bytes`: of the unit, according to the footer; the reader checks the number of rows.
    `listed`: the file as the landing zone's listing showed it. In a store, this content is read or none. `known`: the
    columns, in lower case, that its partial rows may name: those of the table with this file; None: all of the target.
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
    known: frozenset[str] | None = None


@dataclass(frozen=True)
class TargetColumn:
    """A column of the Delta table: logical name, name in the data files, type as Spark SQL writes it.

    `default`: the value, as a partition folder would spell it, of rows in files without the column; None: NULL.
    `field_id`: the Parquet field id of column mapping; None without it. `by_id`: data files are read by it (mode `id`).
    `stored` False: a key column whose type no change file has shown yet. It is NULL in every row, and neither the table
    nor its files have it. `zone`: the zone of times that name none.
    """

    name: str
    physical_name: str
    type: str
    field_id: int | None = None
    nullable: bool = True
    stored: bool = True
    by_id: bool = False
    zone: str = "UTC"
    default: str | None = None


@dataclass(frozen=True)
class Target:
    """The Delta table of an apply, with its columns after the apply.

    `path`: the table's folder. `partition_columns`, `key_columns`: column names, in the table's spelling. `vectors`:
    rows are deleted by deletion vectors; otherwise their files are rewritten without these rows. `feed`: the change
    data feed is written. `constraints`: names and SQL expressions of CHECK constraints, which only Spark can evaluate.
    `statistics`: the columns with statistics in the log. `unwritten`: columns of other writers, of types that no
    change file leads to. New rows are NULL in them, and rows that are written again keep their values. `version`: the
    only version of the table that may name the files that are written; None: any (`delta/data_files.py`).
    """

    path: str
    columns: tuple[TargetColumn, ...]
    partition_columns: tuple[str, ...] = ()
    key_columns: tuple[str, ...] = ()
    vectors: bool = True
    feed: bool = False
    constraints: tuple[tuple[str, str], ...] = ()
    statistics: StatisticsColumns = BY_DEFAULT
    unwritten: tuple[TargetColumn, ...] = ()
    version: int | None = None

    @cached_property
    def keys(self) -> tuple[TargetColumn, ...]:
        """The key columns, in the order of `key_columns`."""
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.key_columns)

    @cached_property
    def sources(self) -> Target:
        """The table with the columns that change files may have, without those that lakemirror adds (history.md)."""
        return replace(self, columns=tuple(each for each in self.columns if each.name not in ADDED_COLUMNS))

    @cached_property
    def reads_old_rows(self) -> bool:
        """True if applies read the table's old rows: it is a table of versions, or has soft deletes."""
        return not {START_AT, DELETED}.isdisjoint(column.name for column in self.columns)

    @property
    def whole(self) -> Target:
        """The table with all its columns, to write its rows again."""
        return replace(self, columns=(*self.columns, *self.unwritten), unwritten=())


@dataclass(frozen=True)
class Versioning:
    """How a table of versions is made (history.md, section 3).

    `track`: the columns whose changes begin a version; empty: all but the sequence. `sequence`: the columns that order
    the changes of a key; empty: files and rows do. `deletes`: HARD, SOFT or IGNORE. `modified`: by the name of a change
    file when it was written, in microseconds since the epoch. `memory`: the remembered changes, if there are some.
    `since`: with a sequence, the value of it, as texts, at which the versions of an earlier table folder end; empty:
    there is none. `was_off`: the table of versions lacks changes of a time when its option was off.
    """

    track: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()
    deletes: str = HARD
    modified: tuple[tuple[str, int], ...] = ()
    memory: Remembered | None = None
    since: tuple[str, ...] = ()
    was_off: bool = False


class Remembered(NamedTuple):
    """The table of remembered changes, which late ones need: its columns and its data files.

    `position`: the last applied file of the mirrored table. Changes of later files are of the batch itself: a process
    has ended between two commits. `since`: deletes of files up to this one count no more: another order held then.
    """

    target: Target
    files: tuple[Action, ...]
    position: int = 0
    since: int = 0


@dataclass(frozen=True)
class Ordering:
    """What deletes and the order of changes mean in a table that has such options (`kernels/ordered_fold.py`).

    `deletes`: HARD, SOFT or IGNORE. `sequence`: the columns that order the changes of a key; empty: files and rows do.
    `moment`: the time of the apply, in microseconds since the epoch. `all_keys`: the keys of inserts are looked up,
    too: their rows may be there as deleted ones, or inserts are upserts. `memory`: the remembered deletes, if there are
    some.
    """

    deletes: str = HARD
    sequence: tuple[str, ...] = ()
    moment: int = 0
    all_keys: bool = True
    memory: Remembered | None = None

    @property
    def is_soft(self) -> bool:
        """True if deleted rows stay, with `__deleted` and `__deleted_at`."""
        return self.deletes == SOFT


@dataclass(frozen=True)
class HistoryWork:
    """What a history target does with the changes of a batch (history.md section 3).

    `mode`: CHANGES, SCD2 or LATE. `folder`: the table folder, to which the files' names are relative. `applied_at`: the
    time of the apply, in microseconds since the epoch. `versioning`: of SCD2. `remembers`: of LATE, the
    row markers of the changes that are remembered; `versions`: where there are partial rows among them, the work of the
    versions from which they take values.
    """

    mode: str
    folder: str
    applied_at: int
    versioning: Versioning | None = None
    remembers: tuple[int, ...] = (DELETE,)
    versions: RowWork | None = None


@dataclass(frozen=True)
class RowWork:
    """The row work of one apply.

    `append_only`: according to the footers, every change is an insert. If a row is not, it is Bad with `try_as`
    mixed, and the batch is planned again without this promise. `default_marker`: the marker of rows without
    one. `candidates`: `add` actions of the data files that may hold a key of the batch. `partial`: a file may have
    partial rows (contract section 3a). `null_if_missing`: one without a row in the table gets NULLs; else it is
    Bad. `ordering`: for a table with options of deletes or order. `history`: the work of a history target; None:
    that of the mirrored table. `also`: the works of other targets with the same changes, which are read once for all
    where they fit into memory. `inserts_replace`: an insert is an upsert.
    """

    target: Target
    changes: tuple[ChangeUnit, ...]
    append_only: bool
    default_marker: int
    candidates: tuple[Action, ...] = ()
    partial: bool = False
    null_if_missing: bool = False
    ordering: Ordering | None = None
    history: HistoryWork | None = None
    also: tuple[RowWork, ...] = ()
    inserts_replace: bool = False

    @property
    def rows(self) -> int:
        """The number of changes, according to the footers."""
        return sum(unit.rows for unit in self.changes)


@dataclass(frozen=True)
class RowResult:
    """What an engine did: data files that are written and not committed yet.

    `adds`: `add` actions of new files. `deleted`: the deleted row numbers of each candidate (int64, ascending), by its
    `path`; rows that were already deleted may be among them. `rewritten`: paths of the candidates that `adds`
    replaces, if the table has no deletion vectors. `changes`: `cdc` actions of the change data feed. `missing`: how
    many partial rows got NULLs, because there was no row with their key. `ignored`: deletes that were only counted;
    `late`: changes that came after a change of their key with a higher sequence; `beyond`: late changes that are older
    than what is remembered of their key. `also`: the results of `RowWork.also`.
    """

    adds: tuple[Action, ...] = ()
    deleted: Mapping[str, pa.Array] = field(default_factory=dict)
    rewritten: tuple[str, ...] = ()
    changes: tuple[Action, ...] = ()
    missing: int = 0
    ignored: int = 0
    late: int = 0
    beyond: int = 0
    also: tuple[RowResult, ...] = ()


class RewriteWork(NamedTuple):
    """A compaction: data files become fewer, without their deleted rows. `files`: `add` actions with their vectors."""

    target: Target
    files: tuple[Action, ...]
    into: int
    """The number of new files."""
