"""Open versions that are no rows of the mirrored table any more, in a commit of their own (history.md section 4).

    folder made again, or dropped ─▶ every open version ends
    option off for a while        ─▶ open versions become the rows that the mirrored table has

A bucket of keys at a time, as changes: an upsert of each row, a delete of each open version without one. With a
sequence, the versions of a folder that was made again begin where those of the one before end (`lakemirror.since`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror import failpoints
from lakemirror.delta import commit as delta
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.data_files import removed
from lakemirror.delta.deletion_vectors import delete_rows
from lakemirror.delta.log import Action, Snapshot, read_snapshot
from lakemirror.delta.schema import from_delta
from lakemirror.delta.statistics import record_count
from lakemirror.engines.kernels.data_rows import stored_arrow_type
from lakemirror.engines.kernels.decode import MemoryBudget
from lakemirror.engines.kernels.live_rows import live_rows, undeleted_rows
from lakemirror.engines.kernels.sequence_order import as_texts, from_texts, next_value, sequence_of, sequence_ranks
from lakemirror.engines.kernels.version_rows import Changed, bounds_of, codes_of, key_values, plain_columns
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.newest_rows import in_order_of_writing, newest_of_keys
from lakemirror.engines.row_work import Target, Versioning
from lakemirror.engines.sequence_bounds import least_bound, reaches
from lakemirror.engines.target import apply_target, target_of
from lakemirror.engines.units import Shared
from lakemirror.engines.versions import ChangedVersions, changed_versions, may_have_closed, may_have_open
from lakemirror.engines.write_versions import look_here, write_feed
from lakemirror.errors import LakemirrorError
from lakemirror.keys.key_values import key_bucket, whole_numbers
from lakemirror.landing_zone.reserved_columns import END_AT, START_AT
from lakemirror.landing_zone.row_markers import DELETE, UPSERT
from lakemirror.landing_zone.table_options import SCD2
from lakemirror.mirror.apply import state_actions, transactions
from lakemirror.mirror.history.first_versions import begins_at
from lakemirror.mirror.history.history_tables import HistoryTable
from lakemirror.mirror.history.version_plans import SEQUENCE_PROPERTY, SINCE_PROPERTY, TRACK_PROPERTY, since_of, spelled
from lakemirror.mirror.observe import View
from lakemirror.mirror.planner import Base, check_deletes, with_detection
from lakemirror.mirror.position import Detection, Manifest, Position
from lakemirror.mirror.table_log import read_table_log
from lakemirror.mirror.table_places import tables_in
from lakemirror.storage import Storage, place

_ROWS = 1_000_000  # of a bucket, about
_BYTES = 256 << 20


class RowsBehind(Exception):
    """With a sequence: a row of the mirrored table, which came without a change file, is older than a version of its
    key."""


def are_to_end(snapshot: Snapshot | None, keys: Sequence[str], path: str) -> bool:
    """True if a table of versions may have an open one."""
    if snapshot is None:
        return False
    target = target_of(path, snapshot.metadata.value, keys)
    return any(may_have_open(add, target) for add in snapshot.files.values())


def end_open(view: View, base: Base, durability: str) -> bool:
    """Ends the open versions of a folder that was made again; the position stays. False if there are none.

    LakemirrorError `concurrent-commit`; TableError where the table cannot be written.
    """
    table, snapshot = base.history, base.snapshot
    if table is None or table.table is None or table.at is None or snapshot is None:
        return False
    keys = table.table.key_columns
    metadata = _with_end(snapshot, keys, base.path)
    if metadata is snapshot.metadata.value and not are_to_end(snapshot, keys, base.path):
        return False
    before, at = table.table.manifest, table.at
    manifest = before or Manifest(at.identity, at.number, at.number, "", 0, 0, keys, history=table.label)
    rows = open_versions_as(base, metadata, keys, changed_moment(view, table))
    _commit(base.path, snapshot, metadata, at, manifest, rows, durability)
    return True


def end_dropped(storage: Storage, target: str, moment: int) -> None:
    """Ends the open versions of the mirrored table at `target`, which is about to be dropped, or made again without
    versions. Its history tables begin again at number 0, so that they get its rows back where the table, or the option,
    comes back. `moment`: when, in microseconds since the epoch. LakemirrorError."""
    above, _, name = target.rpartition("/")
    labels = {f"{SCD2}:{name}", f"{SCD2}:{above.rpartition('/')[2]}.{name}"}
    for path in tables_in(storage, above):
        uri = storage.uri(path)
        try:
            table = read_table_log(uri)
        except LakemirrorError:
            continue  # another table that cannot be read is no reason to keep this one
        if table is None or table.history not in labels or table.position is None:
            continue
        if table.missing:
            continue  # no version can end; where the folder comes back, the error says so
        snapshot = read_snapshot(uri)
        if snapshot is None or not are_to_end(snapshot, table.key_columns, uri):
            continue
        at, before = table.position, table.manifest
        base = Base(uri, storage.uri(), snapshot)
        metadata = _with_end(snapshot, table.key_columns, uri)
        rows = open_versions_as(base, metadata, table.key_columns, moment)
        manifest = Manifest(at.identity, 0, 0, "", 0, 0, table.key_columns, history=table.history)
        if before is not None:
            manifest = replace(manifest, rows=before.rows, bytes=before.bytes, notes=before.notes)
        metadata = with_detection(metadata, Detection())
        _commit(uri, snapshot, metadata, Position(at.identity, at.generation + 1, 0), manifest, rows)


def _with_end(snapshot: Snapshot, keys: Sequence[str], path: str) -> Mapping[str, Any]:
    """The metadata of a table of versions whose folder is gone or was made again: with a sequence, it says where all
    versions so far end. The same object where it says that already."""
    metadata = snapshot.metadata.value
    target, files = apply_target(target_of(path, metadata, keys)), list(snapshot.files.values())
    sequence = _sequence(metadata)
    if not sequence:
        return metadata
    so_far = from_texts(since_of(metadata["configuration"]), _kind(target, sequence))
    is_open = [add for add in files if may_have_open(add, target)]
    end = _highest([so_far, _following(_sequences(target, is_open, sequence)), *_ends(target, files, so_far)])
    texts = [] if end is None else as_texts(end[0])  # NaN is no other NaN's equal
    if tuple(texts) == since_of(metadata["configuration"]):
        return metadata
    return {**metadata, "configuration": {**metadata["configuration"], SINCE_PROPERTY: json.dumps(texts)}}


def _ends(target: Target, files: Sequence[Action], so_far: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    """The ends of closed versions, without those that the statistics show to be lower than `so_far`."""
    column = next(each for each in target.columns if each.name == END_AT)
    names = tuple(so_far.type.names)
    least = least_bound(pa.chunked_array(so_far.flatten()[0])) if len(names) == 1 else None
    for add in files:
        if may_have_closed(add, target) and reaches(add, column, least):
            for rows in live_rows(add, replace(target, columns=(column,), key_columns=())):
                yield bounds_of(rows, END_AT, names)


def are_of_the_rows(versions: Base, current: Base, keys: Sequence[str]) -> bool:
    """True if the open versions of a table with a sequence are the rows of the mirrored table, by key and sequence."""
    assert versions.snapshot is not None and current.snapshot is not None
    metadata = versions.snapshot.metadata.value
    target = apply_target(target_of(versions.path, metadata, keys))
    source = apply_target(target_of(current.path, current.snapshot.metadata.value, keys))
    sequence = _sequence(metadata)
    parts = [(target, list(versions.snapshot.files.values())), (source, list(current.snapshot.files.values()))]
    buckets = 1 + sum(record_count(add) or _ROWS for _, files in parts for add in files) // _ROWS
    for bucket in range(buckets):
        both = [_newest(_rows(each, target, files, (bucket, buckets)), target, sequence) for each, files in parts]
        codes = np.concatenate(codes_of(both, target))
        ranks = np.concatenate(sequence_ranks([sequence_of(each, sequence) for each in both], len(codes)))
        held = np.split(np.stack([codes, ranks]), [both[0].num_rows], axis=1)
        one, other = (each[:, np.lexsort(each)] for each in held)
        if not np.array_equal(one, other):
            return False
    return True


def changed_moment(view: View, table: HistoryTable) -> int:
    """When rows changed without a change file, in microseconds since the epoch: as `begins_at`, but not before the last
    file that the history table has."""
    last = table.table.manifest if table.table is not None else None
    return max(begins_at(view), int(last.committed * 1e6) if last is not None else 0)


def open_versions_as(
    base: Base, metadata: Mapping[str, Any], keys: Sequence[str], moment: int, current: Base | None = None
) -> list[Action]:
    """Writes what the open versions become at `moment`: the rows of `current`, the mirrored table; without it they end.

    `base`: the table of versions; `metadata`: its own after. Returns the actions of its rows. RowsBehind.
    """
    snapshot, path = base.snapshot, base.path
    assert snapshot is not None
    check_deletes(metadata, base)
    target = replace(apply_target(target_of(path, metadata, keys)), version=snapshot.version + 1)
    tracked = json.loads(metadata["configuration"].get(TRACK_PROPERTY, "[]"))
    columns = from_delta(metadata["schemaString"])
    sequence, before = _sequence(metadata), since_of(snapshot.metadata.configuration)
    versioning = Versioning(spelled(tracked, columns), sequence, since=before)
    files = list(snapshot.files.values())
    is_open = [add for add in files if may_have_open(add, target)]
    source, lives = target, list[Action]()
    if current is not None and current.snapshot is not None:
        source = apply_target(target_of(current.path, current.snapshot.metadata.value, keys))
        lives = in_order_of_writing(list(current.snapshot.files.values()))
    ends = bool(sequence) and current is None
    last = from_texts(since_of(metadata["configuration"]), _kind(target, sequence)) if ends else None
    end = _end(((target, is_open), (source, lives)), sequence) if sequence and not ends else last
    buckets = 1 + sum(record_count(add) or _ROWS for add in (*is_open, *lives)) // _ROWS
    deleted: dict[int, list[np.ndarray]] = {}
    actions: list[Action] = []
    try:
        for bucket in range(buckets):
            versions, rows = (
                _rows(each, target, chosen, (bucket, buckets)) for each, chosen in ((target, is_open), (source, lives))
            )
            rows = _newest(rows, target, sequence)
            changes = _changes(versions, rows, target, (moment, end))
            if not len(changes.markers):
                continue
            shared = Shared(target, MemoryBudget(_BYTES))
            its = changed_versions(target, versioning, files, changes, look_here(shared))
            its = _with_empty(its, last, target)
            for found in (its.rows.open, its.rows.closed):
                actions += [{"add": add} for add in write_rows(found.to_batches(), target)]
            if target.feed:
                actions += [{"cdc": change} for change in write_feed(shared, its)]
            closed = sum(len(gone) for file, gone in its.deleted.items() if may_have_open(files[file], target))
            if sequence and current is not None:
                opened = versions.num_rows - closed + its.rows.open.num_rows
                _check_newest(versions, rows, opened, target, sequence)
            for file, gone in its.deleted.items():
                deleted.setdefault(file, []).append(gone)
        actions += _without(target, files, {file: np.sort(np.concatenate(each)) for file, each in deleted.items()})
    except BaseException:
        delta.remove_written(place(path), snapshot, actions)
        raise
    return actions


def _with_empty(its: ChangedVersions, end: pa.ChunkedArray | None, target: Target) -> ChangedVersions:
    """With the versions that begin where all of them end: nothing is higher. They end where they begin."""
    if end is None:
        return its
    known, rows = its.known, its.rows
    starts, ends = sequence_ranks([bounds_of(known, START_AT, end.type.names).cast(end.type), end], 1)
    chosen = np.flatnonzero(np.asarray(known[END_AT].is_null()) & (starts >= ends[0]))
    last = known.take(whole_numbers(chosen))
    last = last.set_column(last.column_names.index(END_AT), END_AT, last[START_AT]).select(rows.closed.column_names)
    rows = rows._replace(closed=pa.concat_tables([rows.closed, last]))
    if target.feed:
        replaced = rows.replaced | np.isin(rows.removed, chosen)
        rows = rows._replace(replaced=replaced, replacing=np.append(rows.replacing, np.ones(len(chosen), bool)))
    return its._replace(rows=rows)


def _check_newest(versions: pa.Table, rows: pa.Table, opened: int, target: Target, sequence: tuple[str, ...]) -> None:
    """RowsBehind unless each row is at least as new as the open version of its key, and has one after all.

    `versions`: the open ones before; `opened`: how many there are after."""
    both = [rows, versions]
    new, old = codes_of(both, target)
    count = int(max(new.max(initial=-1), old.max(initial=-1))) + 1
    its, last = sequence_ranks([sequence_of(each, sequence) for each in both], count)
    newest = np.full(count, -1)
    newest[new] = its
    has_row = newest[old] >= 0
    if opened != np.count_nonzero(newest >= 0) or (last > newest[old])[has_row].any():
        raise RowsBehind


def _sequence(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns of the sequence of a table of versions."""
    names = json.loads(metadata["configuration"].get(SEQUENCE_PROPERTY, "[]"))
    return spelled(names, from_delta(metadata["schemaString"]))


