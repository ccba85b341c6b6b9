"""The versions that a batch changes: which are read, and what becomes of them (history.md, section 3).

    keys of the changes ─▶ open versions ─▶ in order: that is all
                                        └─▶ late, or no open version: closed versions from then on, remembered changes
    all of these ─▶ `versions_after` ─▶ rows to write, rows to delete

Open and closed versions are in files of their own. So an apply in order reads the files of open versions alone, however
long the history is; others are left out by the statistics of their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.statistics import record_count
from lakemirror.engines.kernels.change_rows import changed_of
from lakemirror.engines.kernels.data_rows import stored_arrow_type
from lakemirror.engines.kernels.plain_versions import PlainKeys, plain_keys, versions_after
from lakemirror.engines.kernels.sequence_order import from_texts, sequence_of, sequence_ranks
from lakemirror.engines.kernels.version_rows import (
    Changed,
    VersionRows,
    bounds_of,
    codes_of,
    completed_rows,
    key_values,
    plain_columns,
)
from lakemirror.engines.row_work import FILE, ROW, Action, Target, TargetColumn, Versioning
from lakemirror.engines.sequence_bounds import Span, files_of_keys, sequence_column, value_of
from lakemirror.keys.key_values import combined, each_once, key_codes, order_of, whole_numbers
from lakemirror.landing_zone.reserved_columns import CHANGE_FILE, END_AT, START_AT
from lakemirror.landing_zone.table_options import SOFT

Look: TypeAlias = Callable[[Target, Sequence[Action], pa.Table], "list[tuple[int, np.ndarray, pa.Table]]"]
"""The live rows of data files that have these keys: the number of the file, row numbers, and all columns."""


class ChangedVersions(NamedTuple):
    """What a batch does to the table of versions. `known`: the versions that were read: FILE, ROW and all columns.
    `rows`: what changes. `beyond`: how many late changes are older than what is remembered of their key.
    """

    known: pa.Table
    rows: VersionRows
    beyond: int = 0

    @property
    def deleted(self) -> dict[int, np.ndarray]:
        """The rows (ascending) that go, by the number of their file."""
        files, rows = (np.asarray(self.known[name].combine_chunks())[self.rows.removed] for name in (FILE, ROW))
        if not len(files):
            return {}
        cuts = np.flatnonzero(np.diff(files)) + 1  # versions are known file by file
        parts: dict[int, list[np.ndarray]] = {}
        for place, its in zip([0, *cuts], np.split(rows, cuts), strict=True):
            parts.setdefault(int(files[place]), []).append(its)
        return {file: np.sort(np.concatenate(its), kind="stable") for file, its in parts.items()}


def changed_versions(
    target: Target, versioning: Versioning, files: Sequence[Action], changes: Changed, look: Look
) -> ChangedVersions:
    """What changes of some keys, in the order of arrival, do to the table of versions. `files`: all its data files."""
    read = _read(target, versioning, files, changes, look)
    rows = versions_after(target, versioning, read.known, read.changes, read.remembered, read.keys)
    return ChangedVersions(read.known, rows, read.beyond)


def completed_changes(
    target: Target, versioning: Versioning, files: Sequence[Action], changes: Changed, look: Look
) -> pa.Table:
    """The rows of such changes, with the values that partial ones take from the versions and changes before them."""
    read = _read(target, versioning, files, changes, look)
    return completed_rows(target, versioning, read.known, read.changes, read.remembered)


class _Read(NamedTuple):
    """What is known of the keys of changes. `changes`: with all columns. `beyond`: as of `ChangedVersions`. `keys`: of
    these versions and changes, if nothing else was needed."""

    known: pa.Table
    changes: Changed
    remembered: Changed | None
    beyond: int
    keys: PlainKeys | None


def _read(target: Target, versioning: Versioning, files: Sequence[Action], changes: Changed, look: Look) -> _Read:
    changes = changes._replace(rows=_with_all(plain_columns(changes.rows), target))
    is_open = [may_have_open(add, target) for add in files]
    numbers = [n for n, yes in enumerate(is_open) if yes]
    known = _of_this_folder(_found(target, files, numbers, key_values(changes.rows, target), look), versioning)
    keys = plain_keys(target, versioning, known, changes)
    if not keys.deeper.any():
        return _Read(known, changes, None, 0, keys)
    deeper = changes.chosen(np.flatnonzero(keys.deeper[keys.codes[1]]))
    takes_values = changes.names is not None and (
        versioning.deletes == SOFT or bool(versioning.since) or (bool(versioning.sequence) and not files)
    )  # a partial row may take values from an event that has no version any more, or none at all
    codes = keys.codes[0], keys.codes[1][keys.deeper[keys.codes[1]]]
    ends = None if takes_values else _ends(versioning, known, deeper, codes)
    closed = [number for number, yes in enumerate(is_open) if not yes]
    column = next(each for each in target.columns if each.name == END_AT)
    found = _found_within(target, files, closed, key_values(deeper.rows, target), (column, ends), look)
    found, is_deeper = _of_this_folder(found, versioning), keys.deeper[keys.codes[0]]
    its = pa.concat_tables([known.filter(pa.array(is_deeper)) if is_deeper.any() else known.slice(0, 0), found])
    if found.num_rows:
        known = pa.concat_tables([known.filter(pa.array(~is_deeper)), its])
    remembered, beyond = None, 0
    if versioning.memory is not None and versioning.sequence:
        remembered, beyond = _remembered(target, versioning, its, (deeper, takes_values), look)
    return _Read(known, changes, remembered, beyond, None if found.num_rows or remembered is not None else keys)


def _with_all(rows: pa.Table, target: Target) -> pa.Table:
    """The rows with NULL in the columns that no file of the table folder has: an earlier folder had them."""
    held = set(rows.column_names)
    for each in target.sources.columns:
        if each.stored and each.name not in held:
            rows = rows.append_column(each.name, pa.nulls(rows.num_rows, stored_arrow_type(each)))
    return rows


def _of_this_folder(known: pa.Table, versioning: Versioning) -> pa.Table:
    """The versions without those of an earlier table folder, which nothing changes any more: all of them end when those
    of this one begin, or before."""
    if not versioning.since or known[END_AT].null_count == known.num_rows:
        return known
    ends = bounds_of(known, END_AT, versioning.sequence)
    ranks, since = sequence_ranks([ends, from_texts(versioning.since, ends.type)], 1)
    return known.filter(pa.array((ranks == 0) | (ranks > since[0])))  # 0: NULL


def may_have_open(add: Action, target: Target) -> bool:
    """False if the statistics say that all versions of a file have an end."""
    nulls = _nulls_of_end(add, target)
    return nulls is None or nulls != 0


def may_have_closed(add: Action, target: Target) -> bool:
    """False if the statistics say that no version of a file has an end."""
    nulls = _nulls_of_end(add, target)
    return nulls is None or nulls != record_count(add)


def _nulls_of_end(add: Action, target: Target) -> Any:
    """How often `__END_AT` is NULL by the statistics; for several columns the first. None if they do not say."""
    column = next((column.physical_name for column in target.columns if column.name == END_AT), None)
    found = value_of(add, "nullCount", column) if column is not None else None
    while isinstance(found, dict):
        found = next(iter(found.values()), None)
    return found


def _ends(
    versioning: Versioning, known: pa.Table, changes: Changed, codes: tuple[np.ndarray, np.ndarray]
) -> Span | None:
    """Between which times the closed versions end that each change may touch: from its own time on, until the open
    version of its key begins. None for a sequence of several columns. `codes`: of the keys of `known` and the changes.
    """
    if not versioning.sequence:
        return Span(pa.array(changes.times))
    if len(versioning.sequence) > 1:
        return None
    times = combined(changes.rows[versioning.sequence[0]])
    if versioning.since:  # a version that is cut off begins later than the table says
        return Span(times)
    (old, new), opened = codes, np.flatnonzero(np.asarray(known[END_AT].is_null()))
    count = np.bincount(old[opened], minlength=_count(old, new))
    place = np.full(len(count), -1)
    place[old[opened]] = opened
    number = np.where(count[new] == 1, place[new], -1)
    return Span(times, combined(known[START_AT]).take(pa.array(number, mask=number < 0)))


def _remembered(
    target: Target, versioning: Versioning, known: pa.Table, wanted: tuple[Changed, bool], look: Look
) -> tuple[Changed | None, int]:
    """The remembered changes of these keys from the first version on that the changes touch, in the order of arrival;
    and how many changes are in a run of events whose first one is not remembered any more, or before a delete that is
    not. `wanted`: the changes, and whether all that is remembered is needed."""
    memory, (changes, needs_all) = versioning.memory, wanted
    assert memory is not None
    span = None
    if not needs_all:
        needs = _memory_needed(target, versioning, known, changes)
        if not len(needs):
            return None, 0
        changes = changes.chosen(needs)
        span = _from_begins(target, versioning, known, changes)
    column = sequence_column(memory.target, versioning.sequence)
    keys, files = key_values(changes.rows, target), range(len(memory.files))
    rows = _found_within(memory.target, memory.files, files, keys, (column, span), look)
    is_earlier = pc.less_equal(rows[CHANGE_FILE], memory.position)
    for name in versioning.sequence:  # NULL: it was remembered for another sequence
        is_earlier = pc.and_(is_earlier, rows[name].is_valid())
    earlier = changed_of(rows.filter(is_earlier), target)
    tables = [known, earlier.rows, changes.rows]
    old, mine, new = codes_of(tables, target)
    count = _count(old, mine, new)
    sequences = [sequence_of(table, versioning.sequence) for table in tables]
    starts, ends, lasts, at, times, since = sequence_ranks(
        [
            *(bounds_of(known, name, versioning.sequence) for name in (START_AT, END_AT)),
            *sequences,
            from_texts(versioning.since, sequences[0].type),
        ],
        count,
    )
    ends = np.where(ends == 0, np.iinfo(np.int64).max, ends)  # NULL
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, new, times)
    touched = ends >= first[old]
    lowest, began = first.copy(), int(since.max(initial=0))
    begins = np.where(starts <= began, 0, starts)  # there or before: the version is cut off
    np.minimum.at(lowest, old[touched], begins[touched])
    chosen = np.arange(len(at)) if needs_all else np.flatnonzero(at >= lowest[mine])
    # a version of several events of which the first is forgotten: nobody knows where a change within it belongs
    forgotten = touched & (lasts > starts) & (first[old] < lasts) & (first[old] > begins)
    events = pa.table({"k": mine, "t": np.maximum(at, began)})
    both = key_codes(pa.concat_tables([pa.table({"k": old, "t": starts}), events]).combine_chunks())
    forgotten &= ~np.isin(both[: len(old)], both[len(old) :])
    revived = _revived((old, ends), (mine, at), first)
    return (earlier.chosen(chosen) if len(chosen) else None), int(forgotten.sum()) + revived


def _memory_needed(target: Target, versioning: Versioning, known: pa.Table, changes: Changed) -> np.ndarray:
    """The places of the changes that need remembered ones of their key; all of a key do, or none.

    A key needs none if it has an open version, and each change falls into a version, at its only event or after the
    last one: what happens from then on is what the versions say.
    """
    if versioning.since or versioning.was_off:  # versions lack events that are remembered
        return np.arange(len(changes.markers))
    old, new = codes_of([known, changes.rows], target)
    starts, ends, lasts, times = _ranks(versioning, known, changes.rows, _count(old, new))
    is_open, step = ends == 0, int(max(starts.max(initial=0), times.max(initial=0))) + 1  # 0: NULL
    begins = old * step + starts
    order = order_of(begins)
    place = np.searchsorted(begins[order], new * step + times, "right") - 1
    if not len(order):
        return np.arange(len(new))
    its = order[np.maximum(place, 0)]  # the last version of the key that begins at the change or before
    falls = (place >= 0) & (old[its] == new) & (is_open[its] | (times < ends[its]))
    falls &= (lasts[its] == starts[its]) | ((lasts[its] > starts[its]) & (times > lasts[its]))
    needs = ~falls | ~np.isin(new, old[is_open])
    found: np.ndarray = np.flatnonzero(np.isin(new, new[needs]))
    return found


def _from_begins(target: Target, versioning: Versioning, known: pa.Table, changes: Changed) -> Span | None:
    """For each change, from which time on the remembered changes of its key matter: from its first change, or the begin
    of the first version on that its changes touch. None: from the first one on."""
    if len(versioning.sequence) > 1 or versioning.since:  # a version that is cut off needs every event of its key
        return None
    old, new = codes_of([known, changes.rows], target)
    count = _count(old, new)
    starts, ends, _, times = _ranks(versioning, known, changes.rows, count)
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, new, times)
    touched = np.flatnonzero((ends == 0) | (ends >= first[old]))  # 0: NULL
    key, time = np.concatenate([new, old[touched]]), np.concatenate([times, starts[touched]])
    order = np.lexsort((time, key))[::-1]
    least = np.zeros(len(first), np.int64)
    least[key[order]] = order  # of each key the last one counts: the least time
    own = combined(changes.rows[versioning.sequence[0]])
    begins = combined(known[START_AT]).take(whole_numbers(touched)).cast(own.type)
    return Span(pa.concat_arrays([own, begins]).take(whole_numbers(least[new])))


def _revived(versions: tuple[np.ndarray, np.ndarray], events: tuple[np.ndarray, np.ndarray], first: np.ndarray) -> int:
    """How many keys have a change before their last delete, which is not remembered: the mirrored table has it again.

    `versions`: key and end of each; `events`: key and time of what is remembered; `first`: of the changes of each key.
    """
    last, known = np.full(len(first), -1), np.full(len(first), -1)
    np.maximum.at(last, versions[0], versions[1])
    np.maximum.at(known, events[0], events[1])
    is_closed = (last >= 0) & (last != np.iinfo(np.int64).max)
    return int((is_closed & (first < last) & (known < last)).sum())


def _count(*codes: np.ndarray) -> int:
    """Codes of keys are lower than this number."""
    return max(int(each.max(initial=0)) for each in codes) + 1


def _ranks(versioning: Versioning, known: pa.Table, rows: pa.Table, keys: int) -> list[np.ndarray]:
    """Begins, ends and sequences of versions, and the sequences of changes, as `sequence_ranks`."""
    names = versioning.sequence
    bounds = [bounds_of(known, name, names) for name in (START_AT, END_AT)]
    return sequence_ranks([*bounds, *(sequence_of(each, names) for each in (known, rows))], keys)


def _found_within(
    target: Target, files: Sequence[Action], numbers: Sequence[int], keys: pa.Table,
    within: tuple[TargetColumn | None, Span | None], look: Look,
) -> pa.Table:  # fmt: skip
    """`_found` where each key is looked up only in files that may have a value of its span in a column. `within`: this
    column, and the spans of the keys; None: all files."""
    tables = [no_versions(target)]
    for chosen, places in files_of_keys([files[number] for number in numbers], *within, len(keys)):
        its = keys if len(places) == len(keys) else keys.take(whole_numbers(places))
        tables.append(_found(target, files, [numbers[place] for place in chosen], its, look))
    return pa.concat_tables(tables)


def _found(target: Target, files: Sequence[Action], numbers: Iterable[int], keys: pa.Table, look: Look) -> pa.Table:
    """The rows with these keys in the files of these numbers: all columns, FILE and ROW. The ends of files with open
    versions alone are not read: they are NULL."""
    parts: tuple[list[int], list[int]] = [], []
    for number in numbers:
        parts[may_have_closed(files[number], target)].append(number)
    without_ends = replace(target, columns=tuple(each for each in target.columns if each.name != END_AT))
    none, distinct = no_versions(target), each_once(keys)
    tables = [none]
    for chosen, read in zip(parts, (without_ends, target), strict=True):
        for number, rows, table in look(read, [files[each] for each in chosen], distinct) if chosen else ():
            numbered = table.append_column(FILE, whole_numbers(np.full(len(rows), chosen[number])))
            numbered = numbered.append_column(ROW, whole_numbers(rows))
            if read is without_ends:
                numbered = numbered.append_column(END_AT, pa.nulls(len(rows), none.schema.field(END_AT).type))
            tables.append(numbered.select(none.column_names))
    return pa.concat_tables(tables)


def no_versions(target: Target) -> pa.Table:
    """No rows, with all columns, FILE and ROW."""
    kinds = [(each.name, stored_arrow_type(each)) for each in target.columns if each.stored]
    return pa.schema([*kinds, (FILE, pa.int64()), (ROW, pa.int64())]).empty_table()
