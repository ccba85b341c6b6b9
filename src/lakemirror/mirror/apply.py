"""One apply from its plan: files written by an engine, then one commit.

ApplyPlan ─▶ run: engine, or files added as they are ─▶ actions ─▶ commit ─▶ Applied
                                                                     └ version taken: written files are removed
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from lakemirror import failpoints
from lakemirror.delta import commit as delta
from lakemirror.delta.checkpoint import OldestKept
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.data_files import data_file, removed
from lakemirror.delta.deletion_vectors import delete_rows
from lakemirror.delta.log import Action, Snapshot
from lakemirror.delta.protocol import protocol_of
from lakemirror.delta.statistics import record_count
from lakemirror.engines.engine import Engine
from lakemirror.engines.kernels.add_files import add_file
from lakemirror.engines.row_work import RowResult, Target
from lakemirror.errors import Bad, LakemirrorError
from lakemirror.keys.look_up import read_footer
from lakemirror.landing_zone.metadata import LAST_UPDATE, Warned
from lakemirror.landing_zone.table_options import CHANGES
from lakemirror.landing_zone.zone import TOKEN
from lakemirror.mirror.next_batch import Batch, BatchFile
from lakemirror.mirror.planner import AddedFile, ApplyPlan, Base, check_deletes, with_detection
from lakemirror.mirror.position import (
    BEYOND,
    MISSING_ROWS,
    AppliedPaths,
    Detection,
    Manifest,
    Position,
    file_mark,
    position_after,
    with_notes,
)
from lakemirror.mirror.table_log import TableLog
from lakemirror.storage.durable import POWER, make_folders, remove_empty_folders
from lakemirror.storage.place import Place, capabilities_of, place

_AT_ONCE = 4  # files that are added as they are at the same time
_LONGEST_TOKEN = 200


@dataclass(frozen=True)
class Applied:
    """What one apply did: the batch, the position after it, the table's new version.

    `engine`: the name of the engine that did the row work, and `engine_reason`: why it was chosen; empty if unknown.
    `seconds`: from the plan to the commit. `also`: the same of the history tables, as in `ApplyPlan`.
    """

    batch: Batch
    position: Position
    manifest: Manifest
    version: int
    engine: str = ""
    engine_reason: str = ""
    seconds: float = 0.0
    also: tuple[Applied, ...] = ()

    @property
    def logged(self) -> TableLog:
        """What the table's log then says."""
        manifest = self.manifest
        return TableLog(
            self.position, manifest, manifest.key_columns, manifest.detection, version=self.version,
            history=manifest.history,
        )  # fmt: skip


class Written(NamedTuple):
    """The actions of a batch's rows; the files that they name are written. Counts: as of `RowResult`. `also`: for the
    history tables, as in `ApplyPlan`."""

    actions: list[Action]
    missing: int = 0
    ignored: int = 0
    late: int = 0
    beyond: int = 0
    also: tuple[Written, ...] = ()


def run(plan: ApplyPlan, engine: Callable[[str], Engine], *, trust_footers: bool = False) -> Written:
    """Does the plan's row work.

    `engine` gives the engine of a name. Bad: a change file cannot be applied; nothing stays behind. LakemirrorError:
    what engines raise, and `table-append-only` where rows of a table that forbids it are deleted.
    """
    failpoints.reach("apply.before-write")
    plans = [plan, *plan.also]
    new = [each.base for each in plans if each.base.snapshot is None]
    for base in new:
        make_table_folder(base)
    try:
        result = _row_results(plan, engine, trust_footers)
    except BaseException:
        for base in new:
            remove_empty_folders(place(base.path))
        raise
    results, done = [result, *result.also], list[Written]()
    try:
        for each, its in zip(plans, results, strict=True):
            done.append(_written(each, its))
    except BaseException as error:
        for each, rows in zip(plans, done, strict=False):
            delta.remove_written(place(each.base.path), each.base.snapshot, rows.actions)
        for each, its in zip(plans, results, strict=True):
            _remove([data_file(each.base.path, action["path"]) for action in (*its.adds, *its.changes)])
        if isinstance(error, ValueError):
            raise LakemirrorError("table-unreadable", f"{plan.base.path}: {error}") from error
        raise
    first, *also = done
    return first._replace(also=tuple(also)) if also else first


