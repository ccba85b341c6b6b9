"""What is under the root that is served: workspaces, databases, and the files that say what they are.

    disk    a database is made beside and renamed into its place; deleted, it moves to ROOT/.lakemirror/deleted
    store   nothing is renamed: a database is there once its item file says so; deleted, it stays where it is

Its own files are read without following a link, and written durably.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.service.interface import ITEM_FILE, WORKSPACE_FILE
from lakemirror.service.workspace_names import is_guid
from lakemirror.settings.settings import DEFINITION
from lakemirror.storage import Place
from lakemirror.storage.durable import put_over, sync
from lakemirror.storage.own_files import entries, is_folder
from lakemirror.storage.place import folder_ids, local_path, served_files, storage_of
from lakemirror.storage.served_prefix import PARTS

KEPT = 7 * 86_400.0  # seconds that a deleted database is kept
DELETED, HARD_DELETED, UNMADE = "Deleted", "HardDeleted", "Unmade"
GONE = (DELETED, HARD_DELETED, UNMADE)
"""States of a database that nobody sees: deleted, or not made to the end."""

_MOST_BYTES = 64 * 1024**2
_UNMADE_FOR = 3600.0  # seconds after which nobody goes on with a create
_PART_FOR = 86_400.0  # seconds after which nobody waits for a part
_PART = re.compile("[0-9a-f]{32}")
_MADE = re.compile(rf"\.?({re.escape(DEFINITION)}|{re.escape(ITEM_FILE)})(\.[0-9a-f]{{12}}|\.[0-9a-f]{{32}}\.tmp)?")


class RootFolder:
    """The folders under a root, on a disk or in a store. Errors: OSError, LakemirrorError."""

    def __init__(self, root: Place, own: Path) -> None:
        """`own`: the service's folder on this machine's disk."""
        self.root, self._own = root, own
        for leftover in entries(own):
            _remove_unmade(leftover)

    def folders(self, above: Place) -> Mapping[Place, int]:
        """The folders in a folder, by name, each with a number that another folder of that name does not have; 0 in a
        store. Names that are no UTF-8 are left out."""
        return {folder: number for folder, number in folder_ids(above).items() if _is_text(folder.name)}

    def make(self, folder: Place, database_id: str, item: Mapping[str, Any], definition: bytes) -> None:
        """Makes a database in a folder that does not exist."""
        place = local_path(folder)
        if place is None:
            write_object(folder, ITEM_FILE, {**item, "state": UNMADE})
            put_over(folder / DEFINITION, definition, durable=True)
            served_files(folder).make_folder(LANDING_ZONE)
            write_object(folder, ITEM_FILE, item)
            return
        made = self._own / f"new-{database_id}"
        (made / LANDING_ZONE).mkdir(parents=True)
        (made / "Tables").mkdir()
        put_over(made / DEFINITION, definition, durable=True)
        write_object(made, ITEM_FILE, item)
        for each in (made / LANDING_ZONE, made / "Files", made):
            sync(each)
        made.rename(place)
        sync(place.parent)

    def bury(self, folder: Place, workspace: str, database_id: str) -> bool:
        """Moves a deleted database out of its place. False in a store: there it stays until `remove_old`."""
        place = local_path(folder)
        if place is None:
            return False
        grave = self._own / "deleted" / workspace
        grave.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.rename(grave / database_id)
        sync(grave)
        sync(place.parent)
        os.utime(grave / database_id)
        return True

    def remove_buried(self, workspace: str, database_id: str) -> None:
        """Removes a database that `bury` has moved."""
        shutil.rmtree(self._own / "deleted" / workspace / database_id, ignore_errors=True)

    def sweep(self, now: float) -> None:
        """Removes deleted databases that were moved away 7 days ago: folders whose item file says that they are."""
        for folder in [each for workspace in entries(self._own / "deleted") for each in entries(workspace)]:
            if not is_folder(folder):
                continue
            with contextlib.suppress(OSError):
                item = read_object(folder, ITEM_FILE) or {}
                if item.get("state") not in (DELETED, HARD_DELETED) or item.get("id") != folder.name:
                    continue
                if item["state"] == HARD_DELETED or now - folder.stat().st_mtime > KEPT:
                    shutil.rmtree(folder, ignore_errors=True)

    def remove_parts(self, now: float) -> None:
        """Removes what uploads that were killed a day ago have left in a store."""
        folder = self.root / PARTS
        if local_path(folder) is None:
            with contextlib.suppress(FileNotFoundError):
                storage = storage_of(folder)
                for each in storage.list("").files:
                    if _PART.fullmatch(each.path) and now - each.modified / 1e9 > _PART_FOR:
                        storage.delete(each.path)

    def remove_old(self, folder: Place, now: float) -> bool:
        """Removes a database that was deleted in its place 7 days ago; True once it is gone."""
        item = storage_of(folder).stat(ITEM_FILE)
        if item is None:
            return True
        state = (read_object(folder, ITEM_FILE) or {}).get("state")
        kept = {DELETED: KEPT, HARD_DELETED: 0.0, UNMADE: _UNMADE_FOR}.get(str(state))
        if kept is None or now - item.modified / 1e9 <= kept:
            return False
        _remove_objects(folder)
        return True

    def remove_workspace(self, folder: Place, before: Callable[[], object]) -> bool:
        """Removes a workspace's folder that holds nothing but its file; False where something else is in it.

        `before`: is called once it is to be removed.
        """
        storage = storage_of(folder)
        listed = storage.list("", lambda _: False)
        if listed.folders or listed.others or any(each.path != WORKSPACE_FILE for each in listed.files):
            return False
        before()
        storage.delete(WORKSPACE_FILE)
        place = local_path(folder)
        if place is not None:
            place.rmdir()  # what has come meanwhile stays, as a new workspace
            sync(place.parent)
        return True

    def is_free(self, folder: Place) -> bool:
        """True where nothing is."""
        return not storage_of(folder.parent).exists(folder.name)


def read_object(folder: Place, name: str) -> dict[str, Any] | None:
    """The JSON object in a file; None where the file is missing, is a link, or holds anything else.

    LakemirrorError where a store does not answer.
    """
    try:
        found = json.loads(storage_of(folder).read(name, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    except LakemirrorError as error:
        if error.retry:
            raise
        return None
    return found if isinstance(found, dict) else None


def write_object(folder: Place, name: str, content: Mapping[str, Any]) -> None:
    """Replaces a JSON file; it is durable, with its name, when this returns."""
    put_over(folder / name, json.dumps(content, indent=1).encode() + b"\n", durable=True)
    sync(folder)


def workspace_folders(root: Place) -> Mapping[str, Place]:
    """The folders under a root, by the names of their workspaces in lower case."""
    found = {}
    for folder in folder_ids(root):
        stored = read_object(folder, WORKSPACE_FILE) if not folder.name.startswith((".", "_")) else None
        found[str((stored or {}).get("name", folder.name)).lower()] = folder
    return found


def make_workspace(root: Place, folder: str, workspace_id: str, name: str) -> None:
    """Makes a workspace's folder with its file."""
    place = local_path(root)
    if place is not None:
        (place / folder).mkdir()
        sync(place)
    write_object(root / folder, WORKSPACE_FILE, {"id": workspace_id, "name": name})


def _remove_objects(folder: Place) -> None:
    """Removes all below an address. The item file goes last: without it the rest would be a database again."""
    storage = storage_of(folder)
    listed = storage.list("", lambda _: False)
    for path in [*listed.folders, *(each.path for each in listed.files if each.path != ITEM_FILE), ITEM_FILE]:
        storage.delete(path)


def _remove_unmade(folder: Path) -> None:
    """Removes what a killed process left of a `make`, and nothing that anybody put there."""
    if not (folder.name.startswith("new-") and is_guid(folder.name[4:]) and is_folder(folder)):
        return
    for path in entries(folder):
        if _MADE.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)
    for made in (LANDING_ZONE, "Files", "Tables", ""):
        with contextlib.suppress(OSError):  # not empty, or a link
            (folder / made).rmdir()


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
