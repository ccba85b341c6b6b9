"""One apply from its plan: files written by an engine, then one commit.

ApplyPlan ─▶ engine.run, or files added as they are ─▶ actions ─▶ commit ─▶ Applied
                                                                    └ version taken: written files are removed
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lakemirror import failpoints
from lakemirror.delta.commit import commit, remove_written, removed
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.data_files import data_file
from lakemirror.delta.log import Action
from lakemirror.delta.row_deletes import delete_rows
from lakemirror.delta.statistics import record_count
from lakemirror.engines.engine import Engine
from lakemirror.engines.kernels.add_files import add_file
from lakemirror.engines.row_work import RowResult, Target
from lakemirror.errors import LakemirrorError, Rejected, TableError
from lakemirror.keys.look_up import read_footer
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.mirror import table_commit
from lakemirror.mirror.applied_record import Detection
from lakemirror.mirror.apply_plan import Applied, ApplyPlan
from lakemirror.mirror.planner import whole_unit
from lakemirror.storage.durable import POWER, make_folders
from lakemirror.storage.place import Place, capabilities_of, place

log = logging.getLogger("lakemirror")

_AT_ONCE = 4  # files that are added as they are at the same time


def apply(
    plan: ApplyPlan,
    path: str,
    engine: Callable[[str], Engine],
    *,
    path_of: Callable[[str], str],
    trust_footers: bool = False,
    durability: str = POWER,
    check_unchanged: Callable[[Sequence[ChangeFile]], None] = lambda _: None,
) -> Applied | Rejected:
    """Makes the plan's commit. If a change file is bad, returns what is wrong with it and changes nothing.

    `path`: the table's folder. `engine` gives the engine of a name. `durability`: as for `commit`.
    `check_unchanged` is called before the commit. It raises if a change file is not
    the listed one any more, because some rows may have been read from each. LakemirrorError: `concurrent-commit` where
    another commit came first, and what engines raise.
    """
    begun = time.monotonic()
    failpoints.reach("apply.before-write")
    if plan.snapshot is None:
        _make_table_folder(path, path_of(""))
    written = _written(plan, path, engine, path_of, trust_footers)
    if isinstance(written, Rejected):
        return written
    rows = written
    try:
        position = table_commit.new_position(plan.start, plan.batch)
        detection = table_commit.recorded(plan.start, plan.batch, path)
        manifest = table_commit.manifest(plan.start, plan.batch, detection)
        actions = [*_state(plan, detection), *rows]
        info = _info(plan, manifest.to_json(), rows)
        check_unchanged([item.file for item in plan.batch.files])
        failpoints.reach("apply.before-commit")
    except BaseException:
        remove_written(place(path), plan.snapshot, rows)
        raise
    version = commit(path, plan.snapshot, [{"commitInfo": info}, *actions], durability=durability)
    failpoints.reach("apply.after-commit")
    seconds = time.monotonic() - begun
    return Applied(plan.batch, position, manifest, version, plan.choice.engine, plan.choice.reason, seconds)


def _make_table_folder(path: str, database: str) -> None:
    """LakemirrorError `concurrent-commit` where the database was deleted."""
    try:
        make_folders(place(path), place(database))
    except FileNotFoundError as error:
        raise LakemirrorError("concurrent-commit", f"{database} is not there any more") from error


def _written(
    plan: ApplyPlan, path: str, engine: Callable[[str], Engine], path_of: Callable[[str], str], trust_footers: bool
) -> list[Action] | Rejected:
    """The actions of the batch's rows; the files that they name are written."""
    now = int(time.time() * 1000)
    actions: list[Action] = [{"remove": removed(add, now, data_change=True)} for add in plan.removed]
    if plan.row_work is None:
        return actions
    target = plan.row_work.target
    if plan.added_as_they_are:
        result = _as_they_are(plan, target, path_of, trust_footers)
        if isinstance(result, Rejected):
            return result
    else:
        result = engine(plan.choice.engine).run(plan.row_work)
        if result.error is not None:
            return result.error
    files = [data_file(path, action["path"]) for action in (*result.adds, *result.changes)]
    if any(len(rows) for rows in result.deleted.values()) or result.rewritten:
        try:
            table_commit.check_writable(plan.metadata, plan.snapshot, path, deletes=True)
        except TableError:
            _remove(files)
            raise
    candidates = {add["path"]: add for add in plan.row_work.candidates}
    try:
        deleted = {name: rows for name, rows in result.deleted.items() if len(rows)}
        counted = {name: _with_count(candidates[name], target) for name in deleted}
        actions += delete_rows(path, counted, deleted, plan.version)
    except BaseException as error:
        _remove(files)
        if isinstance(error, ValueError):
            raise LakemirrorError("table-unreadable", f"{path}: {error}") from error
        raise
    actions += [{"remove": removed(candidates[name], now, data_change=True)} for name in result.rewritten]
    actions += [{"add": add} for add in result.adds]
    actions += [{"cdc": each} for each in result.changes]
    return actions


def _with_count(add: Action, target: Target) -> Action:
    """The `add` action with its number of rows, which the commit of a vector needs; read from the footer where it is
    missing.
    """
    if record_count(add) is not None:
        return add
    return {**add, "stats": json.dumps({"numRecords": read_footer(add, target).num_rows})}


def _as_they_are(
    plan: ApplyPlan, target: Target, path_of: Callable[[str], str], trust_footers: bool
) -> RowResult | Rejected:
    def add(item: Any) -> Action | Rejected:
        own = bool(item.file.read_from)
        return add_file(whole_unit(item, path_of), target, item.file.footer, trust_footer=trust_footers, is_own=own)

    threads = _AT_ONCE if capabilities_of(target.path).waits else max(1, min(_AT_ONCE, os.cpu_count() or 1))
    with ThreadPoolExecutor(threads) as pool:
        begun = [pool.submit(add, item) for item in plan.batch.files]
    found = [each.result() for each in begun if each.exception() is None]
    adds = [each for each in found if isinstance(each, dict)]
    if len(adds) == len(begun):
        return RowResult(adds=tuple(adds))
    _remove([data_file(target.path, each["path"]) for each in adds])
    failure = next((each.exception() for each in begun if each.exception() is not None), None)
    if failure is not None:
        raise failure
    return next(each for each in found if isinstance(each, Rejected))


def _state(plan: ApplyPlan, detection: Detection) -> list[Action]:
    """The actions for the table's state after the commit: columns, properties, protocol, position."""
    metadata = table_commit.with_detection(plan.metadata, detection)
    position = table_commit.new_position(plan.start, plan.batch)
    now = int(time.time() * 1000)
    return table_commit.state_actions(plan.snapshot, metadata) + [
        {"txn": {"appId": app, "version": number, "lastUpdated": now}}
        for app, number in table_commit.transactions(position, plan.batch).items()
    ]


def _info(plan: ApplyPlan, manifest: str, rows: Sequence[Action]) -> dict[str, Any]:
    """The commit's entry in the table's history."""
    added = [action["add"] for action in rows if "add" in action and not action["add"].get("deletionVector")]
    metrics = {
        "numFiles": len(added),
        "numRemovedFiles": sum("remove" in action for action in rows),
        "numOutputBytes": sum(add["size"] for add in added),
        "numOutputRows": sum(record_count(add) or 0 for add in added),
    }
    exists = plan.snapshot is not None and not plan.start.replaces
    append = plan.batch.append_only and exists
    return commit_info(
        plan.snapshot,
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


__all__ = ["apply"]
