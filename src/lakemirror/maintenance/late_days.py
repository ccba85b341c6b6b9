"""Removes deletes that are remembered for longer than `late_days` from the table of remembered changes (history.md 2).

statistics of the time of the apply ─▶ files with rows that are too old ─▶ written again without these rows
"""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.commit import commit, remove_written
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.data_files import removed
from lakemirror.delta.log import Action, Snapshot, read_snapshot
from lakemirror.delta.statistics import parse_statistics
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.row_work import Target
from lakemirror.engines.target import apply_target, target_of
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.reserved_columns import APPLIED_AT
from lakemirror.mirror.table_log import LATE_DAYS_PROPERTY
from lakemirror.storage.durable import POWER
from lakemirror.storage.place import place

log = logging.getLogger("lakemirror")

_TOO_OLD = 1 / 8  # of the days: a file that also has younger rows is written again once its oldest are so much older
_DAY = 86_400_000_000  # microseconds
_EXPECTED = (LakemirrorError, pa.ArrowException, OSError, ValueError, KeyError, TypeError)


def forget_old(table: str, *, durability: str = POWER, now: float | None = None) -> int:
    """Removes what is remembered for too long, in one commit; returns the number of files that it replaced. 0 for any
    other table.

    `now`: seconds since the epoch. Never raises: a late change meets an old delete once more.
    """
    actions: list[Action] = []
    snapshot: Snapshot | None = None
    try:
        snapshot = read_snapshot(table)
        days = snapshot.metadata.configuration.get(LATE_DAYS_PROPERTY) if snapshot is not None else None
        if snapshot is None or days is None:
            return 0
        target = replace(apply_target(target_of(table, snapshot.metadata.value)), version=snapshot.version + 1)
        moment = int((time.time() if now is None else now) * 1_000_000)
        oldest = moment - int(days) * _DAY
        files = [add for add in snapshot.files.values() if _is_due(add, target, oldest, int(days))]
        for add in files:
            actions.append({"remove": removed(add, moment // 1000, data_change=True)})
            actions += [{"add": new} for new in write_rows(_younger(add, target, oldest), target)]
        if files:
            info = commit_info(snapshot, "DELETE", {"predicate": f"late_days {days}"}, metrics={})
            commit(table, snapshot, [{"commitInfo": info}, *actions], durability=durability)
        return len(files)
    except _EXPECTED as error:
        if snapshot is not None:
            remove_written(place(table), snapshot, actions)
        log.info("%s: old deletes stay for now: %s", table, error)
        return 0


def _younger(add: Action, target: Target, oldest: int) -> Iterator[pa.RecordBatch]:
    """The rows of a file that are not older than `oldest`, in microseconds since the epoch."""
    bound = pa.scalar(oldest, pa.timestamp("us", "UTC"))
    for rows in live_rows(add, target):
        yield from rows.filter(pc.greater_equal(rows[APPLIED_AT], bound)).to_batches()


def _is_due(add: Action, target: Target, oldest: int, days: int) -> bool:
    """True if all rows of a file are too old, or its oldest ones for long."""
    name = next(each.physical_name for each in target.columns if each.name == APPLIED_AT)
    statistics = parse_statistics(add)
    least, most = (_moment((statistics.get(bound) or {}).get(name)) for bound in ("minValues", "maxValues"))
    is_old = most is not None and most < oldest
    return is_old or (least is not None and least < oldest - int(days * _TOO_OLD * _DAY))


def _moment(value: Any) -> int | None:
    """A time of the statistics in microseconds since the epoch."""
    if not isinstance(value, str):
        return None
    return int(datetime.datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp() * 1_000_000)
