"""One file of the key index, open: a hash table on the disk, from the keys of one data file to their row numbers.

An open file holds only its summary in memory, about 1.6 bytes per row. The filter rules out most keys that the file
does not have. For the other keys, their buckets are read and checked against their checksums, and `key_search` compares
them. The file is not mapped into memory, so that a file that is too short, or a failing disk, gives an error.
`key_format` describes the bytes.
"""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path

import numpy as np

from lakemirror.keys.key_format import (
    HEADER,
    Damaged,
    Places,
    filter_bits,
    filter_places,
    header_of,
    salts_of,
    scramble,
)
from lakemirror.keys.key_layout import ColumnLayout, KeyLayout


class Replaced(Exception):
    """Another engine has replaced the file since it was opened."""


def identity_of(path: Path) -> str:
    """The identity of the data file whose index is at `path`. Errors: Damaged, OSError."""
    with path.open("rb") as file:
        return str(header_of(file)["identity"])


class KeyFile:
    """An index with its summary in memory. Errors: Damaged, also if it is not the index of `identity`; OSError."""

    def __init__(self, path: Path, identity: str) -> None:
        self._path = path
        with path.open("rb", buffering=0) as file:
            self.state = state_of(os.fstat(file.fileno()))
            header = header_of(file)
            if header["identity"] != identity:
                raise Damaged(f"{path.name} is the index of another file")
            try:
                self.rows, self.seed = int(header["rows"]), int(header["seed"])
                self.layout = KeyLayout(tuple(ColumnLayout(**column) for column in header["columns"]))
            except (KeyError, TypeError, ValueError) as error:
                raise Damaged(f"{path.name}: {error}") from error
            self._places = places = Places(self.rows, self.layout.words)
            self.shift = np.uint64(64 - places.bits)
            if self.state[1] != places.size:
                raise Damaged(f"{path.name} does not have its full size")
            # The summary begins four bytes after a multiple of eight: then the words of its filter are aligned.
            held = np.empty(4 + places.summary, np.uint8)
            summary = held[4:]
            size = os.preadv(file.fileno(), [summary.data], HEADER)
        if size != places.summary or zlib.crc32(summary.data) != header.get("summary"):
            raise Damaged(f"{path.name}: its summary is damaged")
        self.nbytes = len(summary)
        self.touched = self.state[2] / 1e9
        ends = 4 * (places.buckets + 1)
        self._begins, self._sums = summary[:ends].view(np.uint32), summary[ends : ends + 4 * places.buckets].view("u4")
        self._filter = summary[ends + 4 * places.buckets :].view(np.uint64)

    def passing(self, wanted: KeysOfLayout) -> np.ndarray:
        """The wanted keys that pass the filter: scrambled, sorted by first word."""
        keys, bits = wanted.scrambled(self.seed)
        held = self._filter[wanted.filter_places(self.seed, len(self._filter))]
        held &= bits
        result: np.ndarray = keys[held == bits]
        return result

    def entries(self, keys: np.ndarray) -> tuple[list[int], list[bytes]]:
        """The entries that may be those of the keys: the place of the key in `keys`, and the bytes of the entry.

        `keys`: as `passing` gives them. Only the lowest bytes of a key's first word are compared.
        Errors: Damaged if a bucket does not match its checksum, Replaced, OSError.
        """
        numbers = (keys[:, 0] >> self.shift).astype(np.int64)
        begins = self._begins[numbers].astype(np.int64)
        sizes = self._begins[numbers + 1] - begins
        entry, salts = self._places.entry, salts_of(numbers.astype(np.uint64), self.seed)
        columns = (numbers, entry * begins + self._places.entries, entry * sizes, salts, self._sums[numbers])
        places, found, before, part = list[int](), list[bytes](), -1, b""
        pread, crc32, whole = os.pread, zlib.crc32, int(self.shift) // 8
        first = np.ascontiguousarray(keys[:, 0]).tobytes()
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if state_of(os.fstat(file)) != self.state:
                raise Replaced(str(self._path))
            rows = zip(*(column.tolist() for column in columns), strict=True)
            for index, (bucket, begin, size, salt, checksum) in enumerate(rows):
                if bucket != before:
                    part, before = pread(file, size, begin), bucket
                    if len(part) != size or crc32(part, salt) != checksum:
                        raise Damaged(f"the bucket at byte {begin} is damaged")
                start = first[8 * index : 8 * index + whole]
                at = part.find(start)
                while at >= 0:
                    if at % entry == 0:
                        places.append(index)
                        found.append(part[at : at + entry])
                    at = part.find(start, at + 1)
        finally:
            os.close(file)
        return places, found

    def touch(self) -> None:
        """Sets the file's modification time to now, to show that the index is in use."""
        os.utime(self._path)
        self.state = state_of(self._path.stat())
        self.touched = time.time()


class KeysOfLayout:
    """WantedKeys keys, as the words of one layout."""

    def __init__(self, words: np.ndarray) -> None:
        self._words = words
        self._scrambled: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._places: tuple[int, int, np.ndarray] | None = None

    def scrambled(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The keys scrambled with this seed, sorted by first word, and their filter bits."""
        found = self._scrambled.get(seed)
        if found is None:
            keys = scramble(self._words, seed)
            keys = keys[np.argsort(keys[:, 0])]
            found = self._scrambled[seed] = keys, filter_bits(keys[:, 0])
        return found

    def filter_places(self, seed: int, size: int) -> np.ndarray:
        """The places (int64) of the scrambled keys in a filter of `size` words. Files often have the same size."""
        found = self._places
        if found is None or found[:2] != (seed, size):
            places = filter_places(self.scrambled(seed)[0][:, 0], size).astype(np.int64)
            found = self._places = seed, size, places
        return found[2]


def state_of(stat: os.stat_result) -> tuple[int, ...]:
    """A value that changes when the file is replaced or written to."""
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
