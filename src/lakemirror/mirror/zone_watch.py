"""Which folders of landing zones change: one queue of the operating system for all databases of a process.

    listing ─▶ watch its folders ─▶ a folder changes ─▶ its database is told ─▶ the table is woken

Where every folder of a landing zone is watched, a listing only confirms the watch. Where one is not, listings poll.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from lakemirror.storage.folder_watch import FolderWatch, NotWatched, open_watch

log = logging.getLogger("lakemirror")

Told = Callable[[str | None], None]
"""Gets a folder that has changed, relative to the database; None if events were lost, so that any may have."""

_ALL = Path("/")
_WAIT = 3600.0


class ZoneWatch:
    """Watches the landing zones of a process. For any thread."""

    def __init__(self) -> None:
        self._databases: dict[str, Told] = {}
        self._watch: FolderWatch | None = None
        self._lock = threading.Lock()
        self._is_closed = threading.Event()

    def follow(self, database: Path, told: Told) -> NotWatched | None:
        """Tells of the changes in a database's watched folders from now on; or why the system refuses. `told` is called
        in another thread."""
        with self._lock:
            if self._watch is None:
                opened = open_watch(_ALL)
                if isinstance(opened, NotWatched):
                    return opened
                self._watch = opened
                threading.Thread(target=self._read, args=(opened,), name="folder-events", daemon=True).start()
            self._databases[_name(database)] = told
        return None

    def watch(self, database: Path, folders: Iterable[str]) -> set[str]:
        """Watches these folders of a database, if it is followed. Returns those that were not watched before: they may
        have got files between the listing and now."""
        name, watch = _name(database), self._watch
        if watch is None or name not in self._databases:
            return set()
        before = self.refused(database)
        fresh = watch.watch(f"{name}/{folder}" if folder else name for folder in folders)
        if not before and (reason := self.refused(database)):
            log.warning("not every folder can be watched, so all are polled: %s", reason)
        return {folder[len(name) + 1 :] for folder in fresh}

    def watches(self, database: Path, folder: str) -> bool:
        """True for a folder of a database that is watched."""
        return self._watch is not None and self._watch.watches(f"{_name(database)}/{folder}")

    def refused(self, database: Path) -> str:
        """Why not every folder of a database is watched; empty if each one is."""
        name, watch = _name(database), self._watch
        if watch is None or name not in self._databases:
            return "it is not followed"
        return next((why for folder, why in list(watch.refused.items()) if f"{folder}/".startswith(f"{name}/")), "")

    def leave(self, database: Path) -> None:
        """Tells nothing more of a database."""
        with self._lock:
            if self._databases.pop(_name(database), None) is not None and self._watch is not None:
                self._watch.unwatch(_name(database))

    def close(self) -> None:
        """Ends all watches."""
        self._is_closed.set()

    def _read(self, watch: FolderWatch) -> None:
        while not self._is_closed.is_set():
            changed = watch.wait(_WAIT, self._is_closed.is_set)
            if changed.lost:
                for told in list(self._databases.values()):
                    told(None)
            for folder in changed.folders:
                self._tell(folder)
        watch.close()

    def _tell(self, folder: str) -> None:
        """Tells the database that the folder is in."""
        name, inner = folder, ""
        while name:
            told = self._databases.get(name)
            if told is not None:
                told(inner)
                return
            name, _, last = name.rpartition("/")
            inner = f"{last}/{inner}" if inner else last


def _name(database: Path) -> str:
    return os.fspath(database.absolute()).lstrip("/")
