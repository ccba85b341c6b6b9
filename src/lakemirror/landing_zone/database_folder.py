"""The folder of a mirrored database: found, made, and named in messages where a path is wrong.

A database is a folder that holds `Files/LandingZone` (contract section 1).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.failures import coded
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.passwords import without_passwords
from lakemirror.storage import LocalStorage, Place, Storage, place
from lakemirror.storage.addresses import is_store_address
from lakemirror.storage.connections import give_options
from lakemirror.storage.object_storage import ObjectStorage
from lakemirror.storage.place import StorePath

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BEGUN = "_database.json"  # the object that makes the landing zone of a new database in a store
_LEVELS = 2  # of folders that are searched for databases
_MOST = 3  # databases that a message names
_MOST_FOLDERS = 1000  # that are searched for databases


def storage_of(address: str | os.PathLike[str] | Place, options: Mapping[str, str] | None = None) -> Storage:
    """The storage of a database: a path, a `file:` address, or the address of an object store.

    `options`: of the store, over the environment. LakemirrorError `address-unsupported`, `setting-invalid`,
    `stores-extra-missing`. Nothing is opened.
    """
    text = str(address)
    if not is_store_address(text):
        return LocalStorage(local_folder(text))
    if options:
        give_options(text, options)
    return ObjectStorage(text)


def local_folder(address: str) -> Path:
    """The folder that a path or a `file:` address names.

    LakemirrorError `address-unsupported` for another address, and for an empty one: a variable of a script that is not
    set must not mean the current folder.
    """
    if not address:
        raise SetupError("address-unsupported", "the path is empty; the current folder is `.`")
    if address.startswith("file:"):
        return Path(unquote(urlsplit(address).path))
    match = _ADDRESS.match(address)
    if match is not None:
        is_store = is_store_address(f"{match[0]}bucket")
        what = f"addresses that begin with {match[1]}: are not supported"
        if is_store:
            what = "the name of a bucket has no colon, and credentials are given by --storage or the environment"
            what = what if ":" in address[match.end() :].partition("/")[0] else "it names no bucket"
        message = f"{without_passwords(address, address)}: {what}"
        raise SetupError("address-unsupported", message)
    return Path(address)


def database_place(address: str) -> Place:
    """The folder that a path, a `file:` address or the address of an object store names; `address-unsupported`."""
    return place(address) if is_store_address(address) else local_folder(address)


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
        if isinstance(folder, StorePath):
            (folder / LANDING_ZONE / _BEGUN).write_bytes(b"{}\n")  # a folder is there once an object is in it
        else:
            (folder / LANDING_ZONE).mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise coded(failure) from failure
    return True


def missing_database(address: str) -> LakemirrorError:
    """The error `database-missing` for a folder that is no database. It names databases below it and above it."""
    if is_store_address(address):
        return SetupError("database-missing", f"{address} holds no object below {LANDING_ZONE}")
    folder = Path(address)
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


__all__ = [
    "create_database",
    "database_place",
    "databases_below",
    "is_database",
    "local_folder",
    "missing_database",
    "storage_of",
]