def _kind(target: Target, sequence: tuple[str, ...]) -> pa.StructType:
    """The type of a value of the sequence."""
    return pa.struct(
        [(each.name, stored_arrow_type(each)) for name in sequence for each in target.columns if each.name == name]
    )


def _highest(values: Iterable[pa.ChunkedArray]) -> pa.ChunkedArray | None:
    """The highest of these values of a sequence, as one value of the type of the first; None where there is none."""
    highest: pa.ChunkedArray | None = None
    for part in values:
        if highest is not None:
            part = pa.chunked_array([*highest.chunks, *part.cast(highest.type).chunks], highest.type)
        (ranks,) = sequence_ranks([part], 1)
        at = int(ranks.argmax()) if len(ranks) else 0
        highest = part.slice(at, 1) if len(ranks) and ranks[at] else part.slice(0, 0)
    return highest if highest is not None and len(highest) else None


def _following(value: pa.ChunkedArray) -> pa.ChunkedArray:
    """The least value of a sequence that is higher than this one; none of none."""
    *parts, last = value.combine_chunks().flatten()
    last = pa.repeat(next_value(last[0]), 1) if len(last) else last
    return pa.chunked_array([pa.StructArray.from_arrays([*parts, last], names=value.type.names)])


def _end(parts: Iterable[tuple[Target, Sequence[Action]]], sequence: tuple[str, ...]) -> pa.ChunkedArray | None:
    """Right after the highest sequence of open versions and rows, so that no version is empty; None without one."""
    last = _highest(_sequences(target, files, sequence) for target, files in parts)
    return _following(last) if last is not None else None


