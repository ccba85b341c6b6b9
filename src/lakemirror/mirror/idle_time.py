"""What one mirrored database does while no table has work: key indexes, maintenance, verification.

no table has work ─▶ missing key indexes ─▶ compaction, vacuum ─▶ verification of a table that is due ─▶ pause
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from lakemirror.engines.row_work import Action, Target
from lakemirror.landing_zone.metadata import Warned
from lakemirror.maintenance.idle_work import Maintenance
from lakemirror.maintenance.key_scan import KeyScan
from lakemirror.mirror.observer import Maintained
from lakemirror.mirror.scheduler import Scheduler
from lakemirror.settings.settings import Settings
from lakemirror.storage import Storage
from lakemirror.verify.idle import IdleVerification

_SHARE = 100.0  # pause between two searches for idle work, as a multiple of how long one takes
_LATELY = 60.0  # seconds after idle work in which there is probably more


class IdleTime:
    """Starts the idle work of one database, in threads of its own."""

    def __init__(
        self, storage: Storage, settings: Settings, index_keys: Callable[[Target, Sequence[Action]], None],
        maintained: Maintained,
    ) -> None:  # fmt: skip
        """`index_keys` gets the data files that compaction has written; `maintained` is told of each piece of work."""
        self._maintenance = Maintenance(
            storage.uri,
            settings.retention_in_days,
            durability=settings.durability,
            look_every=max(5.0, 10 * storage.capabilities.looks_last),
            on_written=index_keys,
        )
        self._storage, self._settings = storage, settings
        self._maintenance.kept = self._kept
        self._maintenance.done = maintained
        self._key_scan = KeyScan(storage.uri, storage.capabilities.looks_last)
        self._verification = IdleVerification(storage)
        self._again = 0.0
        self._used_at = 0.0  # when idle work was found last

    def use(self, scheduler: Scheduler, settings: Settings, *, verify: bool) -> bool:
        """Starts the work that is due; does not wait for it. False if no search for work was due.

        `verify`: the database is idle for long enough to be verified. The search reads every table's log, so the next
        search waits a multiple of its time.
        """
        begun = time.monotonic()
        if begun < self._again:
            return False
        found = [self._key_scan.step(scheduler.last_commits, scheduler.key_index)]
        if settings.maintenance:
            names = {target: name for name, target in scheduler.targets().items()}
            names |= {target: name for name, each in scheduler.history_targets().items() for target in each}
            found.append(self._maintenance.step(names, lambda target: scheduler.paused(names[target])))
        if settings.verify_idle and verify:
            tables = [name for name in scheduler.zone.tables if scheduler.owns(name)]
            found.append(str(self._verification.verify_step(tables, settings.default_schema) or ""))
        now = time.monotonic()
        if any(found):
            self._used_at = now
        self._again = now + _SHARE * (now - begun)
        return True

    @property
    def was_used_lately(self) -> bool:
        """True if idle work was found in the last minute."""
        return time.monotonic() - self._used_at < _LATELY

    @property
    def warnings(self) -> list[Warned]:
        """The findings of the verifications."""
        return self._verification.warnings

    def retain(self, days: float) -> None:
        """Keeps unused files for so many days from now on."""
        self._settings = replace(self._settings, retention_in_days=days)
        self._maintenance.retain(days)

    def _kept(self, target: str) -> Collection[int]:
        from lakemirror.mirror.cut_versions import versions_to_keep

        return versions_to_keep(self._storage, self._settings, target)

    def stop(self) -> None:
        """Starts no more work, and waits for the current piece."""
        self._maintenance.stop()
        self._verification.stop()
        self._key_scan.stop()
