"""The workspaces and databases of a root folder, from its folders and their item files.

A database is a folder with an item file, ROOT/<workspace>/<folder>/.lakemirror-item.json: id, display name,
description, what was asked for last. A folder without one is adopted. Every change is on disk before it is answered.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.service.interface import ITEM_FILE, WORKSPACE_FILE, DatabaseEntry, WorkspaceEntry
from lakemirror.service.private_files import own_folder, read_json, sync_folder, write_json, write_private
from lakemirror.service.workspace_names import is_guid, is_reserved, is_workspace_name
from lakemirror.settings import DEFINITION
from lakemirror.storage.own_files import entries, is_folder

log = logging.getLogger("lakemirror")

STATES = ("Initialized", "Running", "Stopped")
KEPT = 7 * 86_400.0  # seconds that a deleted database is kept
SUFFIX = ".MirroredDatabase"
_DELETED = ("Deleted", "HardDeleted")
_MADE = re.compile(rf"\.?({re.escape(DEFINITION)}|{re.escape(ITEM_FILE)})(\.[0-9a-f]{{12}})?")


class NameInUse(Exception):
    """Another database of the workspace has this display name."""


@dataclass
class _Workspace:
    entry: WorkspaceEntry
    databases: dict[str, DatabaseEntry]
    inodes: dict[Path, tuple[int, str]]  # folder to its inode and the database's id

    def by_name(self, name: str) -> DatabaseEntry | None:
        wanted = name.casefold()
        return next((each for each in list(self.databases.values()) if each.display_name.casefold() == wanted), None)


class FolderRegistry:
    """The registry of one root folder. Safe to use from several threads; reading never waits for the disk."""

    def __init__(self, root: Path, is_principal: Callable[[str], bool] = lambda _: False) -> None:
        """`is_principal`: whether a name belongs to a principal, and so to no workspace."""
        self.root = root.absolute()
        self._own = own_folder(self.root)
        self._is_principal = is_principal
        self._lock = threading.RLock()  # held by changes; the dictionaries are read without it, each in one step
        self._workspaces: dict[str, _Workspace] = {}
        self._wake: Callable[[str], None] = lambda _: None
        self._doomed: dict[str, DatabaseEntry] = {}  # deleted, and not moved away yet
        self.staging.mkdir(mode=0o700, exist_ok=True)
        for leftover in entries(self._own):
            _remove_unmade(leftover)
        self.look()

    @property
    def staging(self) -> Path:
        return self._own / "staged"

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

    def create(
        self, workspace: WorkspaceEntry, display_name: str, description: str, definition: bytes
    ) -> DatabaseEntry:
        """A new database in state `Initialized`. NameInUse; LakemirrorError `storage-unavailable`."""
        with self._lock, _coded():
            held = self._workspaces[workspace.id]
            if held.by_name(display_name) is not None:
                raise NameInUse
            database_id = str(uuid.uuid4())
            made = self._own / f"new-{database_id}"
            (made / LANDING_ZONE).mkdir(parents=True)
            (made / "Tables").mkdir()
            target = workspace.folder / _folder_name(workspace.folder, display_name, database_id)
            entry = DatabaseEntry(database_id, display_name, target, workspace, description, "Initialized")
            write_private(made / DEFINITION, definition, 0o644)
            write_json(made / ITEM_FILE, _item(entry))
            for folder in (made / LANDING_ZONE, made / "Files", made):
                sync_folder(folder)
            made.rename(target)
            sync_folder(workspace.folder)
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
            write_private(now.folder / DEFINITION, made(), 0o644)

    def delete(self, database: DatabaseEntry, *, hard: bool) -> None:
        """The database is not found from now on, also after a restart; `bury` moves its folder. KeyError."""
        with self._lock, _coded():
            held, now = self._held(database)
            doomed = replace(now, state=_DELETED[hard])
            write_json(now.folder / ITEM_FILE, _item(doomed))
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
            with _coded():
                grave = self._own / "deleted" / doomed.workspace.name
                grave.mkdir(mode=0o700, parents=True, exist_ok=True)
                doomed.folder.rename(grave / doomed.id)
                sync_folder(grave)
                sync_folder(doomed.workspace.folder)
                os.utime(grave / doomed.id)
                held = self._workspaces.get(doomed.workspace.id)
                if held is not None:
                    held.inodes.pop(doomed.folder, None)
        if doomed.state == "HardDeleted":
            shutil.rmtree(grave / doomed.id, ignore_errors=True)

    def sweep(self, now: float) -> None:
        """Removes deleted databases that have been kept for 7 days: folders whose item file says that they are."""
        for folder in [each for workspace in entries(self._own / "deleted") for each in entries(workspace)]:
            if not is_folder(folder):
                continue
            with contextlib.suppress(OSError):
                item = read_json(folder / ITEM_FILE) or {}
                if item.get("state") not in _DELETED or item.get("id") != folder.name:
                    continue
                if item["state"] == "HardDeleted" or now - folder.stat().st_mtime > KEPT:
                    shutil.rmtree(folder, ignore_errors=True)

    def look(self) -> None:
        """Follows folders that were added, moved or removed by hand. Errors of one folder are not raised."""
        with self._lock:
            seen: set[str] = set()
            try:
                for folder in _folders(self.root):
                    if not is_workspace_name(folder.name) or is_reserved(folder.name):
                        continue
                    if not self._is_principal(folder.name.lower()):
                        self._look_into(Path(folder.path), seen)
            except OSError as failure:
                log.error("%s", coded(failure))
                return
            for gone in set(self._workspaces) - seen:
                del self._workspaces[gone]

    def _look_into(self, folder: Path, seen: set[str]) -> None:
        held = next((w for w in self._workspaces.values() if w.entry.folder == folder), None)
        if held is None:
            if any(
                w.entry.name.lower() == folder.name.lower() and w.entry.id in seen for w in self._workspaces.values()
            ):
                return  # the same name in another case
            try:
                held = _Workspace(WorkspaceEntry(self._workspace_id(folder), folder.name, folder), {}, {})
            except OSError as failure:
                log.error("%s", coded(failure))
                return
            self._workspaces[held.entry.id] = held
        seen.add(held.entry.id)
        try:
            found = {Path(each.path): each.inode() for each in _folders(folder) if each.name[0] not in "._"}
        except OSError as failure:
            log.error("%s", coded(failure))
            return
        for path in [path for path, (inode, _) in held.inodes.items() if found.get(path) != inode]:
            held.databases.pop(held.inodes.pop(path)[1], None)
        for path in sorted(found.keys() - held.inodes.keys()):
            try:
                self._take_in(held, path)
            except (OSError, LakemirrorError) as failure:
                log.error("%s: not served: %s", path, coded(failure))

    def _workspace_id(self, folder: Path) -> str:
        stored = (read_json(folder / WORKSPACE_FILE) or {}).get("id")
        if isinstance(stored, str) and is_guid(stored) and stored.lower() not in self._workspaces:
            return stored.lower()
        made = str(uuid.uuid4())
        write_json(folder / WORKSPACE_FILE, {"id": made})
        return made

    def _take_in(self, held: _Workspace, folder: Path) -> None:
        """Adds a folder to the registry: with the data of its item file, or as a new database that runs."""
        item = read_json(folder / ITEM_FILE)
        known = {each.id for workspace in self._workspaces.values() for each in workspace.databases.values()}
        entry = None if item is None else _entry(item, folder, held.entry)
        if entry is not None and entry.state in _DELETED:
            self._doomed.setdefault(entry.id, entry)
            return
        if entry is None or entry.id in known or held.by_name(entry.display_name) is not None:
            made = str(uuid.uuid4())
            name = made if held.by_name(folder.name) is not None else folder.name
            entry = DatabaseEntry(made, name, folder, held.entry, "", "Running")
            (folder / LANDING_ZONE).mkdir(parents=True, exist_ok=True)
            write_json(folder / ITEM_FILE, _item(entry))
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

    def _hold(self, held: _Workspace, entry: DatabaseEntry) -> None:
        held.databases[entry.id] = entry
        held.inodes[entry.folder] = (entry.folder.stat().st_ino, entry.id)

    def _store(self, held: _Workspace, entry: DatabaseEntry) -> DatabaseEntry:
        write_json(entry.folder / ITEM_FILE, _item(entry))
        held.databases[entry.id] = entry
        return entry


def _remove_unmade(folder: Path) -> None:
    """Removes what a killed process left of a `create`, and nothing that anybody put there."""
    if not (folder.name.startswith("new-") and is_guid(folder.name[4:]) and is_folder(folder)):
        return
    for path in entries(folder):
        if _MADE.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)
    for made in (LANDING_ZONE, "Files", "Tables", ""):
        with contextlib.suppress(OSError):  # not empty, or a link
            (folder / made).rmdir()


def _folders(folder: Path) -> list[os.DirEntry[str]]:
    """The real folders in a folder, in the order of their names; links are left out, names that are no UTF-8 too."""
    with os.scandir(folder) as entries:
        found = [each for each in entries if each.is_dir(follow_symlinks=False)]
    return sorted((each for each in found if _is_text(each.name)), key=lambda each: each.name)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _folder_name(workspace: Path, display_name: str, database_id: str) -> str:
    fits = len(display_name.encode()) <= 255 and display_name[0] not in "._"
    return display_name if fits and not os.path.lexists(workspace / display_name) else database_id


def _item(entry: DatabaseEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "displayName": entry.display_name,
        "description": entry.description,
        "state": entry.state,
    }


def _entry(item: dict[str, Any], folder: Path, workspace: WorkspaceEntry) -> DatabaseEntry | None:
    values = [item.get(name) for name in ("id", "displayName", "description", "state")]
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values) or not is_guid(texts[0]) or texts[3] not in (*STATES, *_DELETED):
        return None
    return DatabaseEntry(texts[0].lower(), texts[1], folder, workspace, texts[2], texts[3])


@contextlib.contextmanager
def _coded() -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        raise coded(failure) from failure


__all__ = ["KEPT", "STATES", "SUFFIX", "FolderRegistry", "NameInUse"]
