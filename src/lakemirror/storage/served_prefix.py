"""A database below an address of a store, as clients of a service see it: folders are prefixes, a publish is one put.

    staged file ─▶ at most 16 MiB: one put with its condition
                ─▶ larger: in parts, complete at once; only if absent: in `PARTS` first, then a conditional copy

A folder that a client has made holds an object, `FOLDER_MARK`, which no client sees: so it is there while it is empty.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from lakemirror.storage.object_store import ObjectStore
from lakemirror.storage.served_files import ANY, Changed, Expected, Found
from lakemirror.storage.storage import Entry
from lakemirror.storage.store_path import StorePath

FOLDER_MARK = "_lakemirror_folder.json"
PARTS = ".lakemirror/parts"
"""Under the root that is served: large objects that wait for their conditional copy."""

_MARK = b"{}\n"
_PIECE = 4 << 20  # bytes of one request for a file that is sent to a client
_IN_ONE = 16 << 20  # bytes of a file that is put by one request
_PART = 8 << 20
_MOST_KNOWN = 100_000


class ServedPrefix:
    """The files of a database in a store."""

    waits = True
    piece = _PIECE

    def __init__(self, folder: StorePath) -> None:
        self._top = folder.key
        self._parts = (folder.parent.parent / PARTS).key  # of ROOT/workspace/database
        self._store: ObjectStore = folder.store
        self._known: set[str] = set()  # folders in whose place is no file

    def find(self, path: str) -> Found | None:
        entry = self._store.head(self._key(path)) if path else None
        if entry is not None:
            return found_of(entry)
        return _FOLDER if not path or self._is_folder(path) else None

    def open(self, path: str) -> OpenObject:
        entry = self._store.head(self._key(path)) if path else None
        if entry is None:
            raise FileNotFoundError(path)
        return OpenObject(self._store, entry)

    def listed(self, path: str) -> ListedPrefix:
        folders, entries = self._store.folders(self._below(path))
        if not folders and not entries and path:
            raise FileNotFoundError(path)
        return ListedPrefix([each.rpartition("/")[2] for each in folders], entries)

    def make_folder(self, path: str) -> None:
        self.check_folders(path)
        if path and not self._is_folder(path):
            self._mark(path)

    def check_folders(self, path: str) -> None:
        parts = path.split("/") if path else []
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if folder in self._known:
                continue
            if self._store.head(self._key(folder)) is not None:
                raise NotADirectoryError(folder)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known.add(folder)

    def put(self, path: str, source: Path, expected: Expected) -> Found | None:
        found = self._put(path, source, expected)
        source.unlink(missing_ok=True)  # as after a rename
        return found

    def _put(self, path: str, source: Path, expected: Expected) -> Found | None:
        key, size = self._key(path), source.stat().st_size
        self._known.discard(path)
        if size > _IN_ONE:
            self._put_large(key, source, size, expected)
            entry = self._store.head(key)
            return None if entry is None else found_of(entry)
        data = source.read_bytes()
        if expected is ANY:
            return found_of(self._store.put(key, data))
        if expected is None:
            if not self._store.put_new(key, data):
                raise Changed
            written = self._store.head(key)
        elif (written := self._store.put_over(key, data, expected.etag)) is None:
            raise Changed
        return None if written is None else found_of(written)

    def move(self, source: str, target: str, expected: Expected, *, is_folder: bool) -> None:
        if is_folder:
            self._move_folder(source, target)
        else:
            key, target_key = self._key(source), self._key(target)
            entry = self._store.head(key)
            if entry is None:
                raise FileNotFoundError(source)
            if expected is None and not self._store.is_too_large_to_copy(entry.size):
                if not self._store.copy_new(key, target_key):
                    raise Changed
            else:
                self._store.copy(key, target_key, entry.size)
            self._keep_folder_of(source)
            self._store.delete([key])
        self._known.discard(target)

    def remove_file(self, path: str, *, keeps_folder: bool = True) -> None:
        if keeps_folder:
            self._keep_folder_of(path)
        self._store.delete([self._key(path)])

    def take_folder(self, path: str, aside: Path) -> None:
        self._keep_folder_of(path)
        self._store.delete([each.path for each in self._store.entries(self._below(path))])

    def settle(self, path: str) -> None:
        """Nothing: what a store has confirmed survives."""

    def forget_settled(self) -> None:
        """Nothing: a store has no folders."""

    def _put_large(self, key: str, source: Path, size: int, expected: Expected) -> None:
        """Puts a file in parts. Nothing is at the key before the last part is there.

        A store has no condition for the end of an upload in parts: what is replaced is looked at just before it.
        """
        aside = expected is None and not self._store.is_too_large_to_copy(size)
        written = f"{self._parts}/{uuid.uuid4().hex}" if aside else key
        writer = self._store.writer(written)
        try:
            with source.open("rb") as file:
                while data := file.read(_PART):
                    writer.write(data)
            if not aside and expected is not ANY:
                entry = self._store.head(key)
                if (entry.tag if entry else None) != (expected.etag if expected else None):
                    raise Changed
        except BaseException:
            writer.abort()
            raise
        writer.close()
        if aside:
            try:
                if not self._store.copy_new(written, key):
                    raise Changed
            finally:
                self._store.delete([written])

    def _move_folder(self, source: str, target: str) -> None:
        """Copies what is in a folder, names that begin with `_` first, so that no data comes before its metadata."""
        entries = list(self._store.entries(self._below(source)))
        if not entries:
            raise FileNotFoundError(source)
        begin = len(self._key(source))
        for each in sorted(entries, key=lambda entry: (not entry.name.startswith("_"), entry.path)):
            with contextlib.suppress(FileNotFoundError):
                self._store.copy(each.path, self._key(target) + each.path[begin:], each.size)
        self._keep_folder_of(source)
        self._store.delete([each.path for each in entries])

    def _keep_folder_of(self, path: str) -> None:
        """The folder that holds `path` stays when this is the last thing in it."""
        folder = path.rpartition("/")[0]
        if folder:
            self._mark(folder)

    def _mark(self, folder: str) -> None:
        self._store.put_new(self._key(f"{folder}/{FOLDER_MARK}"), _MARK)

    def _is_folder(self, path: str) -> bool:
        return next(self._store.entries(self._below(path)), None) is not None

    def _key(self, path: str) -> str:
        return f"{self._top}/{path}" if self._top and path else self._top or path

    def _below(self, path: str) -> str:
        key = self._key(path)
        return f"{key}/" if key else ""


class OpenObject:
    """An object; reading it raises FileNotFoundError once another one is in its place."""

    def __init__(self, store: ObjectStore, entry: Entry) -> None:
        self._store, self._entry = store, entry
        self.found = found_of(entry)

    def read_at(self, size: int, offset: int) -> bytes:
        size = min(size, self._entry.size - offset)
        return self._store.range(self._entry.path, offset, size, self._entry.tag) if size > 0 else b""

    def copy_to(self, target: int, length: int) -> None:
        at = 0
        while at < length:
            data = self.read_at(min(_PART, length - at), at)
            if not data:
                raise EOFError
            at += os.pwrite(target, data, at)

    def close(self) -> None:
        """Nothing is open."""


class ListedPrefix:
    """What one listing showed of a folder."""

    def __init__(self, folders: Sequence[str], entries: Sequence[Entry]) -> None:
        files = {each.name: found_of(each) for each in entries if each.name != FOLDER_MARK}
        self._found: dict[str, Found] = {**dict.fromkeys(folders, _FOLDER), **files}
        self.names: Mapping[str, bool] = {name: found.is_folder for name, found in self._found.items()}

    def find(self, name: str) -> Found | None:
        return self._found.get(name)

    def close(self) -> None:
        """Nothing is open."""


def found_of(entry: Entry) -> Found:
    return Found(False, entry.size, entry.tag, entry.modified)


_FOLDER = Found(True, 0, "0x0", 0)
