"""An object opened for reading: what pyarrow and Python read from as from a file, by few ranged requests.

small object ─▶ one request for all of it, none where it is in memory
pieces that are read more than once ─▶ hold: requests side by side
large one    ─▶ its end (the footer) ─▶ blocks of 4 MiB, the last few of them kept ─▶ larger reads as they are asked
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakemirror.errors import LakemirrorError
from lakemirror.storage.ranged_file import RangedFile
from lakemirror.storage.storage import Entry

if TYPE_CHECKING:
    from lakemirror.storage.object_store import ObjectStore

_FIRST = 256 << 10  # bytes at the end that are read first
_AT_ONE_TIME = 1 << 20  # an object of a known size of at most so many bytes is read by one request
_ALL = 8 << 20  # an object of at most so many bytes is read completely
_BLOCK = 4 << 20
_BLOCKS = 6
_HELD = 64 << 20  # the most bytes that `hold` reads
_PART = 8 << 20  # bytes up to which its pieces are one request
_AT_ONCE = 4


class ObjectFile(RangedFile):
    """An object, read at any place. All bytes are of one content: FileNotFoundError once it was replaced.

    `listed`: as a listing showed it; then this content is read, or FileNotFoundError. `written_once`: nobody replaces
    it, so what an earlier read of this process kept counts. Not for several threads at once; pyarrow takes turns.
    """

    def __init__(
        self, store: ObjectStore, key: str, listed: Entry | None = None, *, written_once: bool = False
    ) -> None:
        super().__init__()
        self._store, self._key = store, key
        self.entry: Entry
        if written_once and listed is None:
            listed = store.cache.seen(key)
        if listed is not None and listed.tag:
            self.entry = listed
            end = self._end_of(listed)
        else:
            self.entry, end = store.tail(key, _FIRST)
            if written_once and self.entry.tag:
                store.cache.see(self.entry)
                store.cache.keep_end(key, self.entry.tag, end)
        self.size = self.entry.size
        self._end_begins = self.size - len(end)
        self._end = end
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._spans: list[tuple[int, memoryview]] = []

    def hold(self, pieces: Sequence[tuple[int, int]]) -> None:
        """Reads these pieces, each from its begin to its end, by requests side by side, and keeps them until the next
        `hold`: they are read more than once. More than 64 MiB are not kept; then each read is a request of its own.

        Small pieces that follow each other are one request. A read within one piece is not copied (`read_buffer`).
        """
        self._spans = []
        last = max((end for _, end in pieces), default=0)
        asked = [(begin, min(end, self._end_begins)) for begin, end in sorted(pieces) if begin < self._end_begins]
        if self.size <= _ALL or any(begin < 0 or begin > end for begin, end in pieces):
            return
        if sum(end - begin for begin, end in asked) > _HELD:
            return
        parts: list[tuple[int, int]] = []
        for begin, end in asked:
            if parts and parts[-1][1] == begin and end - parts[-1][0] <= _PART:
                parts[-1] = parts[-1][0], end
            else:
                parts.append((begin, end))
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="parts") as pool:
            data = list(pool.map(lambda part: self._view(part[0], part[1] - part[0]), parts))
        self._spans = [(begin, view) for (begin, _), view in zip(parts, data, strict=True)]
        if last > self._end_begins:
            self._spans.append((self._end_begins, memoryview(self._end)))

    def read_buffer(self, size: int) -> bytes | memoryview:
        """The same as `read`; pyarrow asks for this. What `hold` keeps in one piece is not copied."""
        held = self._held(self._at, min(size, max(0, self.size - self._at)))
        if len(held) != 1:
            return self.read(size)
        self._at += len(held[0])
        return held[0]

    def _read_at(self, begin: int, size: int) -> bytes:
        if not size:
            return b""
        held = self._held(begin, size)
        if held:
            return b"".join(held)
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

    def _held(self, begin: int, size: int) -> list[memoryview]:
        """These bytes as `hold` keeps them, in one piece or several that follow each other; empty where it does not."""
        found, end = [], begin + size
        for first, held in self._spans:
            if begin < end and first <= begin < first + len(held):
                found.append(held[begin - first : end - first])
                begin += len(found[-1])
        return found if begin == end else []

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

    def _end_of(self, listed: Entry) -> bytes:
        """The last bytes that are read first: all of a small object, and of one that is in memory."""
        cache = self._store.cache
        kept = cache.content(self._key, listed.tag) or cache.end(self._key, listed.tag)
        if kept is not None:
            return kept
        if listed.size <= _AT_ONE_TIME:
            return self._store.read_same(self._key, listed)
        end = self._store.range(self._key, listed.size - _FIRST, _FIRST, listed.tag)
        cache.keep_end(self._key, listed.tag, end)
        return end

    def _range(self, begin: int, size: int) -> bytes:
        return bytes(self._view(begin, size))

    def _view(self, begin: int, size: int) -> memoryview:
        data = self._store.view(self._key, begin, size, self.entry.tag)
        if len(data) != size:
            address = self._store.uri(self._key)
            message = f"{address} gave {len(data)} bytes where {size} were asked for"
            raise LakemirrorError("storage-unavailable", message, file=address)
        return data
