"""What one process knows of a bucket's objects: contents by ETag, its own writes, data files.

    contents   small objects and the ends of data files, at most 64 MiB; the lasting ones in the disk cache, too
    own        objects as this process wrote them last: a replace is conditional on them, a commit needs no look
    seen       data files, whose names are never used again: their size and ETag count without a request

Entries are valid for one ETag: another content has another ETag.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence

from lakemirror.storage.disk_cache import DiskCache
from lakemirror.storage.storage import Entry

_KEPT = 64 << 20  # bytes of small objects in memory
_SMALL = 8 << 20  # bytes of an object that is kept
_SMALL_ON_DISK = 1 << 20
_REMEMBERED = 20_000  # objects that this process wrote, and that it has seen
_END = " end"  # behind an ETag: the last bytes of the object alone


class ObjectCache:
    """The cache of one bucket. `root`: its address. `disk`: shared by all buckets; None: nothing is kept there."""

    def __init__(self, root: str, disk: DiskCache | None = None) -> None:
        self.disk = disk
        self._root = root
        self._lock = threading.Lock()
        self._contents: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._left = _KEPT
        self._own: OrderedDict[str, tuple[Entry, str]] = OrderedDict()  # with its generation
        self._seen: OrderedDict[str, Entry] = OrderedDict()

    def content(self, key: str, tag: str) -> bytes | None:
        """The object with this ETag, where it is known."""
        return self._get(key, tag, key.endswith(".json") or "/_delta_log/" in key)

    def keep(self, key: str, tag: str, data: bytes, *, lasting: bool = True) -> None:
        """Keeps the complete object if it is small; older entries are dropped for it.

        Objects that an engine reads at its start are kept on disk, too: commits, checkpoints, `.json` objects.
        `lasting` False: the object is replaced soon.
        """
        self._keep(key, tag, data, lasting and (key.endswith(".json") or "/_delta_log/" in key))

    def end(self, key: str, tag: str) -> bytes | None:
        """The last bytes of the object with this ETag, where they are known."""
        return self._get(key, tag and tag + _END, True)

    def keep_end(self, key: str, tag: str, data: bytes) -> None:
        """Keeps the last bytes of an object: the footer of a Parquet file."""
        self._keep(key, tag and tag + _END, data, True)

    def own(self, key: str) -> Entry | None:
        """The object as this process wrote it recently; None if it did not."""
        with self._lock:
            return self._own.get(key, (None, ""))[0]

    def generation(self, key: str) -> str:
        """The generation that the store gave the object when this process wrote it; empty where it gave none."""
        with self._lock:
            return self._own.get(key, (None, ""))[1]

    def remember(self, key: str, size: int, tag: str, generation: str = "") -> Entry:
        """Notes an object that this process has written."""
        entry = Entry(key, size, time.time_ns(), tag)
        with self._lock:
            self._own[key] = entry, generation
            self._own.move_to_end(key)
            while len(self._own) > _REMEMBERED:
                self._own.popitem(last=False)
        return entry

    def seen(self, key: str) -> Entry | None:
        """An object that nobody replaces, as it was when it was read last; None where it is not known."""
        with self._lock:
            if (found := self._seen.get(key)) is not None or self.disk is None:
                return found
        text = self.disk.get(self._name(key, ""))
        if text is None:
            return None
        found = Entry(key, *json.loads(text))
        self._note(found)
        return found

    def see(self, entry: Entry) -> None:
        """Notes an object that nobody replaces."""
        self._note(entry)
        if self.disk is not None:
            text = json.dumps([entry.size, entry.modified, entry.tag])
            self.disk.put(self._name(entry.path, ""), text.encode())

    def forget(self, keys: Sequence[str]) -> None:
        """The objects may be gone, or others."""
        with self._lock:
            for key in keys:
                self._own.pop(key, None)
                self._seen.pop(key, None)
        if self.disk is not None:
            for key in keys:
                self.disk.drop(self._name(key, ""))

    def _note(self, entry: Entry) -> None:
        with self._lock:
            self._seen[entry.path] = entry
            while len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)

    def _get(self, key: str, tag: str, is_on_disk: bool) -> bytes | None:
        if not tag:
            return None
        with self._lock:
            if (key, tag) in self._contents:
                self._contents.move_to_end((key, tag))
                return self._contents[key, tag]
        if not is_on_disk or self.disk is None:
            return None
        data = self.disk.get(self._name(key, tag))
        if data is not None:
            self._keep(key, tag, data, False)
        return data

    def _keep(self, key: str, tag: str, data: bytes, is_for_disk: bool) -> None:
        if not tag or len(data) > _SMALL:
            return
        with self._lock:
            if (key, tag) not in self._contents:
                self._contents[key, tag] = data
                self._left -= len(data)
            while self._left < 0:
                self._left += len(self._contents.popitem(last=False)[1])
        if is_for_disk and self.disk is not None and len(data) <= _SMALL_ON_DISK:
            self.disk.put(self._name(key, tag), data)

    def _name(self, key: str, tag: str) -> str:
        return json.dumps([self._root, key, tag])