def _sequences(target: Target, files: Sequence[Action], sequence: tuple[str, ...]) -> pa.ChunkedArray:
    """The highest of the sequences and begins of living rows, or of open versions; empty without one."""
    none = pa.chunked_array([], _kind(target, sequence))
    parts = [none]
    for rows in _live(target, files):
        parts.append(sequence_of(rows, sequence))
        if START_AT in rows.column_names:
            parts.append(bounds_of(rows, START_AT, sequence))
    highest = _highest(parts)
    return none if highest is None else highest


def _ended(gone: pa.Table, end: pa.ChunkedArray) -> pa.Table:
    """The open versions with the sequence at which they end."""
    for name, value in zip(end.type.names, end.combine_chunks().flatten(), strict=True):
        values = pa.repeat(value[0], gone.num_rows).cast(gone[name].type)
        gone = gone.set_column(gone.column_names.index(name), name, values)
    return gone


def _changes(versions: pa.Table, rows: pa.Table, target: Target, moment: tuple[int, pa.ChunkedArray | None]) -> Changed:
    """The rows as upserts, and the open versions without a row as deletes. `moment`: when; with a sequence, at what."""
    new, old = codes_of([rows, versions], target)
    gone = versions.take(whole_numbers(np.flatnonzero(~np.isin(old, new))))
    markers = np.repeat(np.array([UPSERT, DELETE], np.int8), [rows.num_rows, gone.num_rows])
    if moment[1] is not None:
        gone = _ended(gone, moment[1])
    return Changed(pa.concat_tables([rows, gone]).combine_chunks(), markers, None, np.full(len(markers), moment[0]))


