"""Writes one file of the key index: the keys of one data file, in buckets by the hash of their first word.

keys ─▶ scrambled ─▶ in parts, on the disk if there are many ─▶ sorted ─▶ buckets, and the summary of all
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from lakemirror.keys.key_format import (
    Places,
    entry_bytes,
    filter_bits,
    filter_places,
    header_bytes,
    salts_of,
    scramble,
)
from lakemirror.keys.key_layout import KeyLayout

MOST_IN_BUCKET = 1 << 16
"""The most rows in a bucket. A data file with more rows of one key gets no index."""

_IN_MEMORY = 32 << 20  # bytes of entries that are sorted at once
_AT_ONCE = 16 * 1024  # entries that are processed at once: they fit into the processor's cache
_MOST_PARTS = 8  # at most 2^8 files are open at once


class TooManyEqual(ValueError):
    """More rows have the same key than a bucket may hold."""


def write_key_file(
    path: Path, identity: str, rows: int, layout: KeyLayout, batches: Iterable[np.ndarray], *, seed: int | None = None,
    pause: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Writes the index of a data file with `rows` rows. `batches`: the words of its keys, in the order of its rows.

    `seed`: a secret random number; searches are faster in files with the same seed. It uses about four times
    `_IN_MEMORY` bytes; more entries are first split into temporary files. `pause` is called every few milliseconds.
    Errors: ValueError if the number of keys is not `rows`, TooManyEqual, OSError.
    """
    places = Places(rows, layout.words)
    seed = secrets.randbits(64) if seed is None else seed
    parts_bits = min(places.bits, _MOST_PARTS, max(0, (rows * 8 * (layout.words + 1) // _IN_MEMORY).bit_length()))
    with (
        path.open("w+b") as file,
        tempfile.TemporaryDirectory(prefix=".parts-", dir=path.parent) as folder,
        contextlib.closing(_Parts(Path(folder), parts_bits, rows, layout.words)) as parts,
    ):
        written = 0
        for words in batches:
            parts.add(scramble(words, seed), written)
            written += len(words)
        if written != rows:
            raise ValueError(f"{written} keys for {rows} rows")
        summary = _Summary(places, seed)
        file.seek(places.entries)
        for entries in parts:
            summary.write_part(entries, file, pause)
        text = summary.bytes()
        file.seek(0)
        file.write(header_bytes(identity, rows, seed, layout, zlib.crc32(text)))
        file.write(text)


class _Summary:
    """The summary of a file that is being written. Its parts are written in the order of their first words."""

    def __init__(self, places: Places, seed: int) -> None:
        self._places, self._seed = places, seed
        self._counts = np.zeros(places.buckets, np.int64)
        self._sums = salts_of(np.arange(places.buckets, dtype=np.uint64), seed).astype(np.uint32)  # of empty ones
        self._filter = np.zeros(places.filter_words, np.uint64)

    def write_part(self, entries: np.ndarray, file: IO[bytes], pause: Callable[[], None]) -> None:
        """Writes the entries of a part (uint64: words, row number) to the file. Error: TooManyEqual."""
        width = entries.shape[1] - 1
        shift = np.uint64(64 - self._places.bits)
        order = _order(entries[:, 0])
        begin = 0
        while begin < len(order):
            pause()
            some = entries.take(order[begin : begin + _AT_ONCE], axis=0)
            bucket = (some[:, 0] >> shift).astype(np.int64)
            end = begin + len(some)
            if end < len(order):  # do not split a bucket between two steps
                end = begin + int(np.searchsorted(bucket, bucket[-1]))
                if end == begin:
                    end = begin + _end_of_bucket(entries, order[begin:], shift)
                    some = entries.take(order[begin:end], axis=0)
                    bucket = (some[:, 0] >> shift).astype(np.int64)
            some, bucket = some[: end - begin], bucket[: end - begin]
            data = entry_bytes(some[:, :width], some[:, width], self._places)
            file.write(data)
            self._add(bucket, memoryview(data))
            self._add_to_filter(some[:, 0])
            begin = end

    def bytes(self) -> bytes:
        """The summary's bytes in the file."""
        begins = np.zeros(self._places.buckets + 1, np.uint32)
        np.cumsum(self._counts, out=begins[1:])
        return begins.tobytes() + self._sums.tobytes() + self._filter.tobytes()

    def _add(self, bucket: np.ndarray, data: memoryview) -> None:
        starts = np.flatnonzero(np.diff(bucket, prepend=-1))
        numbers = bucket[starts]
        counts = np.diff(starts, append=len(bucket))
        self._counts[numbers] = counts
        ends = (self._places.entry * np.append(starts, len(bucket))).tolist()
        salts = salts_of(numbers.astype(np.uint64), self._seed).tolist()
        self._sums[numbers] = [zlib.crc32(data[ends[i] : ends[i + 1]], salt) for i, salt in enumerate(salts)]

    def _add_to_filter(self, first: np.ndarray) -> None:
        place, bits = filter_places(first, len(self._filter)), filter_bits(first)
        starts = np.flatnonzero(np.diff(place, prepend=place[0] + np.uint64(1)))
        self._filter[place[starts]] |= np.bitwise_or.reduceat(bits, starts)


def _order(first: np.ndarray) -> np.ndarray:
    """Positions (int64) that sort the first words, by their upper bits only."""
    rank = np.uint64((1 << max(1, len(first) - 1).bit_length()) - 1)
    packed = first & ~rank
    packed |= np.arange(len(first), dtype=np.uint64)
    packed.sort()
    packed &= rank
    return packed.view(np.int64)


def _end_of_bucket(entries: np.ndarray, order: np.ndarray, shift: np.uint64) -> int:
    """The number of entries at the start of `order` that are in the first one's bucket. Error: TooManyEqual."""
    some = entries[order[: MOST_IN_BUCKET + 1], 0] >> shift
    end = int(np.searchsorted(some, some[0], "right"))
    if end > MOST_IN_BUCKET:
        raise TooManyEqual("more rows have the same key than a bucket may hold")
    return end


class _Parts:
    """Entries (uint64: words, row number) in parts, by the top bits of their first word.

    A single part is in memory; several parts are in one file each.
    """

    def __init__(self, folder: Path, bits: int, rows: int, words: int) -> None:
        self.bits = bits
        self._words = words
        self._held = np.empty((0 if bits else rows, words + 1), np.uint64)
        self._files = [(folder / str(number)).open("w+b") for number in range(1 << bits)] if bits else []

    def add(self, words: np.ndarray, first_row: int) -> None:
        """Adds the keys of consecutive rows. ValueError if there are more than `rows`."""
        numbers = np.arange(first_row, first_row + len(words), dtype=np.uint64)
        if not self._files:
            if first_row + len(words) > len(self._held):
                raise ValueError(f"more than {len(self._held)} keys")
            self._held[first_row : first_row + len(words), :-1] = words
            self._held[first_row : first_row + len(words), -1] = numbers
            return
        part = words[:, 0] >> np.uint64(64 - self.bits)
        entries = np.column_stack([words, numbers]).take(np.argsort(part), axis=0)
        ends = np.cumsum(np.bincount(part.astype(np.int64), minlength=len(self._files))).tolist()
        for begin, end, file in zip([0, *ends[:-1]], ends, self._files, strict=True):
            file.write(entries[begin:end].tobytes())

    def __iter__(self) -> Iterator[np.ndarray]:
        if not self._files:
            yield self._held
        for file in self._files:
            file.seek(0)
            yield np.frombuffer(file.read(), np.uint64).reshape(-1, self._words + 1)

    def close(self) -> None:
        for file in self._files:
            file.close()