def _row_results(plan: ApplyPlan, engine: Callable[[str], Engine], trust_footers: bool) -> RowResult:
    """What an engine did for the plan and for those of the history tables."""
    works = tuple(each.row_work for each in plan.also if each.row_work is not None)
    if plan.row_work is None:
        return RowResult(also=tuple(RowResult() for _ in plan.also))
    if not plan.added:
        work = replace(plan.row_work, also=works) if works else plan.row_work
        return engine(plan.choice.engine).run(work)
    result = _copied(plan.added, plan.row_work.target, trust_footers)
    if not works:
        return result
    try:
        other = engine(plan.also[0].choice.engine).run(replace(works[0], also=works[1:]))
    except BaseException:
        _remove([data_file(plan.base.path, add["path"]) for add in result.adds])
        raise
    return replace(result, also=(other, *other.also))


def _written(plan: ApplyPlan, result: RowResult) -> Written:
    """The actions of a plan's rows."""
    now = int(time.time() * 1000)
    actions: list[Action] = [{"remove": removed(add, now, data_change=True)} for add in plan.removed]
    if plan.row_work is None:
        return Written(actions)
    path, target = plan.base.path, plan.row_work.target
    candidates = {add["path"]: add for add in plan.row_work.candidates}
    deleted = {name: rows for name, rows in result.deleted.items() if len(rows)}
    if deleted or result.rewritten:
        check_deletes(plan.metadata, plan.base)
    counted = {name: _with_count(candidates[name], target) for name in deleted}
    actions += delete_rows(path, counted, deleted, plan.version)
    actions += [{"remove": removed(candidates[name], now, data_change=True)} for name in result.rewritten]
    actions += [{"add": add} for add in result.adds]
    actions += [{"cdc": change} for change in result.changes]
    return Written(actions, result.missing, result.ignored, result.late, result.beyond)


def commit(
    plan: ApplyPlan,
    written: Written,
    *,
    begun: float,
    durability: str = POWER,
    check: Callable[[], None] = lambda: None,
    oldest_kept: OldestKept = lambda: None,
) -> Applied:
    """Makes the plan's commit: the actions of its rows, the table's state, position and manifest at once.

    `begun`: when the apply began, by `time.monotonic`. `durability`: as for `delta.commit`. `check` is called right
    before the commit, and raises where what the plan rests on has changed. `oldest_kept`: the version from which on
    the log stays. Where no commit is made, the written files are removed. LakemirrorError
    `concurrent-commit` where another commit came first.
    """
    path, snapshot, rows = plan.base.path, plan.base.snapshot, written.actions
    also: tuple[Applied, ...] = ()
    try:
        if plan.also:
            also = _commit_history(plan, written, partial(commit, begun=begun, durability=durability), check)
            check = _checked  # all targets get what was read, also where a file changes between their commits
        if written.missing:
            plan = _warned(plan, Warned("partial-row-missing", f"{written.missing} {MISSING_ROWS}"))
        if written.beyond and plan.base.history is not None:
            what = "got late changes that are older than `late_days`: versions may be inexact"
            plan = _warned(plan, Warned(BEYOND, f"{plan.base.history.target} {what}"))
        view, batch = plan.view, plan.batch
        position = position_after(view.at, view.identity, batch.files[-1].file.number)
        detection = view.detection
        if detection.strategy == LAST_UPDATE:
            detection = _with_paths(detection, batch, path)
        manifest = _manifest(plan, detection, written)
        metadata = plan.metadata if detection is view.detection else with_detection(plan.metadata, detection)
        actions = [
            {"commitInfo": _info(plan, manifest.to_json(), rows)},
            *state_actions(snapshot, metadata),
            *transactions(position, batch.files, _carried(plan) if plan.base.history is not None else {}),
            *rows,
        ]
        check()
        failpoints.reach("apply.before-commit")
    except BaseException:
        delta.remove_written(place(path), snapshot, rows)
        raise
    version = delta.commit(path, snapshot, actions, durability=durability, keep_log=oldest_kept)
    failpoints.reach("apply.after-commit")
    choice, seconds = plan.choice, time.monotonic() - begun
    return Applied(batch, position, manifest, version, choice.engine, choice.reason, seconds, also)


