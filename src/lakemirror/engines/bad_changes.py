"""Which row cannot be applied, by its position among all changes; what an engine has written is removed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakemirror.delta.data_files import data_file
from lakemirror.engines.row_work import Action, ChangeUnit, Target
from lakemirror.errors import Bad, LakemirrorError, Rejected


def check_nulls(files: Sequence[ChangeUnit], target: Target, rows: pa.Table, positions: np.ndarray | None) -> None:
    """Raises Bad for the first row with NULL in a NOT NULL column.

    `positions`: of the rows among all changes of these files; None: `rows` are all changes.
    """
    positions = np.arange(rows.num_rows) if positions is None else positions
    nulls = [
        (int(positions[np.asarray(values.is_null().combine_chunks().cast(pa.uint8())) == 1].min()), column.name)
        for column in target.columns
        if not column.nullable and (values := rows[column.name]).null_count
    ]
    if not nulls:
        return
    position, name = min(nulls, key=lambda null: null[0])
    raise Bad(null_row(*place_of(files, position), name))


def place_of(files: Sequence[ChangeUnit], position: int) -> tuple[str, int]:
    """The name of the file that has the change at this position among the changes of all files, and its row, from 1."""
    begins = np.cumsum([0, *(file.rows for file in files)])
    index = int(np.searchsorted(begins, position, "right")) - 1
    return files[index].name, files[index].first_row + position - int(begins[index]) + 1


def null_row(file: str, row: int, column: str) -> Rejected:
    """The error of a row with NULL in a NOT NULL column. `row` counts from 1."""
    message = f"{file}, row {row}: column {column!r} is NULL and the table declares it NOT NULL"
    return Rejected("constraint-violated", message, file, row, column)


def drop_written(table: str, written: Sequence[Action]) -> None:
    """Removes files that an attempt has written, as far as possible."""
    for action in written:
        with contextlib.suppress(OSError, LakemirrorError):
            data_file(table, action["path"]).unlink(missing_ok=True)


@contextlib.contextmanager
def named_errors(table: str) -> Iterator[None]:
    """Turns errors about the table's files into errors with a code."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"{table}: a file is gone: {error.filename or error}"
        hint = (
            "It is tried again. If the file stays away, `lakemirror verify DB TABLE` says what was lost and what helps."
        )
        raise LakemirrorError("concurrent-commit", message, hint=hint) from error
    except (pa.ArrowException, ValueError) as error:
        raise LakemirrorError("table-unreadable", f"{table}: a data file cannot be read: {error}") from error
    except OSError as error:
        raise LakemirrorError("storage-unavailable", f"{table}: {error.strerror or error}") from error
