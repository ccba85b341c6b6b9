"""A mirrored database in a bucket: the verbs of `Storage` on a store without folders and without rename."""

from __future__ import annotations

import contextlib
import io
import json
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, count, islice
from pathlib import Path
from typing import BinaryIO, cast

from lakemirror import failpoints
from lakemirror.errors import LakemirrorError
from lakemirror.storage.addresses import parse_address
from lakemirror.storage.connections import store_at
from lakemirror.storage.folder_watch import NotWatched
from lakemirror.storage.local import list_by_folder
from lakemirror.storage.object_file import ObjectFile
from lakemirror.storage.storage import MOVING, STORE, Entry, Listing

PROBES = "Files/Monitoring/"
_TOGETHER = 64  # files that are set aside together
_WORTH_A_LISTING = 3
_PUT_AGAIN = 256 << 10  # bytes of a file that is put again: an S3 copy "only if absent" takes three requests
_AT_ONCE = 8  # copies within the store


class ObjectStorage:
    """A mirrored database below an address: `s3://bucket/folder`."""

    capabilities = STORE

    def __init__(self, address: str) -> None:
        """LakemirrorError `stores-extra-missing`, `setting-invalid`. No request is sent."""
        self._root, self._top = parse_address(address)
        self.store = store_at(self._root)

    def watchable(self) -> Path | NotWatched:
        return NotWatched("it is no local folder")

    def holding_folders(self) -> contextlib.AbstractContextManager[None]:
        """Nothing: a store has no folders."""
        return contextlib.nullcontext()

    def uri(self, path: str = "") -> str:
        return self.store.uri(self._key(path))

    def probe(self) -> None:
        """`store-unsafe` where the store ignores the condition "only if absent"; also what any request raises."""
        self.store.probe(self._key(PROBES))

    def list(self, path: str, enter: Callable[[str], bool] = lambda _: True) -> Listing:
        """As `Storage.list`. One request for 1,000 objects, whatever the folders; FileNotFoundError without any.

        A key that no client can name is an error of its folder: then each folder is listed by itself.
        """
        if not enter(f"{path}/-" if path else "-") and not enter(path):
            return list_by_folder(path, lambda _: False, self._list_folder)
        if path.partition("/")[0] == "Tables":
            return list_by_folder(
                path, enter, self._list_folder
            )  # data files by the million are below it, and nobody asks for them
        listing, entered, is_there = Listing(), {path: True}, False

        def is_entered(folder: str) -> bool:
            if folder not in entered:
                entered[folder] = is_entered(folder.rpartition("/")[0])
                if entered[folder]:
                    listing.folders.append(folder)
                    entered[folder] = enter(folder)
            return entered[folder]

        try:
            for entry in self._entries(path):
                is_there = True
                if is_entered(entry.path.rpartition("/")[0]):
                    listing.files.append(entry)
        except LakemirrorError as error:
            if error.code != "path-refused":
                raise
            return list_by_folder(path, enter, self._list_folder)
        if not is_there:
            raise FileNotFoundError(2, "No such folder", self.uri(path))
        return listing

    def stat(self, path: str) -> Entry | None:
        """The object, or None; None for a folder, which has no time of its own here."""
        found = self.store.head(self._key(path))
        return None if found is None else self._relative(found)

    def exists(self, path: str) -> bool:
        if self.store.head(self._key(path)) is not None:
            return True
        try:
            return next(self._entries(path), None) is not None
        except LakemirrorError as error:
            if error.code == "path-refused":
                return True  # a key that no client can name is there
            raise

    def open(self, path: str, listed: Entry | None = None) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(ObjectFile(self.store, self._key(path), listed), 1 << 16))

    def read(self, path: str, most_bytes: int | None = None, listed: Entry | None = None) -> bytes:
        if most_bytes is None or (listed is not None and listed.tag and listed.size <= most_bytes):
            data = self.store.read(self._key(path), listed)
            if most_bytes is None or len(data) <= most_bytes:
                return data
        entry, data = self.store.tail(self._key(path), most_bytes + 1)
        if entry.size > most_bytes:
            message = f"{path} has {entry.size:,} bytes, more than {most_bytes:,}: it is not read"
            raise LakemirrorError("content-too-large", message, file=path)
        return data

    def write(self, path: str, data: bytes) -> None:
        self.store.put(self._key(path), data)

    def rewrite(self, path: str, data: bytes) -> bool:
        return self.store.replace(self._key(path), data)

    def write_new(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        if next(self._entries(path.rpartition("/")[0]), None) is None:
            raise FileNotFoundError(2, "No such folder", self.uri(path.rpartition("/")[0]))
        return self.store.create(self._key(path), data) is not None

    def move(self, source: str, target: str) -> None:
        """A copy, then a delete: nothing is renamed in a store. A folder's objects follow a tombstone (`MOVING`)."""
        key = self._key(source)
        try:
            self.store.copy(key, self._key(target))
        except FileNotFoundError:
            self._move_folder(source, target)
            return
        self.store.delete([key])

    def create(self, path: str) -> BinaryIO:
        return cast(BinaryIO, self.store.writer(self._key(path)))

    def touch(self, path: str) -> None:
        """Nothing: what is moved has the time of its copy."""

    def delete(self, path: str) -> None:
        key = self._key(path)
        self.store.delete([*(self._key(each.path) for each in self._entries(path)), *([key] if key else [])])

    def free_name(self, path: str, listed: Collection[str]) -> str:
        names = chain([path], (f"{path}.{number}" for number in count(1)))
        return next(name for name in names if name not in listed)

    def move_listed(self, entry: Entry, target: str) -> bool:
        """As `Storage.move_listed`; the file is copied, compared with the listed one, then deleted. Three requests."""
        if not self._is_copied(entry, target):
            return False
        return bool(self._completed([(entry, target)], {entry.path: self.stat(entry.path)}))

    def move_all_listed(self, moves: Iterable[tuple[Entry, str]]) -> Iterator[tuple[Entry, str]]:
        """As `Storage.move_all_listed`: a copy for each file, side by side; one listing; one request that deletes."""
        left = list(moves)
        while left:
            some, left = left[:_TOGETHER], left[_TOGETHER:]
            with contextlib.suppress(LakemirrorError):
                yield from self._move_some_listed(some)

    def _move_some_listed(self, moves: Sequence[tuple[Entry, str]]) -> Sequence[tuple[Entry, str]]:
        if len(moves) < _WORTH_A_LISTING:
            return [move for move in moves if self.move_listed(*move)]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="archive") as pool:
            copied = [move for move, is_there in zip(moves, pool.map(self._copy, moves), strict=True) if is_there]
        return self._completed(copied, self._as_listed([entry.path for entry, _ in copied]))

    def _copy(self, move: tuple[Entry, str]) -> bool:
        """As `_is_copied`; False also where the file cannot be copied now."""
        with contextlib.suppress(LakemirrorError):
            return self._is_copied(*move)
        return False

    def _is_copied(self, entry: Entry, target: str) -> bool:
        """True once the copy of a file is there; False where the file is gone, or something is at `target`.

        What is at `target` may be another engine's copy, and the file here one that its publisher has put since.
        """
        key, target_key = self._key(entry.path), self._key(target)
        try:
            if self.store.is_too_large_to_copy(entry.size):
                if self.store.head(target_key) is not None:
                    return False
                self.store.copy(key, target_key, entry.size)
                is_copied = True
            elif entry.size > _PUT_AGAIN:
                is_copied = self.store.copy_new(key, target_key)
            else:
                is_copied = self.store.put_new(target_key, self.store.read_same(key, replace(entry, path=key)))
        except FileNotFoundError:
            return False
        failpoints.reach("store.after-copy")
        return is_copied

    def _as_listed(self, paths: Sequence[str]) -> dict[str, Entry | None]:
        """The objects of these paths that are there now, by path, from one listing of the keys between them."""
        found: dict[str, Entry | None] = {}
        if not paths:
            return found
        folder = os.path.commonpath([each.rpartition("/")[0] for each in paths])
        for entry in self._entries(folder, min(paths)[:-1]):
            if entry.path > max(paths):
                break
            found[entry.path] = entry
        return found

    def _completed(
        self, moves: Sequence[tuple[Entry, str]], now: Mapping[str, Entry | None]
    ) -> Sequence[tuple[Entry, str]]:
        """Deletes the files whose copies are made and that are still the listed ones; returns those.

        `now`: the files as they are now. The copy of another file is deleted, and copies in a folder that somebody
        has deleted. Where the file alone is gone, another engine has moved it, and its copy is this one.
        """
        same = [(entry, target) for entry, target in moves if (at := now.get(entry.path)) and at.etag == entry.etag]
        failpoints.reach("store.before-delete")
        self.store.delete([self._key(entry.path) for entry, _ in same])
        replaced = [target for entry, target in moves if (at := now.get(entry.path)) and at.etag != entry.etag]
        gone = [target for entry, target in moves if now.get(entry.path) is None]
        if gone and not same and self._are_alone([target for _, target in moves], moves[0]):
            replaced += gone
        self.store.delete([self._key(target) for target in replaced])
        return same

    def _are_alone(self, targets: Sequence[str], move: tuple[Entry, str]) -> bool:
        """True where nothing but these copies is in the table's folder: somebody has deleted the folder."""
        folder = os.path.commonpath([move[0].path, move[1]])
        return all(each.path in targets for each in islice(self._entries(folder), len(targets) + 1))

    def finish_move(self, path: str) -> bool:
        """Carries on with a move of a table's folder, from or to `path`, that its engine did not end.

        True where one was found. FileNotFoundError never; LakemirrorError as any request.
        """
        try:
            found = json.loads(self.store.read(self._key(_tombstone(path))))
            source, target = str(found["from"]), str(found["to"])
        except (FileNotFoundError, ValueError, LookupError, TypeError):
            return False
        self._carry_on(source, target)
        return True

    def _move_folder(self, source: str, target: str) -> None:
        """Copies what is in a folder, then deletes it. Killed anywhere, `finish_move` goes on.

        A tombstone in the table's log comes first, made only if absent, so that two engines agree about the target;
        while it is there nobody reads the log (`delta.log.list_log`). Another one is in the log at the target.
        """
        if next(self._entries(source), None) is None:
            raise FileNotFoundError(2, "No such folder", self.uri(source))
        content = json.dumps({"from": source, "to": target, "id": uuid.uuid4().hex}).encode()
        if self.store.create(self._key(_tombstone(source)), content) is None:
            self.finish_move(source)
            return
        self._carry_on(source, target)

    def _carry_on(self, source: str, target: str) -> None:
        """The log goes last to the new place and first from the old one, and never looks like an earlier version:
        newest commits come first and go last."""
        tombstones = _tombstone(source), _tombstone(target)
        content = json.dumps({"from": source, "to": target}).encode()
        self.store.put(self._key(tombstones[1]), content)
        copied: dict[str, str] = {}
        while left := [
            each for each in self._entries(source) if each.path != tombstones[0] and copied.get(each.path) != each.etag
        ]:
            data = [each for each in left if "/_delta_log/" not in each.path]
            newest_first = sorted(set(left) - set(data), key=lambda each: each.path, reverse=True)
            for each in [*data, *newest_first]:
                with contextlib.suppress(FileNotFoundError):  # another engine is further
                    self.store.copy(self._key(each.path), self._key(target + each.path[len(source) :]), each.size)
                copied[each.path] = each.etag
        keys = sorted(copied, key=lambda path: ("/_delta_log/" not in path, path))
        self.store.delete([self._key(each) for each in keys])
        for tombstone in reversed(tombstones):
            self.store.delete([self._key(tombstone)])

    def _list_folder(self, path: str, listing: Listing) -> Sequence[str]:
        """Adds the files of one folder to the listing. Returns its folders. FileNotFoundError."""
        folders, entries = self.store.folders(self._below(path))
        if not folders and not entries:
            raise FileNotFoundError(2, "No such folder", self.uri(path))
        listing.files += [self._relative(each) for each in entries]
        return [self._path(each) for each in folders]

    def _entries(self, path: str, after: str = "") -> Iterator[Entry]:
        begin = self._key(after) if after else ""
        return (self._relative(each) for each in self.store.entries(self._below(path), begin))

    def _key(self, path: str) -> str:
        return f"{self._top}/{path}" if self._top and path else self._top or path

    def _below(self, path: str) -> str:
        key = self._key(path)
        return f"{key}/" if key else ""

    def _path(self, key: str) -> str:
        return key[len(self._top) + 1 :] if self._top else key

    def _relative(self, entry: Entry) -> Entry:
        return Entry(self._path(entry.path), entry.size, entry.modified, entry.tag)


def _tombstone(folder: str) -> str:
    return f"{folder}/_delta_log/{MOVING}"
