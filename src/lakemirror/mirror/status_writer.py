"""When the status of one mirrored database is written to `Files/Monitoring`, and what is in it.

states of the tables, warnings ─▶ DatabaseStatus ─▶ changed, or the heartbeat is due? ─▶ status files
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakemirror import failpoints
from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.landing_zone.findings import Warned, lasting, summed_up
from lakemirror.landing_zone.partner_events import read_partner
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.mirror.scheduler import Scheduler
from lakemirror.status import status as monitoring
from lakemirror.status.status import HEARTBEAT, EngineProcess, TableStatus
from lakemirror.status.status_reader import read_tables
from lakemirror.storage import Storage

if TYPE_CHECKING:
    from lakemirror.mirror.engine_group import EngineGroup

log = logging.getLogger("lakemirror")

_DELETED = 10.0  # seconds after which a status folder that is gone is made again
_AT_WORK = 1.0  # seconds: a status that changes while a table is at work is written so often in a store
_WRITE_SHARE = 10.0  # pause after the status was written, as a multiple of how long that took: there may be many tables


class StatusWriter:
    """Writes the status files when something changed, and regularly as a heartbeat."""

    def __init__(self, storage: Storage, before: monitoring.DatabaseStatus, group: EngineGroup | None = None) -> None:
        """`before`: what an earlier process wrote. `group`: the engines that share the database: each writes the states
        of its tables beside, and the one that leads writes the status of all."""
        self.warnings: Sequence[Warned] = ()  # about the database, beside those of its folders and tables
        self.is_late = False  # a change is not written yet
        self._storage = storage
        self._process = EngineProcess.this()
        self._written = before if before.tables else None  # a file that cannot be read has no tables, too
        self._stored: monitoring.DatabaseStatus | None = None  # the same, with the process that wrote it
        self._beaten = -math.inf  # when the last heartbeat was written
        self._changed: float | None = None
        self._said = ""
        self._logged: list[Warned] = []
        self._lasting = before.warnings
        self._has_folder = False
        self._missed_since: float | None = None
        self._not_before = 0.0
        self._group = group
        self._part: tuple[TableStatus, ...] | None = None  # what this engine wrote last of its own tables
        self._part_at = -math.inf

    @property
    def written(self) -> monitoring.DatabaseStatus | None:
        """The status as it was written last; None before."""
        return self._written

    def unchanged(self) -> monitoring.DatabaseStatus | None:
        """The status as it was written last; None if another process has written since, or that is not known."""
        try:
            is_ours = self._stored is not None and monitoring.is_stored(self._storage, self._stored)
        except LakemirrorError:
            return None
        return self._stored if is_ours else None

    def write(self, status: str, scheduler: Scheduler, error: LakemirrorError | None = None) -> None:
        """Never raises. A failed write is repeated next time, and logged once."""
        try:
            if self._group is not None and not self._leads(self._group, scheduler, status):
                return
            if self._write(status, scheduler, error):
                self._said = ""
        except Exception as failure:
            why = coded(failure)
            if why.code != self._said:
                log.error("the status cannot be written: %s; tables go on", why)
            self._said = why.code

    def _write(self, status: str, scheduler: Scheduler, error: LakemirrorError | None) -> bool:
        """False where there was nothing to write."""
        zone = scheduler.zone
        partner, warned = read_partner(self._storage, zone) if zone.partner_events is not None else (None, None)
        of_the_zone = [*zone.warnings, *([warned] if warned else ()), *scheduler.dropped.warnings]
        for each in summed_up(each for each in of_the_zone if each not in self._logged):
            log.warning("warning %s: %s", each.code, each.message)
        self._logged = of_the_zone
        found = (
            *of_the_zone,
            *list(scheduler.tables.warnings.values()),
            *self.warnings,
        )
        self._lasting = lasting(self._lasting, found, time.time())
        now = monitoring.DatabaseStatus(
            status,
            error.code if error else "",
            error.message if error else "",
            scheduler.tables.rows(),
            self._lasting,
            partner,
        )
        moment, is_same = time.monotonic(), now == self._written
        is_due = moment - self._beaten >= HEARTBEAT
        self.is_late = not is_same
        if is_same and not is_due:
            return False
        if not is_same and not is_due and self._storage.capabilities.waits and scheduler.at_work:
            self._changed = moment if self._changed is None else self._changed
            if moment - self._changed < _AT_WORK:
                return False  # each write is a request: one write usually reports the begin and the end of an apply
        if not is_due and moment < self._not_before and status == "Running":
            return False
        self._changed = None
        failpoints.reach("status.before-write")
        with_process = replace(now, process=replace(self._process, heartbeat=time.time()))
        if not monitoring.rewrite_status(self._storage, with_process, self._written, heartbeat=is_due):
            if not self._may_write():
                return False
            is_due = True
            monitoring.write_status(self._storage, with_process)
        self._beaten = moment if is_due else self._beaten
        self._stored = with_process if is_due else None
        self._written, self.is_late = now, False
        self._has_folder, self._missed_since = True, None
        ended = time.monotonic()
        self._not_before = ended + _WRITE_SHARE * (ended - moment)
        return True

    def _leads(self, group: EngineGroup, scheduler: Scheduler, status: str) -> bool:
        """Writes the states of this engine's tables beside. True where it also writes the status of all: then it has
        taken the states of the others."""
        own = tuple(scheduler.tables.own_rows())
        moment, ends = time.monotonic(), status == "Stopped"
        self.is_late = own != self._part
        if self.is_late and group.is_settled and (ends or moment - self._part_at >= _AT_WORK):
            monitoring.write_tables(self._storage, group.status_path, own)
            self._part, self._part_at, self.is_late = own, moment, False
        if not group.leads or (ends and len(group.members) > 1):
            self._written = None  # another one writes it
            return False
        for path in group.news():
            scheduler.tables.take(read_tables(self._storage, path))
        return True

    def _may_write(self) -> bool:
        """False if the status folder is gone, because somebody may be deleting the database: writing the status would
        bring it back. If the landing zone still exists after a while, the folder is made again.
        """
        if self._storage.exists(monitoring.MONITORING):
            return True
        if not self._storage.exists(LANDING_ZONE):
            return False
        now = time.monotonic()
        if self._missed_since is None:
            self._missed_since = now
        return not self._has_folder or now - self._missed_since > _DELETED
