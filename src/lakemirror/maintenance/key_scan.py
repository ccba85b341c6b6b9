"""The key index of tables that lack one: older tables, restored ones, files of other writers.

    an idle engine ─▶ a table that has changed since its last scan ─▶ its files ─▶ KeyIndex.want_missing

A scan reads the table's log alone, in a thread of its own, for at most a hundredth of the time; the index is built by
the index's own thread, which lets applies go first.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from lakemirror.delta.log import read_snapshot
from lakemirror.engines.target import target_of
from lakemirror.keys.key_index import KeyIndex
from lakemirror.mirror.schema_evolution import KEYS_PROPERTY

log = logging.getLogger("lakemirror")

_AGAIN = 3600.0  # seconds after which a table is scanned again: other writers may have added files
_SPELL = 0.1  # seconds after which no other table is scanned in one go
_SHARE = 100.0  # pause after the scans of one go, as a multiple of how long they took


class KeyScan:
    """Builds missing key indexes of one database's tables while `run` is idle.

    `uri` gives a table's folder. `at_least`: seconds between two scans of one table.
    """

    def __init__(self, uri: Callable[[str], str], at_least: float = 0.0) -> None:
        self._uri = uri
        self._at_least = at_least
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="key-scan")
        self._work: Future[None] | None = None
        self._scanned: dict[str, tuple[object, float]] = {}
        self._not_before = 0.0

    def step(self, tables: Callable[[], Mapping[str, object]], index: KeyIndex | None) -> str | None:
        """Starts scans of tables that are due, if their time has come; returns the first table. Does not wait.

        `tables` gives, by target, something that changes with each commit of this engine.
        """
        now = time.monotonic()
        if index is None or now < self._not_before or (self._work is not None and not self._work.done()):
            return None
        due = [(target, commit) for target, commit in tables().items() if self._is_due(target, commit, now)]
        if due:
            self._work = self._pool.submit(self._scan_some, due, index)
            return due[0][0]
        self._not_before = now + 1.0
        return None

    def stop(self) -> None:
        """Begins no further scan."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _is_due(self, target: str, commit: object, now: float) -> bool:
        before = self._scanned.get(target)
        return before is None or now - before[1] >= (self._at_least if before[0] != commit else _AGAIN)

    def _scan_some(self, due: Sequence[tuple[str, object]], index: KeyIndex) -> None:
        begun = now = time.monotonic()
        for target, commit in due:
            self._scanned[target] = commit, now
            self._scan(target, index)
            now = time.monotonic()
            if now - begun >= _SPELL:
                break
        self._not_before = now + _SHARE * (now - begun)

    def _scan(self, target: str, index: KeyIndex) -> None:
        """Never raises: a table without an index is only slower."""
        try:
            snapshot = read_snapshot(self._uri(target))
            if snapshot is not None:
                keys = json.loads(snapshot.metadata.configuration.get(KEYS_PROPERTY, "[]"))
                table = target_of(str(snapshot.table), snapshot.metadata.value, keys)
                index.want_missing(snapshot.files.values(), table)
        except Exception as error:
            log.debug("%s: no key index: %s", target, error)