def _rows(source: Target, target: Target, files: Sequence[Action], bucket: tuple[int, int]) -> pa.Table:
    """The open versions, or the living rows, of one bucket of keys, with the columns of the source in `target`."""
    kinds = pa.schema([(each.name, stored_arrow_type(each)) for each in target.sources.columns if each.stored])
    parts = [kinds.empty_table()]
    for rows in _live(source, files):
        names = {name.lower(): name for name in rows.column_names}
        columns = [
            rows[names[field.name.lower()]] if field.name.lower() in names else pa.nulls(rows.num_rows, field.type)
            for field in kinds
        ]
        its = plain_columns(pa.table(columns, names=kinds.names)).cast(kinds)
        if bucket[1] > 1:
            its = its.filter(pa.array(key_bucket(key_values(its, target), bucket[1]) == bucket[0]))
        parts.append(its)
    return pa.concat_tables(parts)


def _newest(rows: pa.Table, target: Target, sequence: tuple[str, ...]) -> pa.Table:
    """The newest row of each key: inserts may have made several."""
    return rows.take(whole_numbers(newest_of_keys(rows, target, sequence)))


def _live(source: Target, files: Sequence[Action]) -> Iterator[pa.Table]:
    for add in files:
        for rows in undeleted_rows(add, source):
            yield rows.filter(pc.is_null(rows[END_AT])) if END_AT in rows.column_names else rows


