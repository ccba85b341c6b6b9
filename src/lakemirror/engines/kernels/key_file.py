"""One file of the key index: where the keys of one data file are, as a static hash table that is mapped into memory.

    header │ directory │ tags │ high bits │ rest │ row numbers │ checksums, one for each block of 1 KiB

The first word of a key is mixed by a permutation: its top bits choose a bucket of about eight keys, its low bits are
the tag, what is left is stored. So entries hold the keys themselves, and a miss reads two places of the file.
Each block is held against its checksum when it is first touched; the header says what the file was made of.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from lakemirror.engines.kernels.key_layout import ColumnLayout, KeyLayout
from lakemirror.engines.kernels.key_values import mixed

_MAGIC = b"LMKEYS01"
_HEADER = 4096
_BLOCK = 1024
_KEYS_A_BUCKET = 8
_IN_MEMORY = 32 << 20  # bytes of entries that are sorted at once
_WINDOW = 1 << 20  # entries that are compared at once
_U32 = np.uint64(0xFFFFFFFF)
MOST_ROWS = 1 << 32


class Damaged(Exception):
    """The file is not what was written, or belongs to something else."""


@dataclass(frozen=True)
class _Places:
    """Where the parts of a file begin, in bytes behind the header."""

    rows: int
    words: int

    @property
    def bits(self) -> int:
        """Buckets are 2^bits."""
        return max(1, (self.rows // _KEYS_A_BUCKET).bit_length())

    @property
    def high_bytes(self) -> int:
        return 2 if self.bits >= 16 else 4

    @property
    def begins(self) -> tuple[int, ...]:
        """Of directory, tags, high bits, rest, row numbers; then where the last one ends."""
        sizes = (
            4 * ((1 << self.bits) + 1),
            4 * self.rows,
            self.high_bytes * self.rows,
            8 * (self.words - 1) * self.rows,
            4 * self.rows,
        )
        begins = [0]
        for size in sizes:
            begins.append(-(-(begins[-1] + size) // _BLOCK) * _BLOCK)
        return tuple(begins)

    @property
    def blocks(self) -> int:
        return self.begins[-1] // _BLOCK

    @property
    def size(self) -> int:
        """Bytes of the complete file."""
        return _HEADER + self.begins[-1] + 4 * self.blocks


def size_of(rows: int, layout: KeyLayout) -> int:
    """Bytes that the index of a data file takes."""
    return _Places(rows, layout.words).size


def write_key_file(
    path: Path, identity: str, rows: int, layout: KeyLayout, batches: Iterable[np.ndarray], *,
    in_memory: int = _IN_MEMORY,
) -> None:  # fmt: skip
    """Writes the index of a data file with `rows` rows. `batches`: words of its keys in the order of its rows.

    Memory: some times `in_memory` bytes; entries beyond that are put into parts in files beside it first. ValueError
    where there are not as many keys as rows. OSError.
    """
    places = _Places(rows, layout.words)
    seed = secrets.randbits(64)
    parts_bits = min(places.bits, max(0, (rows * 8 * (layout.words + 1) // in_memory).bit_length()))
    with (
        path.open("w+b") as file,
        tempfile.TemporaryDirectory(prefix=".parts-", dir=path.parent) as folder,
        contextlib.closing(_Parts(Path(folder), parts_bits)) as parts,
    ):
        written = 0
        for words in batches:
            parts.add(_scrambled(words, seed), written)
            written += len(words)
        if written != rows:
            raise ValueError(f"{written} keys of {rows} rows")
        _write_entries(file, places, parts)
        sums = _checksums(file, places, seed)
        file.write(sums)
        file.seek(0)
        file.write(_header_text(identity, rows, seed, layout, sums))


def identity_of(path: Path) -> str:
    """What the index at `path` was made of. Damaged, OSError."""
    with path.open("rb") as file:
        return str(_header(file)["identity"])


class KeyFile:
    """An index that is open. Damaged where it is none, or not of `identity`; OSError."""

    def __init__(self, path: Path, identity: str) -> None:
        with path.open("rb") as file:
            self.state = state_of(os.fstat(file.fileno()))
            header = _header(file)
            if header["identity"] != identity:
                raise Damaged(f"{path.name} is the index of another file")
            try:
                self.rows, self._seed = int(header["rows"]), int(header["seed"])
                self.layout = KeyLayout(tuple(ColumnLayout(**column) for column in header["columns"]))
            except (KeyError, TypeError, ValueError) as error:
                raise Damaged(f"{path.name}: {error}") from error
            self._places = _Places(self.rows, self.layout.words)
            if self.state[1] != self._places.size:
                raise Damaged(f"{path.name} is cut short")
            self._map = np.memmap(file, np.uint8, "r")
        begin, end = _HEADER + self._places.begins[-1], self._places.size
        self._sums = np.array(self._map[begin:end]).view(np.uint32)
        if zlib.crc32(self._sums.tobytes()) != header.get("sums"):
            raise Damaged(f"{path.name}: its checksums are damaged")
        self._is_good = np.zeros(self._places.blocks, bool)

    def rows_with(self, words: np.ndarray) -> np.ndarray:
        """Numbers of the rows (int64, ascending) that hold one of these keys, in the words of `layout`.

        Where the layout is not exact, they only may hold one. Damaged.
        """
        first = _scrambled(words, self._seed)
        word, rest = first[:, 0], first[:, 1:]
        directory, tags, highs, others, numbers, _ = self._places.begins
        bucket = (word >> np.uint64(64 - self._places.bits)).astype(np.int64)
        self._check(directory + 4 * bucket)
        self._check(directory + 4 * bucket + 4)
        table = self._part(directory, np.uint32, (1 << self._places.bits) + 1)
        begin, end = table[bucket].astype(np.int64), table[bucket + 1].astype(np.int64)
        counts = end - begin
        if len(counts) and (counts.min() < 0 or end.max() > self.rows):
            raise Damaged("a bucket is out of bounds")
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        found = []
        for start in range(0, total, _WINDOW):
            at = np.arange(start, min(total, start + _WINDOW))
            owner = (
                np.repeat(np.arange(len(counts)), counts) if total <= _WINDOW else np.searchsorted(ends, at, "right")
            )
            at += (begin - ends + counts)[owner]
            for place, kind, wanted in (
                (tags, "u4", word & _U32),
                (highs, f"u{self._places.high_bytes}", _high(word, self._places.high_bytes)),
            ):
                self._check(place + at * np.dtype(kind).itemsize)
                fits = self._part(place, kind, self.rows)[at] == wanted[owner]
                at, owner = at[fits], owner[fits]
            for column in range(rest.shape[1]):
                place = others + 8 * (at * rest.shape[1] + column)
                self._check(place)
                fits = (
                    self._part(others, "u8", self.rows * rest.shape[1])[at * rest.shape[1] + column]
                    == rest[owner, column]
                )
                at, owner = at[fits], owner[fits]
            self._check(numbers + 4 * at)
            found.append(self._part(numbers, "u4", self.rows)[at].astype(np.int64))
        result: np.ndarray = np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)
        if len(result) and result[-1] >= self.rows:
            raise Damaged("a row number is out of bounds")
        return result

    def _part(self, begin: int, kind: Any, count: int) -> np.ndarray:
        kind = np.dtype(kind)
        begin += _HEADER
        return np.asarray(self._map)[begin : begin + kind.itemsize * count].view(kind)

    def _check(self, places: np.ndarray) -> None:
        """Holds the blocks of these bytes against their checksums, those that were not before."""
        blocks = places // _BLOCK
        touched = blocks[~self._is_good[blocks]]
        if not len(touched):
            return
        for block in np.unique(touched).tolist():
            begin = _HEADER + block * _BLOCK
            if _checksum(self._map[begin : begin + _BLOCK], block, self._seed) != self._sums[block]:
                raise Damaged(f"block {block} is damaged")
            self._is_good[block] = True


def state_of(stat: os.stat_result) -> tuple[int, ...]:
    """What changes with a file that is replaced or written to."""
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


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


def _header_text(identity: str, rows: int, seed: int, layout: KeyLayout, sums: bytes) -> bytes:
    columns = [asdict(column) for column in layout.columns]
    header = {"identity": identity, "rows": rows, "seed": seed, "columns": columns, "sums": zlib.crc32(sums)}
    text = json.dumps(header).encode()
    if len(text) > _HEADER - 16:
        raise ValueError("the header is too long")
    head = _MAGIC + len(text).to_bytes(4, "little") + zlib.crc32(text).to_bytes(4, "little") + text
    return head.ljust(_HEADER, b"\0")


def _scrambled(words: np.ndarray, seed: int) -> np.ndarray:
    """The words with the first one mixed with all others: equal exactly where the words are. The seed is the file's
    own, so that nobody can choose keys that share a bucket.
    """
    first = words[:, 0] ^ np.uint64(seed)
    with np.errstate(over="ignore"):
        for column in range(1, words.shape[1]):
            first = first ^ mixed(words[:, column] + np.uint64(seed ^ column))
    result = np.empty_like(words)
    result[:, 0] = mixed(first)
    result[:, 1:] = words[:, 1:]
    return result


def _high(word: np.ndarray, width: int) -> np.ndarray:
    """The bits of the first word that neither bucket nor tag says."""
    return (word >> np.uint64(32)) & (np.uint64(0xFFFF) if width == 2 else _U32)


class _Parts:
    """Entries by the top bits of their first word: in memory, or in one file for each part where they are several."""

    def __init__(self, folder: Path, bits: int) -> None:
        self.bits = bits
        self._held: list[np.ndarray] = []
        self._files = [(folder / str(number)).open("w+b") for number in range(1 << bits)] if bits else []

    def add(self, words: np.ndarray, first_row: int) -> None:
        numbers = np.arange(first_row, first_row + len(words), dtype=np.uint64)
        entries = np.column_stack([words, numbers])
        if not self._files:
            self._held.append(entries)
            return
        part = (entries[:, 0] >> np.uint64(64 - self.bits)).astype(np.int64)
        order = np.argsort(part, kind="stable")
        entries = entries[order]
        ends = np.cumsum(np.bincount(part, minlength=len(self._files)))
        for begin, end, file in zip([0, *ends[:-1]], ends, self._files, strict=True):
            file.write(entries[begin:end].tobytes())

    def __iter__(self) -> Any:
        if not self._files:
            yield np.concatenate(self._held) if self._held else None
            self._held = []
            return
        for file in self._files:
            file.seek(0)
            data = file.read()
            yield np.frombuffer(data, np.uint64) if data else None

    def close(self) -> None:
        for file in self._files:
            file.close()


def _write_entries(file: IO[bytes], places: _Places, parts: _Parts) -> None:
    directory, tags, highs, others, numbers, end = (_HEADER + begin for begin in places.begins)
    width, done = places.words + 1, 0
    buckets = 1 << (places.bits - parts.bits)
    file.truncate(end)
    for part, raw in enumerate(parts):
        entries = np.zeros((0, width), np.uint64) if raw is None else raw.reshape(-1, width)
        entries = entries[np.argsort(entries[:, 0])]
        word = entries[:, 0]
        bucket = (word >> np.uint64(64 - places.bits)).astype(np.int64) - part * buckets
        begins = done + np.cumsum(np.bincount(bucket, minlength=buckets)) - np.bincount(bucket, minlength=buckets)
        for begin, item, values in (
            (directory, 4 * part * buckets, begins.astype(np.uint32)),
            (tags, 4 * done, (word & _U32).astype(np.uint32)),
            (highs, places.high_bytes * done, _high(word, places.high_bytes).astype(f"u{places.high_bytes}")),
            (others, 8 * (places.words - 1) * done, np.ascontiguousarray(entries[:, 1:-1])),
            (numbers, 4 * done, entries[:, -1].astype(np.uint32)),
        ):
            file.seek(begin + item)
            file.write(values.tobytes())
        done += len(entries)
    file.seek(directory + 4 * (1 << places.bits))
    file.write(np.uint32(done).tobytes())
    file.flush()


def _checksums(file: IO[bytes], places: _Places, seed: int) -> bytes:
    file.seek(_HEADER)
    sums = np.zeros(places.blocks, np.uint32)
    for first in range(0, places.blocks, 1024):
        data = memoryview(file.read(_BLOCK * min(1024, places.blocks - first)))
        for place in range(0, len(data), _BLOCK):
            block = first + place // _BLOCK
            sums[block] = _checksum(data[place : place + _BLOCK], block, seed)
    return sums.tobytes()


def _checksum(data: Any, block: int, seed: int) -> int:
    """Of a block at this place in this file: another block's does not fit."""
    return zlib.crc32(data, (block * 0x9E3779B1 ^ seed) & 0xFFFFFFFF)
