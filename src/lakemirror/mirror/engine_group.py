"""Several engines that run one database together: which of its tables are this engine's (`lakemirror run --share`).

    every BEAT seconds: write the own heartbeat ─▶ list all heartbeats ─▶ engines that live ─▶ owner of each table

The owner of a table is the living engine with the highest hash of its id and the table's name, so all engines that see
the same heartbeats agree without asking each other, and a change of engines moves the fewest tables. A table has one
owner at a time:

- an engine whose last heartbeat is older than FENCED seconds owns nothing, and counts as new when it comes back;
- a new engine owns nothing for SETTLES seconds: by then every other one has seen it, or owns nothing itself;
- an engine whose heartbeat has not changed for GONE seconds is dead: it has owned nothing for GONE - FENCED seconds.

No two clocks are compared. What an engine had begun when it lost a table may still end: positions (contract section 9)
keep that from being applied twice.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.landing_zone.zone import TableName
from lakemirror.storage import Storage

log = logging.getLogger("lakemirror")

FOLDER = "Files/Monitoring/engines"
BEAT, FENCED, SETTLES, GONE = 5.0, 12.0, 15.0, 20.0  # seconds
FORGOTTEN = 600.0
"""Seconds after which the files of a dead engine are removed."""

_HEARTBEAT = re.compile(r"([0-9a-f]{32})\.json")
_STATES = ".tables.json"
_LEADER = ""  # who owns this name does once what concerns no single table


class _Seen(NamedTuple):
    """A heartbeat: its content's etag, and when this engine saw that content first."""

    etag: str
    at: float


class EngineGroup:
    """This engine among those that run the same database."""

    def __init__(
        self,
        storage: Storage,
        *,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called when other tables are this engine's than before."""
        self.id = uuid.uuid4().hex
        self._storage = storage
        self._clock = clock
        self._on_change = on_change
        self._number = 0
        self._beaten: float | None = None  # when the last heartbeat that was written began
        self._owns_from = 0.0
        self._seen: dict[str, _Seen] = {}
        self._states: dict[str, str] = {}  # etags of the files with the states of tables
        self._told: dict[str, str] = {}  # the same at the last call of `news`
        self._members: tuple[str, ...] = ()
        self._owners: dict[str, str] = {}
        self._said: tuple[bool, tuple[str, ...]] = (False, ())
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def members(self) -> tuple[str, ...]:
        """The ids of the engines that live, as this one sees them."""
        return self._members

    @property
    def is_settled(self) -> bool:
        """True where this engine may own tables."""
        now = self._clock()
        return self._beaten is not None and now - self._beaten <= FENCED and now >= self._owns_from

    @property
    def leads(self) -> bool:
        """True for the one engine that does what concerns no single table: dropped tables, the status."""
        return self._owns(_LEADER)

    def owns(self, table: TableName) -> bool:
        """True where this engine applies the table's changes."""
        return self._owns(str(table))

    def beat(self) -> None:
        """Writes the heartbeat and looks at those of the others: one put and one listing. Errors as of Storage."""
        begun = self._clock()
        self._number += 1
        content = {"beat": self._number, "host": socket.gethostname(), "pid": os.getpid()}
        self._storage.write(f"{FOLDER}/{self.id}.json", json.dumps(content).encode())
        listed = self._storage.list(FOLDER)
        now = self._clock()
        seen = {}
        self._states = {e.name.partition(".")[0]: e.etag for e in listed.files if e.name.endswith(_STATES)}
        for entry in listed.files:
            heartbeat = _HEARTBEAT.fullmatch(entry.name)
            if heartbeat is not None:
                known = self._seen.get(heartbeat[1])
                seen[heartbeat[1]] = known if known and known.etag == entry.etag else _Seen(entry.etag, now)
        is_new = self._beaten is None or begun - self._beaten > FENCED
        if is_new:
            self._owns_from = begun if set(seen) <= {self.id} else now + SETTLES
        self._beaten, self._seen = begun, seen
        members = tuple(sorted({self.id, *(id for id, each in seen.items() if now - each.at < GONE)}))
        if members != self._members:
            self._members, self._owners = members, {}
        if self.leads:
            self._forget_dead(now)

    @property
    def status_path(self) -> str:
        """The file with the states of this engine's tables."""
        return status_of(self.id)

    def news(self) -> list[str]:
        """The files with the states of the other engines' tables that have changed since the last call."""
        changed = self._changed()
        self._told.update(changed)
        return [status_of(id) for id in changed]

    def start(self) -> None:
        """Writes the first heartbeat, and the others from a thread. Errors as of Storage."""
        self.beat()
        self._said = self._now()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Ends the heartbeats; the others take this engine's tables at once. Never raises."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(BEAT)
        self._beaten = None
        try:
            self._remove(self.id)
        except (OSError, LakemirrorError) as error:
            log.debug("the heartbeat stays until the others find it too old: %s", error)

    def _run(self) -> None:
        said = ""
        while not self._stop.wait(BEAT):
            try:
                self.beat()
                said = ""
            except Exception as failure:  # what fails is tried again; meanwhile this engine owns nothing
                why = coded(failure)
                if why.code != said:
                    log.warning("no heartbeat: %s; the tables go to other engines meanwhile", why)
                said = why.code
            if self._now() != self._said or (self.leads and self._changed()):
                self._said = self._now()
                self._on_change()

    def _changed(self) -> dict[str, str]:
        others = {id: etag for id, etag in self._states.items() if id in self._members and id != self.id}
        return {id: etag for id, etag in others.items() if self._told.get(id) != etag}

    def _now(self) -> tuple[bool, tuple[str, ...]]:
        return self.is_settled, self._members

    def _owns(self, name: str) -> bool:
        return self.is_settled and self._owner(name) == self.id

    def _owner(self, name: str) -> str:
        owners = self._owners
        owner = owners.get(name)
        if owner is None:
            owner = owners[name] = owner_of(name, self._members)
        return owner

    def _forget_dead(self, now: float) -> None:
        """Removes the files of engines that are dead for long."""
        for id, seen in self._seen.items():
            if now - seen.at > FORGOTTEN and id != self.id:
                self._remove(id)

    def _remove(self, id: str) -> None:
        for path in (status_of(id), f"{FOLDER}/{id}.json"):
            self._storage.delete(path)


def owner_of(name: str, members: Iterable[str]) -> str:
    """The engine that a table belongs to."""
    table = name.encode("utf-8", "surrogateescape")
    return max(members, key=lambda id: hashlib.blake2b(table, digest_size=8, key=id.encode()).digest())


def status_of(id: str) -> str:
    """The file with the states of an engine's tables, as in `tables.json`."""
    return f"{FOLDER}/{id}{_STATES}"