def _without(target: Target, files: Sequence[Action], gone: Mapping[int, np.ndarray]) -> list[Action]:
    """The actions that delete these rows of data files, by the numbers of the files."""
    if target.vectors:
        chosen = {files[number]["path"]: files[number] for number in gone}
        rows = {files[number]["path"]: whole_numbers(numbers) for number, numbers in gone.items()}
        return delete_rows(target.path, chosen, rows, target.version)
    actions: list[Action] = []
    for number, numbers in gone.items():
        batches = (batch for rows in live_rows(files[number], target.whole, numbers) for batch in rows.to_batches())
        actions += [{"add": add} for add in write_rows(batches, target.whole)]
        actions.append({"remove": removed(files[number], int(time.time() * 1000), data_change=True)})
    return actions


def _commit(
    path: str, snapshot: Snapshot, metadata: Mapping[str, Any], at: Position, manifest: Manifest,
    rows: Sequence[Action], durability: str = "power",
) -> None:  # fmt: skip
    ends = {"predicate": f'["{END_AT} IS NULL"]'}
    info = commit_info(snapshot, "UPDATE", ends, metrics={}, user_metadata=manifest.to_json())
    actions = [{"commitInfo": info}, *state_actions(snapshot, metadata), *transactions(at, ()), *rows]
    try:
        failpoints.reach("history.before-end")
    except BaseException:
        delta.remove_written(place(path), snapshot, rows)
        raise
    delta.commit(path, snapshot, actions, durability=durability)
