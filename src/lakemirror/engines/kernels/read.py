"""Reads the changes of one change file: its rows in the table's types with their markers, or the first bad row.

unit ─▶ its file, open ─▶ Reading ─▶ Changes … | Rejected

Reading stops at the first bad row. A file that cannot be read or needs too much memory is Rejected, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa

from lakemirror.engines.kernels.decode import TooLarge
from lakemirror.engines.kernels.row_reader import Changes, Reading, first_line, unreadable
from lakemirror.engines.memory_budget import DEFAULT, MemoryBudget
from lakemirror.engines.row_work import ChangeUnit, Target
from lakemirror.errors import LakemirrorError, Rejected
from lakemirror.landing_zone.row_markers import INSERT
from lakemirror.storage.place import opened


def read_changes(
    unit: ChangeUnit,
    target: Target,
    *,
    columns: Collection[str] | None = None,
    append_only: bool = False,
    default_marker: int = INSERT,
    budget: MemoryBudget | None = None,
    encoded: bool = False,
    waits: bool = False,
) -> Iterator[Changes | Rejected]:
    """The changes of a unit. If it has a bad row: the changes before it, and then Rejected as the last item.

    `columns`: the requested columns of the target; None: all. Others are neither read nor converted. `append_only`: a
    row that is not an insert is Rejected, `try_as` mixed. `default_marker`: the marker of rows without one. `budget`:
    its size limits what is decoded at once; decoded bytes are taken from it if it has enough left, and given back
    later. `encoded`: text with few distinct values stays dictionary-encoded, which is much faster to read and write.
    `waits`: rows with very large values wait until the budget has enough left. Only for a thread that reads one unit at
    a time to its end.

    Errors: `concurrent-commit` if the file does not exist any more or was replaced, `storage-unavailable`.
    """
    budget = budget or MemoryBudget(DEFAULT)
    try:
        with source_of(unit) as source:
            reading = Reading(unit, target, columns, append_only, default_marker, budget, source, encoded, waits)
            yield from reading.changes()
    except FileNotFoundError as error:
        raise LakemirrorError("concurrent-commit", f"{unit.name} is gone", file=unit.name) from error
    except TooLarge as error:
        yield _too_large(unit, error.what, error.size, budget)
    except MemoryError as error:
        message = f"{unit.name} needs more memory than available: {first_line(error)}"
        yield Rejected("file-too-large", message, unit.name)
    except OSError as error:
        if error.errno is not None:  # from the store; pyarrow also raises OSError for a damaged file, without errno
            raise LakemirrorError("storage-unavailable", f"{unit.name}: {error.strerror or error}") from error
        yield unreadable(unit, error)
    except (pa.ArrowException, ValueError, LookupError) as error:
        yield unreadable(unit, error)


def source_of(unit: ChangeUnit) -> pa.NativeFile:
    """The unit's file, open. Errors: FileNotFoundError, other OSErrors."""
    return pa.input_stream(opened(unit.path, unit.listed), compression=None)


def _too_large(unit: ChangeUnit, what: str, size: int, budget: MemoryBudget) -> Rejected:
    message = (
        f"{unit.name}: {what} of this file of {unit.bytes} bytes needs {size} bytes of memory, and the setting "
        f"`memory` allows {budget.size}"
    )
    return Rejected("file-too-large", message, unit.name)
