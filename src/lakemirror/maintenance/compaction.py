"""Compaction: merges small data files, and rewrites files without their deleted rows.

    snapshot ─▶ policy.py chooses files ─▶ engine.rewrite: their living rows ─▶ a commit without a change of data

If another commit takes the version first, this one is not made and its files are removed.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from lakemirror import failpoints
from lakemirror.delta.checksum import counted
from lakemirror.delta.commit import commit
from lakemirror.delta.commit_info import ENGINE, commit_info
from lakemirror.delta.data_files import removed
from lakemirror.delta.log import Action, Snapshot, read_snapshot
from lakemirror.delta.log_folder import Log
from lakemirror.engines.kernels.compact import Cancelled, compact
from lakemirror.engines.kernels.data_rows import place_of
from lakemirror.engines.late_deletes import may_have_deletes
from lakemirror.engines.newest_rows import in_order_of_writing
from lakemirror.engines.row_work import RewriteWork
from lakemirror.engines.target import target_of, unsupported_reason
from lakemirror.engines.versions import may_have_open
from lakemirror.errors import LakemirrorError
from lakemirror.keys.key_index import replace_merged
from lakemirror.keys.look_up import LATELY_READ
from lakemirror.keys.written_rows import LATELY_WRITTEN
from lakemirror.landing_zone.table_options import LATE, SCD2, SOFT
from lakemirror.maintenance import policy
from lakemirror.mirror.history.row_options import DELETES_PROPERTY, options_kept
from lakemirror.mirror.schema_evolution import KEYS_PROPERTY
from lakemirror.mirror.table_log import HISTORY_PROPERTY
from lakemirror.storage.durable import POWER

log = logging.getLogger("lakemirror")

EVERY = 32
"""Commits of a table after which its small files are looked at."""

_OFTEN = 4  # the same for a table that some small files make slow to read

Rewrite = Callable[[RewriteWork], Sequence[Action]]
"""Who writes the files: `rewrite` of an engine, or the kernel itself."""

Choose = Callable[[Collection[Action]], list[Action]]
"""Which files of a table are written again."""

Choices = tuple[Choose, Choose]
"""Which of the files with rows that every apply looks up are written again, and which of all others."""

Known = Callable[[], Log | None]
"""Gives the log of the table, or its end, as the process knows it; None if it must be listed."""

_EXPECTED = (LakemirrorError, pa.ArrowException, OSError, ValueError, KeyError, TypeError)


def is_due(before: int, version: int) -> bool:
    """True if the small files of a table are looked at after these commits (`merge_small_files`)."""
    return version // EVERY != before // EVERY


def is_tier_due(before: int, version: int) -> bool:
    """True if the files of a history table are looked at (`merge_history`)."""
    return version // _OFTEN != before // _OFTEN


def is_due_sooner(table: str, before: int, version: int) -> bool:
    """True if they are looked at because a few of them are many for this table (`merge_few`)."""
    if not is_tier_due(before, version):
        return False
    found = counted(table, version)
    if found is None:
        return False
    few = policy.most_small_files(found.bytes, rows_are_read=_reads_old_rows(found.configuration))
    return few <= min(found.files, policy.AT_LEAST - 1)


def merge_small_files(
    table: str, *, durability: str = POWER, rewrite: Rewrite = compact, known: Known = lambda: None
) -> int:
    """Merges small files. Returns the number of replaced files; 0 if there was nothing to do, or another commit was
    faster. `known` gives the log, or its end, as it was listed before.

    Never raises: a table can be read and changed without compaction.
    """
    return _merge_now(table, (policy.in_turn,) * 2, durability, rewrite, known)


def merge_few(table: str, *, durability: str = POWER, rewrite: Rewrite = compact, known: Known = lambda: None) -> int:
    """The same if a few small files make Spark slower, or applies that read old rows (`policy.in_between`)."""
    sooner = partial(policy.in_between, rows_are_read=True)
    return _merge_now(table, (sooner, policy.in_between), durability, rewrite, known)


def merge_history(
    table: str, before: int, version: int, *, durability: str = POWER, known: Known = lambda: None
) -> int:
    """The same for a history table after these commits of the mirrored one: files with rows that every apply looks up
    (`policy.in_tiers`), or, two commits later, others (`policy.in_short_turn`)."""
    due = is_tier_due(before, version), is_tier_due(before + 2, version + 2)
    if not any(due):
        return 0
    choose = policy.in_tiers if due[0] else _nothing, policy.in_short_turn if due[1] else _nothing
    return _merge_now(table, choose, durability, compact, known)


def merge_when_idle(
    table: str,
    *,
    all_vectors: bool,
    durability: str = POWER,
    rewrite: Rewrite = compact,
    hold: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(True),
) -> int | None:
    """The same for an idle table; None if another writer changes it or the disk fails.

    `all_vectors`: all deletion vectors are removed. One call makes one commit; call it until nothing is left. The last
    commit says so (`is_complete`). `hold` keeps applies of the table waiting while it yields True. A heavy piece goes
    without, and is cancelled when an apply comes.
    """
    choose = partial(policy.when_idle, all_vectors=all_vectors)
    return _merge(table, (choose,) * 2, durability=durability, rewrite=rewrite, when_idle=True, hold=hold)


def is_complete(info: Mapping[str, Any]) -> bool:
    """True for the `commitInfo` of a compaction, ours or another engine's, that left nothing to do."""
    given = info.get("operationParameters")
    is_piece = info.get("engineInfo") == ENGINE and isinstance(given, Mapping) and given.get("auto") is True
    return info.get("operation") == "OPTIMIZE" and not is_piece


