"""One file of the key index, open: a hash table on the disk, from the keys of one data file to their row numbers.

An open file holds only its summary in memory, about 1.6 bytes per row. The filter rules out most keys that the file
does not have. For the other keys, their buckets are read and checked against their checksums. The file is not mapped
into memory, so that a file that is too short, or a failing disk, gives an error. `key_format` describes the bytes.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lakemirror.engines.kernels.key_format import (
    HEADER,
    Damaged,
    Places,
    entries_of,
    filter_bits,
    filter_places,
    header_of,
    salts_of,
    scramble,
)
from lakemirror.engines.kernels.key_layout import ColumnLayout, KeyLayout

_READ_AT_ONCE = 4 << 20  # bytes of buckets that are searched at once


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
            if self.state[1] != places.size:
                raise Damaged(f"{path.name} does not have its full size")
            summary = os.pread(file.fileno(), places.summary, HEADER)
        if len(summary) != places.summary or zlib.crc32(summary) != header.get("summary"):
            raise Damaged(f"{path.name}: its summary is damaged")
        self.nbytes = len(summary)
        self.touched = self.state[2] / 1e9
        ends = 4 * (places.buckets + 1)
        self._begins = np.frombuffer(summary, np.uint32, places.buckets + 1)
        self._sums = np.frombuffer(summary, np.uint32, places.buckets, ends)
        self._filter = np.frombuffer(summary, np.uint8, offset=ends + 4 * places.buckets).view(np.uint64)

    def rows_with(self, sought: KeysOfLayout) -> np.ndarray | None:
        """Row numbers (int64, ascending) of the rows with one of these keys. `sought`: in this file's `layout`.

        If the layout is not exact, these rows may also have other keys. Returns None if the file was replaced since it
        was opened. Errors: Damaged, OSError.
        """
        keys, bits = sought.scrambled(self.seed)
        place = filter_places(keys[:, 0], len(self._filter))
        keys = keys[(self._filter[place] & bits) == bits]
        if not len(keys):
            return np.zeros(0, np.int64)
        bucket = (keys[:, 0] >> np.uint64(64 - self._places.bits)).astype(np.int64)
        buckets = bucket[_first_of_equal(bucket)]
        with self._path.open("rb", buffering=0) as file:
            if state_of(os.fstat(file.fileno())) != self.state:
                return None
            found = [_matches(*entries, keys) for entries in self._read(file.fileno(), buckets)]
        rows = np.sort(np.concatenate(found)).astype(np.int64)
        if len(rows) and rows[-1] >= self.rows:
            raise Damaged("a row number is out of bounds")
        result: np.ndarray = rows[_first_of_equal(rows)]
        return result

    def touch(self) -> None:
        """Sets the file's modification time to now, to show that the index is in use."""
        os.utime(self._path)
        self.state = state_of(self._path.stat())
        self.touched = time.time()

    def _read(self, number: int, buckets: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Keys (uint64, one row each) and row numbers (uint64) of these buckets, several buckets at a time.

        Damaged if a bucket does not match its checksum.
        """
        entry, size = self._places.entry, 0
        begins = entry * self._begins[buckets].astype(np.int64)
        sizes = entry * self._begins[buckets + 1].astype(np.int64) - begins
        salts = salts_of(buckets.astype(np.uint64), self.seed)
        columns = (begins + self._places.entries, sizes, salts, self._sums[buckets])
        parts: list[bytes] = []
        first = 0
        for place, (begin, length, salt, checksum) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            part = os.pread(number, length, begin)
            if len(part) != length or zlib.crc32(part, salt) != checksum:
                raise Damaged(f"the bucket at byte {begin} is damaged")
            parts.append(part)
            size += length
            if size >= _READ_AT_ONCE or place + 1 == len(buckets):
                some = slice(first, place + 1)
                owners = np.repeat(buckets[some].astype(np.uint64), sizes[some] // entry)
                yield entries_of(b"".join(parts), owners, self._places)
                first, parts, size = place + 1, [], 0


class KeysOfLayout:
    """Sought keys, as the words of one layout."""

    def __init__(self, words: np.ndarray) -> None:
        self._words = words
        self._scrambled: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def scrambled(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The keys scrambled with this seed, sorted by first word, and their filter bits."""
        found = self._scrambled.get(seed)
        if found is None:
            keys = scramble(self._words, seed)
            keys = keys[np.argsort(keys[:, 0])]
            found = self._scrambled[seed] = keys, filter_bits(keys[:, 0])
        return found


def state_of(stat: os.stat_result) -> tuple[int, ...]:
    """A value that changes when the file is replaced or written to."""
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _first_of_equal(ascending: np.ndarray) -> np.ndarray:
    """True for each number that differs from the one before it. np.unique imports numpy.ma first, which takes 8 ms."""
    result = np.ones(len(ascending), bool)
    np.not_equal(ascending[1:], ascending[:-1], out=result[1:])
    return result


def _matches(entries: np.ndarray, numbers: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Row numbers of the entries whose key is among `keys`. `keys`: sorted by first word."""
    low = np.searchsorted(keys[:, 0], entries[:, 0])
    near = np.flatnonzero(keys[np.minimum(low, len(keys) - 1), 0] == entries[:, 0])
    low, held = low[near], entries[near]
    fits = np.zeros(len(near), bool)
    left = np.arange(len(near))
    while len(left):  # runs once, or more often for keys with equal first words
        fits[left] |= (keys[low[left]] == held[left]).all(axis=1)
        low[left] += 1
        left = left[low[left] < len(keys)]
        left = left[keys[low[left], 0] == held[left, 0]]
    result: np.ndarray = numbers[near[fits]]
    return result
