"""Runs the cheap parts of a verification in idle time of `run`: one table at a time, at most 5 % of the time.

idle ─▶ a table that has changed since, or was not looked at for a day ─▶ log, sizes, footers, vectors, position
     ─▶ findings as warnings of the status
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from lakemirror.delta.log_folder import list_log
from lakemirror.failures import coded
from lakemirror.landing_zone.metadata import Warned
from lakemirror.landing_zone.zone import TableName
from lakemirror.storage import Storage
from lakemirror.verify.finding import ERROR
from lakemirror.verify.proof import Options, verify_table

log = logging.getLogger("lakemirror")

AGAIN = 86_400.0
"""Seconds until an unchanged table is verified again."""

CHANGED = 600.0
"""Seconds until a changed table is verified again."""

_SHARE = 20.0  # pause after a verification, as a multiple of how long it took
_LEAST_PAUSE = 5.0  # seconds
_OF_THE_MOMENT = ("verify-identity-foreign",)  # a folder that was made again: the engine is about to apply it
_MOST_WARNINGS = 10  # of one table


class IdleVerification:
    """Runs the cheap parts of a verification for the tables of one database, one after the other, in its own thread."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="verify")
        self._work: Future[None] | None = None
        self._stopping = threading.Event()
        self._not_before = 0.0
        self._verified: dict[TableName, tuple[float, int]] = {}
        self._warnings: dict[TableName, tuple[Warned, ...]] = {}

    def verify_step(self, names: Iterable[TableName], default_schema: str) -> TableName | None:
        """Starts the verification of one table that is due. Returns that table, or None. Does not wait."""
        now = time.monotonic()
        if self._stopping.is_set() or now < self._not_before or (self._work is not None and not self._work.done()):
            return None
        known = set(names)
        for gone in self._warnings.keys() - known:
            del self._warnings[gone]
        for name in sorted(known, key=lambda each: self._verified.get(each, (0.0, -1))[0]):
            version = self._version(name, default_schema)
            if version is not None and self._is_due(name, version, now):
                self._work = self._pool.submit(self._verify, name, default_schema, version)
                return name
        self._not_before = now + _LEAST_PAUSE
        return None

    @property
    def warnings(self) -> list[Warned]:
        """The findings of all tables, as the status shows them."""
        return [warned for _, found in sorted(self._warnings.items()) for warned in found]

    def stop(self) -> None:
        """Stops the current verification after its current file."""
        self._stopping.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _is_due(self, name: TableName, version: int, now: float) -> bool:
        when, before = self._verified.get(name, (-AGAIN, -1))
        return now - when >= (CHANGED if version != before else AGAIN)

    def _version(self, name: TableName, default_schema: str) -> int | None:
        try:
            found = list_log(self._storage.uri(name.target(default_schema)))
        except OSError:
            return None
        return None if found is None or found.version < 0 else found.version

    def _verify(self, name: TableName, default_schema: str, version: int) -> None:
        """Never raises: findings are in the status, failures in the log."""
        begun = time.monotonic()
        try:
            options = Options(rows=False, threads=1, cancelled=self._stopping.is_set)
            report = verify_table(self._storage, name, options, default_schema=default_schema)
            if self._stopping.is_set():
                return
            wrong = [each for each in report.findings if each.severity == ERROR and each.code not in _OF_THE_MOMENT]
            target = name.target(default_schema)
            self._warnings[name] = tuple(
                Warned(each.code, f"{name}: {each.message}", f"{target}/{each.file}" if each.file else target)
                for each in wrong[:_MOST_WARNINGS]
            )
            for each in wrong[:1]:
                log.error("%s: verification found %d problems: %s", name, len(wrong), each.message)
        except Exception as failure:
            log.info("%s: not verified: %s", name, coded(failure))
        finally:
            now = time.monotonic()
            self._verified[name] = (now, version)
            self._not_before = now + max(_LEAST_PAUSE, _SHARE * (now - begun))
