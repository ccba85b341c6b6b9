"""One file of the key index: a hash table on the disk, from the keys of one data file to their row numbers.

    header │ summary: begins of buckets, their checksums, filter │ buckets of about 64 entries: key, row number

The first word of a key is scrambled by a permutation, and its top bits choose the bucket. So an entry need not store
these bits; it stores the row number in their place, and in one more byte.

An open file holds only its summary in memory, about 1.6 bytes per row. The filter rules out most keys that the file
does not have. For the other keys, their buckets are read and checked against their checksums. The file is not mapped
into memory, so that a file that is too short, or a failing disk, gives an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from lakemirror.engines.kernels.key_layout import ColumnLayout, KeyLayout
from lakemirror.engines.kernels.key_values import mixed

MOST_ROWS = 1 << 32
MOST_IN_BUCKET = 1 << 16
"""The most rows in a bucket. A data file with more rows of one key gets no index."""

_MAGIC = b"LMKEYS04"
_HEADER = 4096
_KEYS_A_BUCKET = 64
_FILTER_BITS = 12  # per row: 1.0 % of the keys that the file does not have pass the filter
_IN_MEMORY = 32 << 20  # bytes of entries that are sorted at once
_AT_ONCE = 16 * 1024  # entries that are processed at once: they fit into the processor's cache
_READ_AT_ONCE = 4 << 20  # bytes of buckets that are searched at once
_MOST_PARTS = 8  # at most 2^8 files are open at once
_U32 = np.uint64(0xFFFFFFFF)


class Damaged(Exception):
    """The file is damaged, or is the index of another data file."""


class TooManyEqual(ValueError):
    """More rows have the same key than a bucket may hold."""


@dataclass(frozen=True)
class _Places:
    """The positions and sizes of a file's parts, in bytes."""

    rows: int
    words: int

    @property
    def bits(self) -> int:
        """The number of buckets is 2^bits."""
        return max(1, (self.rows // _KEYS_A_BUCKET).bit_length())

    @property
    def buckets(self) -> int:
        return 1 << self.bits

    @property
    def filter_words(self) -> int:
        return max(1, self.rows * _FILTER_BITS // 64)

    @property
    def entry(self) -> int:
        """Bytes of one entry: a key and its row number."""
        return 8 * self.words + 1

    @property
    def summary(self) -> int:
        """Bytes of the summary, which follows the header."""
        return 4 * (self.buckets + 1) + 4 * self.buckets + 8 * self.filter_words

    @property
    def entries(self) -> int:
        """The position of the first entry."""
        return _HEADER + self.summary

    @property
    def size(self) -> int:
        """Bytes of the complete file."""
        return self.entries + self.entry * self.rows


def size_of(rows: int, layout: KeyLayout) -> int:
    """The bytes that the index of a data file takes."""
    return _Places(rows, layout.words).size


def write_key_file(
    path: Path, identity: str, rows: int, layout: KeyLayout, batches: Iterable[np.ndarray], *, seed: int | None = None,
    in_memory: int = _IN_MEMORY, pause: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Writes the index of a data file with `rows` rows. `batches`: the words of its keys, in the order of its rows.

    `seed`: a secret random number; searches are faster in files with the same seed. It uses about four times
    `in_memory` bytes; more entries are first split into temporary files. `pause` is called every few milliseconds.
    Errors: ValueError if the number of keys is not `rows`, TooManyEqual, OSError.
    """
    places = _Places(rows, layout.words)
    seed = secrets.randbits(64) if seed is None else seed
    parts_bits = min(places.bits, _MOST_PARTS, max(0, (rows * 8 * (layout.words + 1) // in_memory).bit_length()))
    with (
        path.open("w+b") as file,
        tempfile.TemporaryDirectory(prefix=".parts-", dir=path.parent) as folder,
        contextlib.closing(_Parts(Path(folder), parts_bits, rows, layout.words)) as parts,
    ):
        written = 0
        for words in batches:
            parts.add(_scrambled(words, seed), written)
            written += len(words)
        if written != rows:
            raise ValueError(f"{written} keys for {rows} rows")
        summary = _Summary(places, seed)
        file.seek(places.entries)
        for entries in parts:
            summary.write_part(entries, file, pause)
        text = summary.bytes()
        file.seek(0)
        file.write(_header_text(identity, rows, seed, layout, zlib.crc32(text)))
        file.write(text)


def identity_of(path: Path) -> str:
    """The identity of the data file whose index is at `path`. Errors: Damaged, OSError."""
    with path.open("rb") as file:
        return str(_header(file)["identity"])


class KeyFile:
    """An index with its summary in memory. Errors: Damaged, also if it is not the index of `identity`; OSError."""

    def __init__(self, path: Path, identity: str) -> None:
        self._path = path
        with path.open("rb", buffering=0) as file:
            self.state = state_of(os.fstat(file.fileno()))
            header = _header(file)
            if header["identity"] != identity:
                raise Damaged(f"{path.name} is the index of another file")
            try:
                self.rows, self.seed = int(header["rows"]), int(header["seed"])
                self.layout = KeyLayout(tuple(ColumnLayout(**column) for column in header["columns"]))
            except (KeyError, TypeError, ValueError) as error:
                raise Damaged(f"{path.name}: {error}") from error
            self._places = places = _Places(self.rows, self.layout.words)
            if self.state[1] != places.size:
                raise Damaged(f"{path.name} does not have its full size")
            summary = os.pread(file.fileno(), places.summary, _HEADER)
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
        place = _filter_places(keys[:, 0], len(self._filter))
        keys = keys[(self._filter[place] & bits) == bits]
        if not len(keys):
            return np.zeros(0, np.int64)
        bucket = (keys[:, 0] >> np.uint64(64 - self._places.bits)).astype(np.int64)
        buckets = bucket[np.flatnonzero(np.diff(bucket, prepend=-1))]
        with self._path.open("rb", buffering=0) as file:
            if state_of(os.fstat(file.fileno())) != self.state:
                return None
            found = [_matches(*entries, keys) for entries in self._read(file.fileno(), buckets)]
        result: np.ndarray = np.unique(np.concatenate(found)).astype(np.int64)
        if len(result) and result[-1] >= self.rows:
            raise Damaged("a row number is out of bounds")
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
        salts = _salts(buckets.astype(np.uint64), self.seed)
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
                yield _unpacked(b"".join(parts), owners, self._places)
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
            keys = _scrambled(self._words, seed)
            keys = keys[np.argsort(keys[:, 0])]
            found = self._scrambled[seed] = keys, _filter_bits(keys[:, 0])
        return found


def state_of(stat: os.stat_result) -> tuple[int, ...]:
    """A value that changes when the file is replaced or written to."""
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _packed(words: np.ndarray, numbers: np.ndarray, places: _Places) -> bytes:
    """Entries as bytes. A row number's lowest byte follows the key; the rest replaces the bits of the bucket."""
    shift = np.uint64(64 - places.bits)
    packed = np.empty((len(words), places.entry), np.uint8)
    packed[:, :-1] = np.ascontiguousarray(words).view(np.uint8)
    first = (words[:, 0] & ((np.uint64(1) << shift) - np.uint64(1))) | ((numbers >> np.uint64(8)) << shift)
    packed[:, :8] = first.view(np.uint8).reshape(-1, 8)
    packed[:, -1] = numbers & np.uint64(255)
    return packed.tobytes()


def _unpacked(entries: bytes, buckets: np.ndarray, places: _Places) -> tuple[np.ndarray, np.ndarray]:
    """Words and row numbers (uint64) of entries. `buckets`: the bucket of each entry."""
    shift = np.uint64(64 - places.bits)
    packed = np.frombuffer(entries, np.uint8).reshape(-1, places.entry)
    words = packed[:, :-1].copy().view(np.uint64)
    numbers = ((words[:, 0] >> shift) << np.uint64(8)) | packed[:, -1]
    words[:, 0] &= (np.uint64(1) << shift) - np.uint64(1)
    words[:, 0] |= buckets << shift
    return words, numbers


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


def _header(file: IO[bytes]) -> dict[str, Any]:
    head = file.read(_HEADER)
    size = int.from_bytes(head[8:12], "little")
    text = head[16 : 16 + size]
    if (
        len(head) != _HEADER
        or head[:8] != _MAGIC
        or len(text) != size
        or not text
        or zlib.crc32(text) != int.from_bytes(head[12:16], "little")
    ):
        raise Damaged(f"{file.name} is no key index")
    header = json.loads(text)
    if not isinstance(header, dict) or "identity" not in header:
        raise Damaged(f"{file.name} is no key index")
    return header


def _header_text(identity: str, rows: int, seed: int, layout: KeyLayout, summary: int) -> bytes:
    columns = [asdict(column) for column in layout.columns]
    header = {"identity": identity, "rows": rows, "seed": seed, "columns": columns, "summary": summary}
    text = json.dumps(header).encode()
    if len(text) > _HEADER - 16:
        raise ValueError("the header is too long")
    head = _MAGIC + len(text).to_bytes(4, "little") + zlib.crc32(text).to_bytes(4, "little") + text
    return head.ljust(_HEADER, b"\0")


def _scrambled(words: np.ndarray, seed: int) -> np.ndarray:
    """The words with the first one scrambled by all others; rows stay equal exactly if they were equal.

    Because the seed is secret, nobody can choose keys that all fall into one bucket.
    """
    result = np.empty_like(words)
    result[:, 1:] = words[:, 1:]
    for begin in range(0, len(words), _AT_ONCE):
        part = words[begin : begin + _AT_ONCE]
        first = part[:, 0] ^ np.uint64(seed)
        with np.errstate(over="ignore"):
            for column in range(1, words.shape[1]):
                first = first ^ mixed(part[:, column] + np.uint64(seed ^ column))
        result[begin : begin + _AT_ONCE, 0] = mixed(first)
    return result


def _filter_bits(first: np.ndarray) -> np.ndarray:
    """The five filter bits of each first word, as one word each."""
    six = np.uint64(63)
    one = np.uint64(1)
    bits = one << (first & six)
    for shift in (6, 12, 18, 24):
        bits |= one << ((first >> np.uint64(shift)) & six)
    return bits


def _filter_places(first: np.ndarray, size: int) -> np.ndarray:
    """The position of the filter word that holds the bits of each first word. It rises with the first words."""
    result: np.ndarray = ((first >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32)
    return result


class _Summary:
    """The summary of a file that is being written. Its parts are written in the order of their first words."""

    def __init__(self, places: _Places, seed: int) -> None:
        self._places, self._seed = places, seed
        self._counts = np.zeros(places.buckets, np.int64)
        self._sums = _salts(np.arange(places.buckets, dtype=np.uint64), seed).astype(np.uint32)  # of empty ones
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
            data = _packed(some[:, :width], some[:, width], self._places)
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
        salts = _salts(numbers.astype(np.uint64), self._seed).tolist()
        self._sums[numbers] = [zlib.crc32(data[ends[i] : ends[i + 1]], salt) for i, salt in enumerate(salts)]

    def _add_to_filter(self, first: np.ndarray) -> None:
        place, bits = _filter_places(first, len(self._filter)), _filter_bits(first)
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


def _salts(buckets: np.ndarray, seed: int) -> np.ndarray:
    """The start value of each bucket's checksum (uint64), so that one bucket's bytes fail as another bucket."""
    with np.errstate(over="ignore"):
        result: np.ndarray = (buckets * np.uint64(0x9E3779B1) ^ np.uint64(seed)) & _U32
    return result


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