def _checked() -> None:
    """Nothing is to be checked any more."""


def _commit_history(
    plan: ApplyPlan, written: Written, commit: Callable[[ApplyPlan, Written], Applied], check: Callable[[], None]
) -> tuple[Applied, ...]:
    """Commits to the history tables, one after the other, after a `check`. Where one is not made, the files of the
    later ones are removed, and after a failed check those of all; the next step finds which tables have the batch."""
    done: list[Applied] = []
    left = list(zip(plan.also, written.also, strict=True))
    try:
        check()
        while left:
            done.append(commit(*left.pop(0)))
            failpoints.reach("history.after-commit")
    except BaseException:
        for each, rows in left:
            delta.remove_written(place(each.base.path), each.base.snapshot, rows.actions)
        raise
    return tuple(done)


def _warned(plan: ApplyPlan, warning: Warned) -> ApplyPlan:
    """The plan with a warning of its first file that its row work has shown."""
    warning = warning._replace(file=plan.batch.files[0].file.entry.path)
    return replace(plan, batch=replace(plan.batch, warnings=(*plan.batch.warnings, warning)))


def state_actions(snapshot: Snapshot | None, metadata: Mapping[str, Any]) -> list[Action]:
    """The `protocol` and `metaData` actions that bring a table to this metadata; none where nothing changes."""
    before = snapshot.protocol if snapshot else None
    protocol = protocol_of(metadata, before)
    actions = [] if protocol == before else [protocol.to_action()]
    if snapshot is None or dict(snapshot.metadata.value) != dict(metadata):
        actions.append({"metaData": dict(metadata)})
    return actions


def make_table_folder(base: Base) -> None:
    """LakemirrorError `concurrent-commit` where the database was deleted."""
    try:
        make_folders(place(base.path), place(base.database))
    except FileNotFoundError as error:
        raise LakemirrorError("concurrent-commit", f"{base.database} is not there any more") from error


def _copied(files: Sequence[AddedFile], target: Target, trust_footers: bool) -> RowResult:
    """Copies change files into the table as data files: all of them, or none."""

    def add(file: AddedFile) -> Action:
        return add_file(file.unit, target, file.footer, trust_footer=trust_footers, is_own=file.is_own)

    threads = _AT_ONCE if capabilities_of(target.path).waits else max(1, min(_AT_ONCE, os.cpu_count() or 1))
    with ThreadPoolExecutor(threads) as pool:
        begun = [pool.submit(add, file) for file in files]
    adds = [future.result() for future in begun if future.exception() is None]
    if len(adds) == len(begun):
        return RowResult(adds=tuple(adds))
    _remove([data_file(target.path, add["path"]) for add in adds])
    failures = [failure for future in begun if (failure := future.exception()) is not None]
    raise next((failure for failure in failures if not isinstance(failure, Bad)), failures[0])


def _with_count(add: Action, target: Target) -> Action:
    """The `add` action with its number of rows, which the commit of a vector needs; read from the footer where it is
    missing.
    """
    if record_count(add) is not None:
        return add
    return {**add, "stats": json.dumps({"numRecords": read_footer(add, target).num_rows})}


def _with_paths(detection: Detection, batch: Batch, path: str) -> Detection:
    """The table's record of how files are found, with the batch's, whose paths are written beside the table."""
    applied = AppliedPaths(path, detection.segments)
    segments = applied.with_paths(item.file.below for item in batch.files)
    return Detection(detection.strategy, detection.partitioned, segments, detection.numbered)


