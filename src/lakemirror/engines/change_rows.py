"""What all engines share around the kernels: rows to insert, removal of written files, errors with a code.

units ─▶ changes_of ─▶ kept_batches: rows to insert, checked for NOT NULL ─▶ write kernel
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from lakemirror.delta.data_files import data_file
from lakemirror.delta.statistics import record_count
from lakemirror.engines.fold_passes import FoldedBatch
from lakemirror.engines.kernels.data_rows import arrow_type
from lakemirror.engines.kernels.read import read_changes
from lakemirror.engines.kernels.row_reader import Changes
from lakemirror.engines.memory_budget import MemoryBudget
from lakemirror.engines.row_work import Action, ChangeUnit, RowWork, Target, TargetColumn
from lakemirror.errors import LakemirrorError, Rejected
from lakemirror.keys.key_values import whole_numbers


class Bad(Exception):
    """Ends the work of an engine: a change file cannot be applied."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(rejected.message)
        self.rejected = rejected


class NewRows(Protocol):
    """Gives inserted rows their type in the change data feed."""

    def new_rows(self, rows: pa.Table, firsts: np.ndarray) -> pa.Table: ...


class Written:
    """The files that an attempt has written, so that they can be removed if it fails."""

    def __init__(self, target: Target) -> None:
        self._table = target.path
        self._paths: list[str] = []

    def keep(self, actions: Sequence[Action]) -> list[Action]:
        """Remembers the files of these actions, and returns the actions."""
        self._paths += [action["path"] for action in actions]
        return list(actions)

    def remove(self) -> None:
        """Removes the remembered files."""
        for path in self._paths:
            with contextlib.suppress(OSError, LakemirrorError):
                data_file(self._table, path).unlink(missing_ok=True)


def changes_of(
    unit: ChangeUnit, work: RowWork, budget: MemoryBudget, columns: Sequence[str] | None = None, *,
    encoded: bool = False, waits: bool = False,
) -> Iterator[Changes]:  # fmt: skip
    """The changes of a unit, as from `read_changes`. Raises Bad for a row that cannot be applied."""
    for changes in read_changes(
        unit,
        work.target,
        columns=columns,
        append_only=work.append_only,
        default_marker=work.default_marker,
        budget=budget,
        encoded=encoded,
        waits=waits,
    ):
        if isinstance(changes, Rejected):
            raise Bad(changes)
        yield changes
        del changes  # before the next rows are decoded


def kept_batches(
    group: Sequence[tuple[int, ChangeUnit]],
    work: RowWork,
    budget: MemoryBudget,
    folded: FoldedBatch | None,
    feed: NewRows | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of some units that are inserted into the table, in batches."""
    for begin, unit in group:
        for changes in changes_of(unit, work, budget, encoded=feed is None, waits=True):
            rows: pa.RecordBatch = changes.rows
            first = begin + changes.first_row - unit.first_row
            places = np.arange(rows.num_rows)
            if folded is not None:
                places = np.flatnonzero(folded.flags[first : first + rows.num_rows])
                if len(places) < rows.num_rows:
                    rows = rows.take(whole_numbers(places))
            if not rows.num_rows:
                continue
            table = pa.Table.from_batches([rows])
            check_nulls(work, table, first + places)
            if feed is not None and folded is not None:
                yield from feed.new_rows(table, folded.flags[first + places] == FoldedBatch.FIRST).to_batches()
            else:
                yield rows
            del changes, rows, table  # before the next rows are decoded


def check_nulls(work: RowWork, rows: pa.Table, places: np.ndarray | None) -> None:
    """Raises Bad for the first row with NULL in a NOT NULL column.

    `places`: the positions of the rows among all changes of the batch, ascending; None: `rows` are all changes.
    """
    nulls = [
        (int(np.flatnonzero(np.asarray(values.is_null().combine_chunks().cast(pa.uint8())))[0]), column.name)
        for column in work.target.columns
        if not column.nullable and (values := rows[column.name]).null_count
    ]
    if not nulls:
        return
    row, name = min(nulls, key=lambda found: found[0])
    place = row if places is None else int(places[row])
    begins = np.cumsum([0, *(unit.rows for unit in work.changes)])
    index = int(np.searchsorted(begins, place, "right")) - 1
    unit = work.changes[index]
    number = unit.first_row + place - int(begins[index]) + 1
    raise Bad(null_row(unit.name, number, name))


def null_row(file: str, row: int, column: str) -> Rejected:
    """The error of a row with NULL in a NOT NULL column. `row` counts from 1."""
    message = f"{file}, row {row}: column {column!r} is NULL and the table declares it NOT NULL"
    return Rejected("constraint-violated", message, file, row, column)


def work_schema(target: Target, columns: Sequence[TargetColumn] | None = None) -> pa.Schema:
    """The Arrow schema of these columns of the table (None: all columns)."""
    chosen = target.columns if columns is None else columns
    return pa.schema([(column.name, arrow_type(column.type)) for column in chosen])


def counted(add: Action) -> int:
    """The number of living rows according to the statistics of an `add` action; 0 if they do not say."""
    rows = record_count(add) or 0
    vector = add.get("deletionVector")
    return max(0, rows - (vector["cardinality"] if vector else 0))


@contextlib.contextmanager
def named_errors(table: str) -> Iterator[None]:
    """Turns errors about the table's files into errors with a code."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise LakemirrorError("concurrent-commit", f"a file is gone: {error.filename or error}") from error
    except (pa.ArrowException, ValueError) as error:
        raise LakemirrorError("table-unreadable", f"{table}: a data file cannot be read: {error}") from error
    except OSError as error:
        raise LakemirrorError("storage-unavailable", f"{table}: {error.strerror or error}") from error
