"""An object opened for reading: what pyarrow and Python read from as from a file, by few ranged requests.

small object ─▶ one request for all of it, none where it is in memory
a span that is read more than once ─▶ hold: requests side by side
large one    ─▶ its end (the footer) ─▶ blocks of 4 MiB, the last few of them kept ─▶ larger reads as they are asked
"""

from __future__ import annotations

import io
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.storage.object_store import ObjectStore
    from lakemirror.storage.storage import Entry

_FIRST = 256 << 10  # bytes at the end that are read first
_AT_ONE_TIME = 1 << 20  # an object of a known size of at most so many bytes is read by one request
_ALL = 8 << 20  # an object of at most so many bytes is read completely
_BLOCK = 4 << 20
_BLOCKS = 6
_HELD = 64 << 20  # the most bytes that `hold` reads
_PART = 8 << 20  # bytes of one of its requests
_AT_ONCE = 4


class ObjectFile(io.RawIOBase):
    """An object, read at any place. All bytes are of one content: FileNotFoundError once it was replaced.

    `known`: as a listing showed it; then this content is read, or FileNotFoundError. `written_once`: nobody replaces
    it, so what an earlier read of this process kept counts. Not for several threads at once; pyarrow takes turns.
    """

    def __init__(self, store: ObjectStore, key: str, known: Entry | None = None, *, written_once: bool = False) -> None:
        super().__init__()
        self._store, self._key = store, key
        self.entry: Entry
        if written_once and known is None:
            known = store.cache.seen(key)
        if known is not None and known.tag:
            self.entry = known
            end = self._known_end(known)
        else:
            self.entry, end = store.tail(key, _FIRST)
            if written_once and self.entry.tag:
                store.cache.see(self.entry)
                store.cache.keep_end(key, self.entry.tag, end)
        self.size = self.entry.size
        self._end_begins = self.size - len(end)
        self._end = end
        self._at = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._span: tuple[int, memoryview] = (0, memoryview(b""))

    def hold(self, begin: int, end: int) -> None:
        """Reads these bytes by requests side by side, and keeps them until the next `hold`: they are read more than
        once. More than 64 MiB are not kept; then each read is a request of its own."""
        self._span = (0, memoryview(b""))
        asked = min(end, self._end_begins)
        if begin < 0 or not 0 < asked - begin <= _HELD or self.size <= _ALL:
            return
        data = bytearray(asked - begin)
        starts = range(begin, asked, _PART)

        def fetch(at: int) -> None:
            size = min(_PART, asked - at)
            data[at - begin : at - begin + size] = self._range(at, size)

        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="parts") as pool:
            list(pool.map(fetch, starts))
        data += self._end[: max(0, end - asked)]
        self._span = (begin, memoryview(data))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self.size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        data = self._read_at(self._at, wanted)
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self.read(-1)

    def _read_at(self, begin: int, size: int) -> bytes:
        if not size:
            return b""
        first, held = self._span
        if first <= begin and begin + size <= first + len(held):
            return bytes(held[begin - first : begin - first + size])
        if begin >= self._end_begins:
            at = begin - self._end_begins
            return self._end[at : at + size]
        if self.size <= _ALL:
            self._end = self._range(0, self._end_begins) + self._end
            self._end_begins = 0
            self._store.cache.keep(self._key, self.entry.tag, self._end)
            return self._end[begin : begin + size]
        if size >= _BLOCK:
            return self._range(begin, size)
        first, last = begin // _BLOCK, (begin + size - 1) // _BLOCK
        data = b"".join(self._block(number) for number in range(first, last + 1))
        return data[begin - first * _BLOCK :][:size]

    def _block(self, number: int) -> bytes:
        found = self._blocks.get(number)
        if found is None:
            begin = number * _BLOCK
            found = self._blocks[number] = self._range(begin, min(_BLOCK, self.size - begin))
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(number)
        return found

    def _known_end(self, known: Entry) -> bytes:
        """The last bytes that are read first: all of a small object, and of one that is in memory."""
        cache = self._store.cache
        kept = cache.content(self._key, known.tag) or cache.end(self._key, known.tag)
        if kept is not None:
            return kept
        if known.size <= _AT_ONE_TIME:
            return self._store.read_same(self._key, known)
        end = self._store.range(self._key, known.size - _FIRST, _FIRST, known.tag)
        cache.keep_end(self._key, known.tag, end)
        return end

    def _range(self, begin: int, size: int) -> bytes:
        data = self._store.range(self._key, begin, size, self.entry.tag)
        if len(data) != size:
            place = self._store.uri(self._key)
            message = f"{place} gave {len(data)} bytes where {size} were asked for"
            raise LakemirrorError("storage-unavailable", message, file=place)
        return data


__all__ = ["ObjectFile"]