def _carried(plan: ApplyPlan) -> Mapping[str, int]:
    """Where the partitions are of a history table that goes on after a resync, under the folder's new identity."""
    return (plan.view.applied.sequences or {}) if plan.view.is_recreated else {}


def transactions(
    position: Position, files: Sequence[BatchFile], sequences: Mapping[str, int] | None = None
) -> list[Action]:
    """The `txn` actions of a commit: the position, and where each partition is. `sequences`: where they were."""
    numbers = {position.app_id: position.number}
    for partition, number in (sequences or {}).items():
        numbers[position.partition_app_id(partition)] = number
    for item in files:
        if item.file.partition and item.file.sequence:
            numbers[position.partition_app_id(item.file.partition)] = item.file.sequence
    now = int(time.time() * 1000)
    return [{"txn": {"appId": app, "version": number, "lastUpdated": now}} for app, number in numbers.items()]


def _manifest(plan: ApplyPlan, detection: Detection, written: Written) -> Manifest:
    view, batch, before = plan.view, plan.batch, plan.view.manifest
    if plan.base.history is not None and view.table is not None:
        before = view.table.manifest  # counted since the table began, also where the folder was made again
    last = batch.files[-1].file
    return Manifest(
        identity=view.identity,
        first=batch.files[0].file.number,
        last=last.number,
        file=last.below,
        size=last.entry.size,
        modified=last.entry.modified,
        tag=last.entry.tag,
        token=(last.footer.metadata or {}).get(TOKEN.encode(), b"").decode("utf-8", "replace")[:_LONGEST_TOKEN],
        key_columns=view.files.metadata.key_columns,
        rows=(before.rows if before else 0) + batch.rows,
        bytes=(before.bytes if before else 0) + batch.bytes,
        committed=max(item.file.entry.modified for item in batch.files) / 1e9,
        notes=with_notes(before.notes if before else (), batch.warnings),
        detection=detection.to_json(),
        ignored_deletes=(before.ignored_deletes if before else 0) + written.ignored,
        late_changes=(before.late_changes if before else 0) + written.late,
        history=plan.base.history.label if plan.base.history is not None else "",
        earlier=_marks(batch.files[:-1]) if len(batch.files) > 1 and plan.base.history is not None else (),
        began=before.began if before and plan.base.history is not None else 0.0,
        times=_times(batch.files) if len(batch.files) > 1 and plan.base.history is None else (),
    )


def _marks(files: Sequence[BatchFile]) -> tuple[str, ...]:
    return tuple(file_mark(item.file.below, item.file.entry.etag) for item in files)


def _times(files: Sequence[BatchFile]) -> tuple[int | None, ...]:
    """The `times` of a manifest: of each number but the last, microseconds after the last file, which may be negative;
    None for a number that was set aside. Partitions have none."""
    if any(item.file.partition for item in files):
        return ()
    last = files[-1].file
    known = {item.file.number: item.file.entry.modified // 1000 - last.entry.modified // 1000 for item in files}
    return tuple(known.get(number) for number in range(files[0].file.number, last.number))


def _info(plan: ApplyPlan, manifest: str, rows: Sequence[Action]) -> dict[str, Any]:
    """The commit's entry in the table's history."""
    added = [action["add"] for action in rows if "add" in action and not action["add"].get("deletionVector")]
    metrics = {
        "numFiles": len(added),
        "numRemovedFiles": sum("remove" in action for action in rows),
        "numOutputBytes": sum(add["size"] for add in added),
        "numOutputRows": sum(record_count(add) or 0 for add in added),
    }
    appends = plan.batch.append_only or (plan.base.history is not None and plan.base.history.options.mode == CHANGES)
    append = appends and plan.base.snapshot is not None and not plan.replaces
    return commit_info(
        plan.base.snapshot,
        "WRITE",
        {"mode": "Append" if append else "Overwrite"},
        metrics=metrics,
        blind_append=append,
        user_metadata=manifest,
    )


def _remove(files: Sequence[Place]) -> None:
    for path in files:
        with contextlib.suppress(OSError, LakemirrorError):
            path.unlink(missing_ok=True)
