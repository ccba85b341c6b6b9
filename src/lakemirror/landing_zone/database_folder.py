"""The folder of a mirrored database: found, made, and named in messages where a path is wrong.

A database is a folder that holds `Files/LandingZone` (contract section 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.failures import coded
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.storage import Place, Storage
from lakemirror.storage.durable import begin_folder
from lakemirror.storage.place import local_path

_BEGUN = "_database.json"  # the object that makes the landing zone of a new database in a store
_LEVELS = 2  # of folders that are searched for databases
_MOST = 3  # databases that a message names
_MOST_FOLDERS = 1000  # that are searched for databases


def is_database(folder: Place) -> bool:
    """True for a folder that holds `Files/LandingZone`. LakemirrorError `storage-unavailable`."""
    try:
        return (folder / LANDING_ZONE).is_dir()
    except OSError as failure:
        raise coded(failure) from failure


def create_database(folder: Place) -> bool:
    """Makes the landing zone of a new database; True where there was none. LakemirrorError `storage-unavailable`."""
    if is_database(folder):
        return False
    try:
        begin_folder(folder / LANDING_ZONE, _BEGUN, b"{}\n")
    except OSError as failure:
        raise coded(failure) from failure
    return True


def require_zone(storage: Storage) -> None:
    """LakemirrorError `database-missing` if there is no landing zone: a misspelt path is never created."""
    if not storage.exists(LANDING_ZONE):
        raise missing_database(storage.uri())


def missing_database(address: str) -> LakemirrorError:
    """The error `database-missing` for a folder that is no database. It names databases below it and above it."""
    folder = local_path(address)
    if folder is None:
        return SetupError("database-missing", f"{address} holds no object below {LANDING_ZONE}")
    if not folder.is_dir():
        found = f"there is no folder {address}"
        if "/" not in address and address.count(".") == 2:
            found += "; names of a catalog are not supported, only folders are"
    else:
        found = f"{address} has no {LANDING_ZONE}"
    below = list(databases_below(folder))
    above = next((each for each in folder.absolute().parents if (each / LANDING_ZONE).is_dir()), None)
    hint = None
    if below:
        named = ", ".join(str(each) for each in below[:_MOST])
        more = f" and {len(below) - _MOST} more" if len(below) > _MOST else ""
        hint = f"Databases below it: {named}{more}. Give one of them."
    elif above is not None:
        hint = f"The database is {above}."
    return SetupError("database-missing", found, hint=hint)


def databases_below(folder: Path) -> Iterator[Path]:
    """The databases in a folder, at most _LEVELS deep. Folders that cannot be read hold none."""
    level = [folder]
    seen = 0
    for _ in range(_LEVELS):
        inner = []
        for each in level:
            try:
                inner += [item for item in sorted(each.iterdir()) if item.is_dir() and not item.is_symlink()]
            except OSError:
                continue
        level = []
        for each in inner:
            seen += 1
            if seen > _MOST_FOLDERS:
                return
            try:
                found = (each / LANDING_ZONE).is_dir()
            except OSError:
                continue
            if found:
                yield each
            else:
                level.append(each)
