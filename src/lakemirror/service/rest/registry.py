"""The workspaces and databases of a root folder, from its folders and their item files.

A database is a folder with an item file, ROOT/<workspace>/<folder>/.lakemirror-item.json: id, display name,
description, what was asked for last. A folder without one is adopted. Every change is durable before it is answered.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.service.interface import ITEM_FILE, WORKSPACE_FILE, DatabaseEntry, WorkspaceEntry
from lakemirror.service.own_folder import own_folder, work_folder
from lakemirror.service.root_folder import (
    DELETED,
    GONE,
    HARD_DELETED,
    KEPT,
    RootFolder,
    make_workspace,
    read_object,
    write_object,
)
from lakemirror.service.workspace_names import is_guid, is_reserved, is_workspace_name
from lakemirror.settings.settings import DEFINITION
from lakemirror.storage import Place
from lakemirror.storage.durable import put_over, sync
from lakemirror.storage.place import folder_id, served_files

log = logging.getLogger("lakemirror")

STATES = ("Initialized", "Running", "Stopped")
SUFFIX = ".MirroredDatabase"
STAGED = "staged"
_SWEEP = 600.0  # seconds between two looks at what was deleted and is still in its place


class NameInUse(Exception):
    """Another database of the workspace, or another workspace, has this display name."""


class NotEmpty(Exception):
    """The workspace holds something. Its text says what."""


@dataclass
class _Workspace:
    entry: WorkspaceEntry
    databases: dict[str, DatabaseEntry]
    inodes: dict[Place, tuple[int, str]]  # folder to its number and the database's id

    def by_name(self, name: str) -> DatabaseEntry | None:
        wanted = name.casefold()
        return next((each for each in list(self.databases.values()) if each.display_name.casefold() == wanted), None)


class FolderRegistry:
    """The registry of one root folder. Safe to use from several threads; reading never waits for the disk."""

    def __init__(
        self, root: Place, is_principal: Callable[[str], bool] = lambda _: False, state: str | Path | None = None
    ) -> None:
        """`is_principal`: whether a name belongs to a principal, and so to no workspace. `state`: as `own_folder`."""
        self.root = root.absolute()
        own = own_folder(self.root, state)
        work = work_folder(own)
        self._tree = RootFolder(self.root, work)
        self.staging = work / STAGED
        self.staged_copies = None if own == work else own / STAGED
        self._is_principal = is_principal
        self._lock = threading.RLock()  # held by changes; the dictionaries are read without it, each in one step
        self._workspaces: dict[str, _Workspace] = {}
        self._wake: Callable[[str], None] = lambda _: None
        self._doomed: dict[str, DatabaseEntry] = {}  # deleted, and not moved away yet
        self._graves: list[Place] = []  # deleted, and kept in its place
        self._swept = 0.0
        self.staging.mkdir(mode=0o700, exist_ok=True)
        self.look()

    def on_published(self, wake: Callable[[str], None]) -> None:
        """`wake` is called with a database's id when a file of it was published."""
        self._wake = wake

    def published(self, database: DatabaseEntry) -> None:
        self._wake(database.id)

    def workspaces(self) -> list[WorkspaceEntry]:
        return sorted((w.entry for w in list(self._workspaces.values())), key=lambda each: each.name.lower())

    def workspace(self, name_or_id: str) -> WorkspaceEntry | None:
        found = self._found(name_or_id)
        return found.entry if found else None

    def databases(self, workspace: WorkspaceEntry) -> list[DatabaseEntry]:
        """In the order of their display names."""
        found = self._workspaces.get(workspace.id)
        listed = list(found.databases.values()) if found else []
        return sorted(listed, key=lambda each: (each.display_name.casefold(), each.id))

    def all_databases(self) -> list[DatabaseEntry]:
        return [database for workspace in self.workspaces() for database in self.databases(workspace)]

    def database(self, workspace: WorkspaceEntry, name_or_id: str) -> DatabaseEntry | None:
        found = self._workspaces.get(workspace.id)
        if found is None:
            return None
        named = found.databases.get(name_or_id.lower()) or found.by_name(name_or_id)
        if named is None and name_or_id.lower().endswith(SUFFIX.lower()):
            named = found.by_name(name_or_id[: -len(SUFFIX)])
        return named

    def create_workspace(self, name: str) -> WorkspaceEntry:
        """A new workspace. NameInUse; LakemirrorError `storage-unavailable`."""
        with self._lock, _coded():
            if self._found(name) is not None:
                raise NameInUse
            made = str(uuid.uuid4())
            folder = self.root / (name if self._tree.is_free(self.root / name) else made)
            make_workspace(self.root, folder.name, made, name)
            entry = WorkspaceEntry(made, name, folder)
            self._workspaces[made] = _Workspace(entry, {}, {})
            return entry

    def rename_workspace(self, workspace: WorkspaceEntry, name: str) -> WorkspaceEntry:
        """The workspace with another name; folder and id stay. NameInUse; KeyError."""
        with self._lock, _coded():
            held, other = self._workspaces[workspace.id], self._found(name)
            if other is not None and other is not held:
                raise NameInUse
            entry = replace(held.entry, name=name)
            write_object(entry.folder, WORKSPACE_FILE, {"id": entry.id, "name": name})
            databases = {key: replace(each, workspace=entry) for key, each in held.databases.items()}
            self._workspaces[workspace.id] = _Workspace(entry, databases, held.inodes)
            return entry

    def delete_workspace(self, workspace: WorkspaceEntry, before: Callable[[], object]) -> None:
        """Removes a workspace that holds nothing; `before` is called once that is sure. NotEmpty; KeyError."""
        with self._lock, _coded():
            held = self._workspaces[workspace.id]
            if held.databases:
                raise NotEmpty("The workspace holds mirrored databases: delete them first.")
            if not self._tree.remove_workspace(held.entry.folder, before):
                raise NotEmpty("The workspace's folder holds something, perhaps databases deleted a while ago.")
            del self._workspaces[workspace.id]

    def create(
        self, workspace: WorkspaceEntry, display_name: str, description: str, definition: bytes
    ) -> DatabaseEntry:
        """A new database in state `Initialized`. NameInUse; LakemirrorError `storage-unavailable`."""
        with self._lock, _coded():
            held = self._workspaces[workspace.id]
            if held.by_name(display_name) is not None:
                raise NameInUse
            database_id = str(uuid.uuid4())
            target = workspace.folder / self._folder_name(workspace.folder, display_name, database_id)
            entry = DatabaseEntry(database_id, display_name, target, workspace, description, "Initialized")
            self._tree.make(target, database_id, _item(entry), definition)
            self._hold(held, entry)
            return entry

    def rename(self, database: DatabaseEntry, display_name: str | None, description: str | None) -> DatabaseEntry:
        """The database with another display name or description; folder and id stay. NameInUse; KeyError."""
        with self._lock, _coded():
            held, now = self._held(database)
            if display_name is not None:
                other = held.by_name(display_name)
                if other is not None and other.id != now.id:
                    raise NameInUse
                now = replace(now, display_name=display_name)
            if description is not None:
                now = replace(now, description=description)
            return self._store(held, now)

    def set_state(self, database: DatabaseEntry, state: str) -> DatabaseEntry:
        """The database with what is asked for now, one of STATES. KeyError where it is deleted."""
        with self._lock, _coded():
            held, now = self._held(database)
            return now if now.state == state else self._store(held, replace(now, state=state))

    def define(self, database: DatabaseEntry, made: Callable[[], bytes]) -> None:
        """Replaces `mirroring.json`. `made` gives the new content, and is called while no other call changes the file.
        KeyError where the database is deleted."""
        with self._lock, _coded():
            _, now = self._held(database)
            put_over(now.folder / DEFINITION, made(), durable=True)
            sync(now.folder)

    def delete(self, database: DatabaseEntry, *, hard: bool) -> None:
        """The database is not found from now on, also after a restart; `bury` moves its folder. KeyError."""
        with self._lock, _coded():
            held, now = self._held(database)
            doomed = replace(now, state=HARD_DELETED if hard else DELETED)
            write_object(now.folder, ITEM_FILE, _item(doomed))
            del held.databases[now.id]
            self._doomed[now.id] = doomed

    def doomed(self) -> list[DatabaseEntry]:
        """The databases that are deleted, and whose folder is still in its place."""
        with self._lock:
            return list(self._doomed.values())

    def bury(self, database: DatabaseEntry) -> None:
        """Moves a deleted database's folder away, or removes it. No engine may be at work in it."""
        with self._lock:
            doomed = self._doomed.pop(database.id, None)
            if doomed is None:
                return
            assert doomed.workspace is not None
            held = self._workspaces.get(doomed.workspace.id)
            with _coded():
                moved = self._tree.bury(doomed.folder, doomed.workspace.name, doomed.id)
            if not moved:
                self._graves.append(doomed.folder)
            elif held is not None:
                held.inodes.pop(doomed.folder, None)
        if doomed.state == HARD_DELETED and moved:
            self._tree.remove_buried(doomed.workspace.name, doomed.id)
        elif doomed.state == HARD_DELETED:
            self._remove_old(doomed.folder, time.time())

    def sweep(self, now: float) -> None:
        """Removes deleted databases that have been kept for 7 days, and what killed uploads left."""
        self._tree.sweep(now)
        if now - self._swept > _SWEEP:
            self._swept = now
            with contextlib.suppress(LakemirrorError):  # the store does not answer: later again
                self._tree.remove_parts(now)
            for folder in list(self._graves):
                self._remove_old(folder, now)

    def _remove_old(self, folder: Place, now: float) -> None:
        with contextlib.suppress(LakemirrorError):  # the store does not answer: later again
            if self._tree.remove_old(folder, now):
                with self._lock:
                    self._graves.remove(folder)

    def look(self) -> None:
        """Follows folders that were added, moved or removed by hand. Errors of one folder are not raised."""
        with self._lock:
            seen: set[str] = set()
            try:
                for folder in self._tree.folders(self.root):
                    if not is_workspace_name(folder.name) or is_reserved(folder.name):
                        continue
                    if not self._is_principal(folder.name.lower()):
                        self._look_into(folder, seen)
            except (OSError, LakemirrorError) as failure:
                log.error("%s", coded(failure))
                return
            for gone in set(self._workspaces) - seen:
                del self._workspaces[gone]

    def _look_into(self, folder: Place, seen: set[str]) -> None:
        held = next((w for w in self._workspaces.values() if w.entry.folder == folder), None)
        if held is None:
            if any(
                w.entry.name.lower() == folder.name.lower() and w.entry.id in seen for w in self._workspaces.values()
            ):
                return  # the same name in another case
            try:
                held = _Workspace(WorkspaceEntry(*self._workspace_of(folder), folder), {}, {})
            except (OSError, LakemirrorError) as failure:
                log.error("%s", coded(failure))
                return
            self._workspaces[held.entry.id] = held
        seen.add(held.entry.id)
        try:
            found = {each: number for each, number in self._tree.folders(folder).items() if each.name[0] not in "._"}
        except (OSError, LakemirrorError) as failure:
            log.error("%s", coded(failure))
            return
        for path in [path for path, (inode, _) in held.inodes.items() if found.get(path) != inode]:
            held.databases.pop(held.inodes.pop(path)[1], None)
        for path in sorted(found.keys() - held.inodes.keys(), key=str):
            try:
                self._take_in(held, path)
            except (OSError, LakemirrorError) as failure:
                log.error("%s: not served: %s", path, coded(failure))

    def _workspace_of(self, folder: Place) -> tuple[str, str]:
        """The id and the name of a workspace that is not known yet."""
        stored = read_object(folder, WORKSPACE_FILE) or {}
        made, name = stored.get("id"), stored.get("name", folder.name)
        if not isinstance(name, str) or not is_workspace_name(name) or is_reserved(name) or self._found(name):
            name = folder.name
        if isinstance(made, str) and is_guid(made) and made.lower() not in self._workspaces:
            return made.lower(), name
        made = str(uuid.uuid4())
        write_object(folder, WORKSPACE_FILE, {"id": made, "name": name})
        return made, name

    def _take_in(self, held: _Workspace, folder: Place) -> None:
        """Adds a folder to the registry: with the data of its item file, or as a new database that runs."""
        item = read_object(folder, ITEM_FILE)
        known = {each.id for workspace in self._workspaces.values() for each in workspace.databases.values()}
        entry = None if item is None else _entry(item, folder, held.entry)
        if entry is not None and entry.state in GONE:
            held.inodes[folder] = (folder_id(folder), entry.id)
            if folder not in self._graves:
                self._doomed.setdefault(entry.id, entry)
            return
        if entry is None or entry.id in known or held.by_name(entry.display_name) is not None:
            made = str(uuid.uuid4())
            name = made if held.by_name(folder.name) is not None else folder.name
            entry = DatabaseEntry(made, name, folder, held.entry, "", "Running")
            served_files(folder).make_folder(LANDING_ZONE)
            write_object(folder, ITEM_FILE, _item(entry))
            log.info("%s: is now a mirrored database", folder)
        self._hold(held, entry)

    def _found(self, name_or_id: str) -> _Workspace | None:
        wanted = name_or_id.lower()
        by_id = self._workspaces.get(wanted)
        return by_id or next((w for w in list(self._workspaces.values()) if w.entry.name.lower() == wanted), None)

    def _held(self, database: DatabaseEntry) -> tuple[_Workspace, DatabaseEntry]:
        assert database.workspace is not None
        held = self._workspaces[database.workspace.id]
        return held, held.databases[database.id]

    def _folder_name(self, workspace: Place, display_name: str, database_id: str) -> str:
        fits = len(display_name.encode()) <= 255 and display_name[0] not in "._"
        return display_name if fits and self._tree.is_free(workspace / display_name) else database_id

    def _hold(self, held: _Workspace, entry: DatabaseEntry) -> None:
        held.databases[entry.id] = entry
        held.inodes[entry.folder] = (folder_id(entry.folder), entry.id)

    def _store(self, held: _Workspace, entry: DatabaseEntry) -> DatabaseEntry:
        write_object(entry.folder, ITEM_FILE, _item(entry))
        held.databases[entry.id] = entry
        return entry


def _item(entry: DatabaseEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "displayName": entry.display_name,
        "description": entry.description,
        "state": entry.state,
    }


def _entry(item: dict[str, Any], folder: Place, workspace: WorkspaceEntry) -> DatabaseEntry | None:
    values = [item.get(name) for name in ("id", "displayName", "description", "state")]
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values) or not is_guid(texts[0]) or texts[3] not in (*STATES, *GONE):
        return None
    return DatabaseEntry(texts[0].lower(), texts[1], folder, workspace, texts[2], texts[3])


@contextlib.contextmanager
def _coded() -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        raise coded(failure) from failure


__all__ = ["KEPT", "STATES", "SUFFIX", "FolderRegistry", "NameInUse", "NotEmpty"]