def _nothing(_: Collection[Action]) -> list[Action]:
    return []


def _merge_now(table: str, choose: Choices, durability: str, rewrite: Rewrite, known: Known) -> int:
    try:
        return _merge(table, choose, durability=durability, rewrite=rewrite, known=known) or 0
    except Cancelled:
        return 0


def _merge(
    table: str,
    choose: Choices,
    *,
    durability: str,
    rewrite: Rewrite,
    when_idle: bool = False,
    known: Known = lambda: None,
    hold: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(True),
) -> int | None:
    adds: Sequence[Action] = ()
    try:
        snapshot = read_snapshot(table, listed=known())
        if snapshot is None or unsupported_reason(snapshot, nested=True) is not None:
            return 0
        for cache in (LATELY_READ, LATELY_WRITTEN):
            cache.keep_only(table, {place_of(table, add["path"]) for add in snapshot.files.values()})
        files = _chosen(choose, snapshot, snapshot.files.values())
        if not files:
            return 0
        with nullcontext(True) if policy.is_heavy(files) else hold() as is_free:
            if not is_free:
                raise Cancelled
            work = _work(table, snapshot, files)
            adds = rewrite(work)
            gone = {id(add) for add in files}
            left = [*(add for add in snapshot.files.values() if id(add) not in gone), *adds]
            is_last = when_idle and not _chosen(choose, snapshot, left)
            actions = _actions(snapshot, files, adds, auto=not is_last)
            failpoints.reach("merge.before-commit")
            commit(table, snapshot, actions, durability=durability, keep_log=lambda: 0)  # the next apply cleans up
            replace_merged(files, adds, work.target)
            return len(files)
    except _EXPECTED as error:
        log.info("%s: small files stay: %s", table, error)
        is_ours_to_wait = isinstance(error, OSError) or getattr(error, "code", "") == "storage-unavailable"
        return None if adds or is_ours_to_wait else 0


def _chosen(choose: Choices, snapshot: Snapshot, adds: Collection[Action]) -> list[Action]:
    """The files to rewrite. Open versions stay in files of their own, and remembered deletes: an apply reads these."""
    apart = {SCD2: may_have_open, LATE: may_have_deletes}
    configuration = snapshot.metadata.configuration
    is_apart = apart.get(configuration.get(HISTORY_PROPERTY, "").partition(":")[0])
    if is_apart is None:
        return choose[0 if _reads_old_rows(configuration) else 1](adds)
    target = target_of(str(snapshot.table), snapshot.metadata.value)
    groups: tuple[list[Action], list[Action]] = ([], [])
    for add in adds:
        groups[is_apart(add, target)].append(add)
    return choose[1](groups[False]) or choose[0](groups[True])


def _reads_old_rows(configuration: Mapping[str, str]) -> bool:
    """True for a mirrored table whose applies read the rows of their keys: with soft deletes or a sequence."""
    return configuration.get(DELETES_PROPERTY) == SOFT or bool(options_kept(configuration).get("sequence"))


def _work(table: str, snapshot: Snapshot, files: Sequence[Action]) -> RewriteWork:
    keys = json.loads(snapshot.metadata.configuration.get(KEYS_PROPERTY, "[]"))
    living = sum(map(policy.living_bytes, files))
    count = policy.pieces(snapshot.files.values(), living)
    target = replace(target_of(table, snapshot.metadata.value, keys), version=snapshot.version + 1)
    chosen = {id(add) for add in files}
    in_log = [add for add in snapshot.files.values() if id(add) in chosen]
    return RewriteWork(target, tuple(in_order_of_writing(in_log)), count)


def _actions(snapshot: Snapshot, files: Sequence[Action], adds: Sequence[Action], *, auto: bool) -> list[Action]:
    now = int(time.time() * 1000)
    metrics = {
        "numAddedFiles": len(adds),
        "numRemovedFiles": len(files),
        "numAddedBytes": sum(int(add["size"]) for add in adds),
    }
    parameters = {"predicate": "[]", "zOrderBy": "[]", "auto": auto}
    info = commit_info(snapshot, "OPTIMIZE", parameters, metrics=metrics, isolation="SnapshotIsolation")
    actions: list[Action] = [{"remove": removed(add, now, data_change=False)} for add in files]
    actions += [{"add": {**add, "dataChange": False}} for add in adds]
    return [{"commitInfo": info}, *actions]
