"""Reads the changes of change files: rows in the table's types with their markers, or the first bad row.

unit ─▶ its file, open ─▶ Reading ─▶ Changes … or Bad

A small file, or several of one form, are read as one batch (`read_together`), because most of the time of a small file
is not its rows' time. Bad is raised for the first bad row, and for a file that cannot be read or needs too much memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from lakemirror.engines.kernels.decode import MemoryBudget, TooLarge, share_of
from lakemirror.engines.kernels.row_reader import Changes, Reading, unreadable
from lakemirror.engines.row_work import ChangeUnit
from lakemirror.engines.units import Shared
from lakemirror.errors import Bad, LakemirrorError, Rejected, first_line
from lakemirror.storage.place import opened


def read_changes(
    unit: ChangeUnit,
    shared: Shared,
    *,
    columns: Collection[str] | None = None,
    encoded: bool = False,
    waits: bool = False,
) -> Iterator[Changes]:
    """The changes of a unit. Raises Bad for a row that cannot be applied, after changes that are before it.

    `shared`: if `append_only`, a row that is not an insert is Bad, `try_as` mixed. The size of its budget limits
    what is decoded at once; decoded bytes are taken from it if it has enough left, and given back later. `columns`: the
    requested columns of the target; None: all. Others are neither read nor converted. `encoded`: text with few distinct
    values stays dictionary-encoded, which is much faster to read and write. `waits`: rows with very large values wait
    until the budget has enough left. Only for a thread that reads one unit at a time to its end.

    Errors: `concurrent-commit` if the file does not exist any more or was replaced, `storage-unavailable`.
    """
    try:
        with source_of(unit) as source:
            yield from Reading(unit, shared, source, columns, encoded=encoded, waits=waits).changes()
    except FileNotFoundError as error:
        raise LakemirrorError("concurrent-commit", f"{unit.name} is gone", file=unit.name) from error
    except TooLarge as error:
        raise _too_large(unit, error.what, error.size, shared.budget) from error
    except MemoryError as error:
        message = f"{unit.name} needs more memory than available: {first_line(error)}"
        raise Bad(Rejected("file-too-large", message, unit.name)) from error
    except OSError as error:
        if error.errno is not None:  # from the store; pyarrow also raises OSError for a damaged file, without errno
            raise LakemirrorError("storage-unavailable", f"{unit.name}: {error.strerror or error}") from error
        raise unreadable(unit, error) from error
    except (pa.ArrowException, ValueError, LookupError) as error:
        raise unreadable(unit, error) from error


def source_of(unit: ChangeUnit) -> pa.NativeFile:
    """The unit's file, open. Errors: FileNotFoundError, other OSErrors."""
    return pa.input_stream(opened(unit.path, unit.listed), compression=None)


def _too_large(unit: ChangeUnit, what: str, size: int, budget: MemoryBudget) -> Bad:
    message = (
        f"{unit.name}: {what} of this file of {unit.bytes} bytes needs {size} bytes of memory, and the setting "
        f"`memory` allows {budget.size}"
    )
    return Bad(Rejected("file-too-large", message, unit.name))


def read_together(units: Sequence[ChangeUnit], shared: Shared) -> Changes | None:
    """The changes of all units, in order; None if they must be read one by one.

    None if a unit is not small, has another schema than the first, cannot be read, or has a row that cannot be applied.
    Every check of `read_changes` is made here, too.
    """
    try:
        return _together(units, shared)
    except (Bad, LakemirrorError, TooLarge, MemoryError, OSError, pa.ArrowException, ValueError, LookupError):
        return None  # reading the files one by one says what is wrong with which


def _together(units: Sequence[ChangeUnit], shared: Shared) -> Changes | None:
    first: Reading | None = None
    left, parts = share_of(shared.budget.size), []
    for unit in units:
        with source_of(unit) as source:
            reading = Reading(unit, shared, source)
            if first is None:
                reading.prepare()
                first = reading
            elif not reading.prepare_as(first):
                return None
            decoded = reading.at_once(left)
        if decoded is None:
            return None
        parts.append(decoded[0])
        left -= decoded[1]
    if first is None:
        return None
    (rows,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return first.converted(rows, 0)
