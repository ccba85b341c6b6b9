"""Finds keys in the open index files of many data files, with few calls for each file.

    keys ─▶ filter of each file ─▶ the buckets of the keys that pass ─▶ all buckets of all files compared at once

An entry of a bucket holds the key, without the bits that the bucket says, and the row number (`key_format`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from lakemirror.engines.kernels.key_file import KeyFile, KeysOfLayout, Replaced
from lakemirror.engines.kernels.key_format import Damaged
from lakemirror.engines.kernels.key_layout import KeyLayout

_READ_AT_ONCE = 4 << 20  # bytes of buckets that are compared at once
_BITS_OF_ROW = np.uint64(32)  # a data file with an index has fewer than 2^32 rows
_ROW = np.uint64((1 << 32) - 1)

Unusable: TypeAlias = Damaged | Replaced | OSError
"""Why an index file cannot be used."""


def rows_in(files: Sequence[KeyFile], sought: Callable[[KeyLayout], KeysOfLayout]) -> list[np.ndarray | Unusable]:
    """For each index file the row numbers (int64, ascending) of the rows with a sought key, or why it cannot be used.

    `sought` gives the keys in a layout. If a file's layout is not exact, its rows may also have other keys.
    """
    search, unusable = _Search(), dict[int, Unusable]()
    for place, file in enumerate(files):
        keys = file.passing(sought(file.layout))
        if len(keys):
            try:
                search.add(place, file, keys)
            except (Damaged, Replaced, OSError) as error:
                unusable[place] = error
    found = search.rows(len(files))
    for place in search.beyond:
        unusable.setdefault(place, Damaged("a row number is out of bounds"))
    return [unusable.get(place, rows) for place, rows in enumerate(found)]


class _Part(NamedTuple):
    """Keys of one file, whose buckets are in memory."""

    place: int
    file: KeyFile
    keys: np.ndarray


class _Search:
    """Compares each key with the entries of its bucket. `beyond`: places of files with an impossible row number."""

    def __init__(self) -> None:
        self.beyond: set[int] = set()
        self._parts: list[_Part] = []
        self._buckets: list[bytes] = []  # one for each key of the parts
        self._size = 0
        self._found: list[np.ndarray] = []  # the place of the file and the row number, in one number

    def add(self, place: int, file: KeyFile, keys: np.ndarray) -> None:
        """Adds keys that passed the filter of a file. `keys`: sorted by first word.

        Errors: as `KeyFile.buckets`; then `rows` may lack rows of this file.
        """
        if self._parts and self._parts[0].keys.shape[1] != keys.shape[1]:
            self._compare()
        while len(keys):
            read = file.buckets(keys[:, 0], _READ_AT_ONCE)
            self._buckets += read
            self._parts.append(_Part(place, file, keys[: len(read)]))
            self._size += sum(map(len, read))
            keys = keys[len(read) :]
            if self._size >= _READ_AT_ONCE:
                self._compare()

    def rows(self, files: int) -> list[np.ndarray]:
        """The row numbers (int64, ascending) that were found in each file, in the order of their places."""
        self._compare()
        found = np.sort(np.concatenate([np.zeros(0, np.uint64), *self._found]))
        first = np.ones(len(found), bool)
        np.not_equal(found[1:], found[:-1], out=first[1:])
        found = found[first]
        ends = np.searchsorted(found, np.arange(1, files + 1, dtype=np.uint64) << _BITS_OF_ROW).tolist()
        rows = (found & _ROW).astype(np.int64)
        return [rows[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    def _compare(self) -> None:
        parts, buckets = self._parts, self._buckets
        self._parts, self._buckets, self._size = [], [], 0
        if not parts:
            return
        keys = np.concatenate([part.keys for part in parts])
        counts = [len(part.keys) for part in parts]
        entry = 8 * keys.shape[1] + 1
        entries = np.frombuffer(b"".join(buckets), np.uint8).reshape(-1, entry)
        sizes = np.fromiter(map(len, buckets), np.int64, len(buckets)) // entry
        shifts = np.repeat(np.array([part.file.shift for part in parts], np.uint64), counts)
        stored = (np.uint64(1) << shifts) - np.uint64(1)  # the bits of a first word that an entry stores
        first = np.ascontiguousarray(entries[:, :8]).view(np.uint64)[:, 0]
        differing = (first ^ np.repeat(keys[:, 0], sizes)) & np.repeat(stored, sizes)
        near = np.flatnonzero(differing == 0)
        key = np.searchsorted(np.cumsum(sizes), near, "right")
        others = np.ascontiguousarray(entries[near, 8:-1]).view(np.uint64).reshape(len(near), keys.shape[1] - 1)
        fits = (others == keys[key, 1:]).all(axis=1)
        near, key = near[fits], key[fits]
        rows = ((first[near] >> shifts[key]) << np.uint64(8)) | entries[near, -1]
        places = np.repeat(np.array([part.place for part in parts], np.uint64), counts)[key]
        most = np.repeat(np.array([part.file.rows for part in parts], np.uint64), counts)[key]
        self.beyond.update(places[rows >= most].tolist())
        self._found.append((places << _BITS_OF_ROW) | (rows & _ROW))


__all__ = ["Unusable", "rows_in"]
