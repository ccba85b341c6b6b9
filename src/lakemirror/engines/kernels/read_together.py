"""Reads several small change files of one form as one batch: most of the time of a small file is not its rows' time.

units ─▶ footers: the same schema? ─▶ page headers, checked ─▶ decoded, one by one ─▶ one batch, converted ─▶ Changes

Every check of `read_changes` is made here too. What is unusual is not read here: `read_changes` reads such files one by
one, and names the first bad row.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakemirror.engines.kernels.decode import TooLarge, share_of
from lakemirror.engines.kernels.read import source_of
from lakemirror.engines.kernels.row_reader import Changes, Reading
from lakemirror.engines.memory_budget import MemoryBudget
from lakemirror.engines.row_work import ChangeUnit, Target
from lakemirror.errors import LakemirrorError


def read_together(
    units: Sequence[ChangeUnit], target: Target, *, append_only: bool, default_marker: int, budget: MemoryBudget
) -> Changes | None:
    """The changes of all units, in order; None if they must be read one by one.

    None if a unit is not small, has another schema than the first, cannot be read, or has a row that cannot be applied.
    """
    try:
        return _together(units, target, append_only, default_marker, budget)
    except (LakemirrorError, TooLarge, MemoryError, OSError, pa.ArrowException, ValueError, LookupError):
        return None  # reading the files one by one says what is wrong with which


def _together(
    units: Sequence[ChangeUnit], target: Target, append_only: bool, default_marker: int, budget: MemoryBudget
) -> Changes | None:
    first: Reading | None = None
    left, parts = share_of(budget.size), []
    for unit in units:
        with source_of(unit) as source:
            reading = Reading(unit, target, None, append_only, default_marker, budget, source, False, False)
            if first is None:
                if reading.prepare() is not None:
                    return None
                first = reading
            elif not reading.prepare_as(first):
                return None
            found = reading.at_once(left)
        if found is None:
            return None
        parts.append(found[0])
        left -= found[1]
    if first is None:
        return None
    (rows,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return first.converted(rows)


__all__ = ["read_together"]
