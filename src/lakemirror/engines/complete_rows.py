"""What inserted rows take from elsewhere: values that a partial row leaves unchanged, and how long a row was deleted.

partial rows ─▶ the newest row of each key ─▶ a row without one: an error, or NULL ─▶ values to fill in
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakemirror.engines.held_changes import HeldChanges
from lakemirror.engines.kernels.fill_values import NO_FILLS, FillRequest, Fills, Rows, read_fills
from lakemirror.engines.kernels.partial_rows import PartialRows, with_keys
from lakemirror.engines.net_effect import NetEffect
from lakemirror.engines.newest_rows import missing_row, missing_rows, newest_rows
from lakemirror.engines.row_work import FILE, ROW, RowWork
from lakemirror.engines.unit_carrier import UnitCarrier
from lakemirror.engines.unit_kernels import read_given, read_old_keys, read_values
from lakemirror.engines.units import KEPT, Shared, TouchedFile, change_units, data_units
from lakemirror.errors import Bad
from lakemirror.keys.key_values import whole_numbers


def rows_to_complete(
    engine: UnitCarrier, shared: Shared, partial: PartialRows, touched: Mapping[int, TouchedFile]
) -> pa.Table | None:
    """The rows of the table that have the keys of `partial.firsts`, as of `with_keys`; None for none."""
    if not partial.firsts.num_rows or not touched:
        return None
    found = []
    units = data_units(list(touched.values()), engine.parallelism)
    for files in engine.carry("read deleted keys", read_old_keys, shared, units):
        for number, rows, old in files:
            numbers = whole_numbers(np.full(len(rows), number))
            found.append(
                with_keys(partial.firsts, old.append_column(FILE, numbers).append_column(ROW, whole_numbers(rows)))
            )
    return pa.concat_tables(found) if found else None


def completed(
    engine: UnitCarrier, work: RowWork, shared: Shared, held: HeldChanges | None, effect: NetEffect
) -> tuple[Fills | FillRequest, int]:
    """What completes the inserted rows, and how many partial rows have no row of their key. Raises Bad for the first of
    these that is not late, unless they may become NULL."""
    if effect.partial is None:
        return NO_FILLS.with_dead(effect.dead), 0
    newest = newest_rows(effect.found, work.candidates)
    missing = missing_rows(effect.partial, newest)
    needed = np.setdiff1d(missing, effect.partial.late)
    if len(needed) and not work.null_if_missing:
        bad = Bad(missing_row(work, int(needed[0])))
        raise bad if held is not None else engine.first_bad(work, shared, bad)
    fills = engine.fills_of(work, shared, held, effect, newest)
    return fills.with_dead(effect.dead), len(missing)


def values_of(
    engine: UnitCarrier,
    work: RowWork,
    shared: Shared,
    held: HeldChanges | None,
    effect: NetEffect,
    newest: pa.Table,
    scratch: Path,
) -> Fills:
    """The values that inserted rows take from earlier changes and from the table. `scratch`: as of `read_fills`."""

    def old(files: Sequence[Rows], names: Sequence[str]) -> Iterator[pa.Table]:
        if all(set(names) <= _names_of(effect, number) for number, _, _ in files):
            for number, _, rows in files:
                numbers, values = effect.values[number]
                its = values.select(list(names))
                yield its if len(rows) == len(numbers) else its.take(whole_numbers(np.searchsorted(numbers, rows)))
            return
        touched = [TouchedFile(number, add, rows) for number, add, rows in files]
        units, its = data_units(touched, engine.parallelism), shared._replace(names=tuple(names))
        yield from engine.carry("read unchanged values", read_values, its, units)

    def given(positions: np.ndarray, names: Sequence[str]) -> Iterator[pa.Table]:
        if held is not None:
            yield held.rows(positions).select(list(names))
            return
        flags = np.zeros(work.rows, np.uint8)
        flags[positions] = KEPT
        units = change_units(work, flags, engine.parallelism, engine.unit_bytes)
        try:
            yield from engine.carry("read values of changes", read_given, shared._replace(names=tuple(names)), units)
        except Bad as bad:
            raise engine.first_bad(work, shared, bad) from bad

    adds = dict(enumerate(work.candidates))
    assert effect.partial is not None
    return read_fills(effect.partial, newest, adds, old, given, engine.memory // 8, scratch)


def _names_of(effect: NetEffect, number: int) -> set[str]:
    """The columns whose values are known of the rows of this candidate."""
    return set(effect.values[number][1].column_names) if number in effect.values else set()
