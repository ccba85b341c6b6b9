"""Declared readers: the clients that a database's owner names. Every mirrored table stays readable by all of them.

readers ─▶ what new tables may use        (`table_rules.allowed`)
        ─▶ what existing tables must lose (`DeclaredReaders.step`: one table at a time, paused meanwhile)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from lakemirror.delta.log import read_snapshot
from lakemirror.failures import coded
from lakemirror.landing_zone.metadata import Warned
from lakemirror.mirror.observer import Maintained, nobody
from lakemirror.mirror.scheduler import Scheduler
from lakemirror.mirror.table_rules import client_of, concerns

if TYPE_CHECKING:  # most databases declare no readers, and need none of it
    from pyspark.sql import SparkSession

    from lakemirror.features.compatibility import Client

UNMET = "readers-unmet"

_AGAIN = 60.0  # seconds until a table is looked at again

log = logging.getLogger("lakemirror")


class DeclaredReaders:
    """Drops features that declared readers cannot read from existing tables, while other tables are applied."""

    def __init__(self, readers: Iterable[str], uri: Callable[[str], str], maintained: Maintained = nobody) -> None:
        """`uri` gives a table's place from its path in the database. `maintained` is told of each drop. LakemirrorError
        `client-unknown`.
        """
        self._maintained = maintained
        self.warnings: dict[str, Warned] = {}
        self._clients: dict[str, list[Client]] = {}
        for text in readers:
            from lakemirror.features.compatibility import find_clients

            self._clients[text] = find_clients(client_of(text))
        self._uri = uri
        self._looked: dict[str, float] = {}

    def step(self, scheduler: Scheduler, session: Callable[[], SparkSession], *, again: bool = False) -> int:
        """Checks every idle table and drops the features in the way. Returns the number of changed tables.

        A table is checked once a minute, or now with `again`. What cannot be dropped is in `warnings`.
        """
        if not self._clients:
            return 0
        changed, history = 0, scheduler.history_targets()
        places = scheduler.targets().items()
        for name, target in [(of, each) for of, its in places for each in (its, *history.get(of, ()))]:
            if not again and time.monotonic() - self._looked.get(target, -_AGAIN) < _AGAIN:
                continue
            with scheduler.paused(name) as is_free:
                if not is_free:
                    continue
                self._looked[target] = time.monotonic()
                changed += self._bring_down(str(name), target, session)
        return changed

    def _bring_down(self, name: str, target: str, session: Callable[[], SparkSession]) -> bool:
        from lakemirror.features.drop import drop
        from lakemirror.features.many import wish_for

        table = self._uri(target)
        clients = [client for reader, found in self._clients.items() if concerns(reader, name) for client in found]
        try:
            snapshot = read_snapshot(table)
            wish = wish_for(snapshot, clients, "read") if snapshot is not None else None
            if wish is None or not wish.features:
                self.warnings.pop(target, None)
                return False
            begun = time.monotonic()
            dropped = drop(table, wish, session=session, confirmed=True)
        except Exception as failure:  # the boundary around one table
            error = coded(failure, table=target)
            message = f"{target} cannot be opened by every declared reader: {error.message}"
            self.warnings[target] = Warned(UNMET, message, target)
            return False
        features = ", ".join(dropped.features)
        log.info("%s: dropped %s for the declared readers", target, features)
        self._maintained("DropFeature", target, time.monotonic() - begun, dropped.commits, features)
        self.warnings.pop(target, None)
        return True
