"""The format of a key index's file, which `key_file` and `key_search` read and `write_keys` writes.

    header │ summary: begins of buckets, their checksums, filter │ buckets of about 64 entries: key, row number

The first word of a key is scrambled by a permutation, and its top bits choose the bucket. So an entry need not store
these bits; it stores the row number in their place, and in one more byte.
"""

from __future__ import annotations

import json
import zlib
from typing import IO, Any, NamedTuple

import numpy as np

from lakemirror.keys.key_layout import KeyLayout
from lakemirror.keys.key_values import mixed

MOST_ROWS = 1 << 32
HEADER = 4096
"""Bytes of the header; the summary follows."""

FAMILY = b"LMKEYS"
"""The first bytes of a key index of any version."""

_MAGIC = FAMILY + b"04"
_KEYS_A_BUCKET = 64
_FILTER_BITS = 12  # per row: 1.0 % of the keys that the file does not have pass the filter
_AT_ONCE = 16 * 1024  # entries that are processed at once: they fit into the processor's cache
_U32 = np.uint64(0xFFFFFFFF)


class Damaged(Exception):
    """The file is damaged, or is the index of another data file."""


class Places(NamedTuple):
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
        return HEADER + self.summary

    @property
    def size(self) -> int:
        """Bytes of the complete file."""
        return self.entries + self.entry * self.rows


def size_of(rows: int, layout: KeyLayout) -> int:
    """The bytes that the index of a data file takes."""
    return Places(rows, layout.words).size


def header_of(file: IO[bytes], magic: bytes = _MAGIC, size: int = HEADER, kind: str = "key index") -> dict[str, Any]:
    """The header of a file of the cache folder. `magic`: its first 8 bytes; `size`: bytes of the header; `kind`: of
    the file. Damaged."""
    head = file.read(size)
    length = int.from_bytes(head[8:12], "little")
    text = head[16 : 16 + length]
    is_whole = len(head) == size and len(text) == length and zlib.crc32(text) == int.from_bytes(head[12:16], "little")
    header = json.loads(text) if is_whole and head[:8] == magic and text else None
    if not isinstance(header, dict) or "identity" not in header:
        raise Damaged(f"{file.name} is no {kind}")
    return header


def framed(header: dict[str, Any], magic: bytes, size: int) -> bytes:
    """The header as bytes, which `header_of` reads. ValueError if it is too long."""
    text = json.dumps(header).encode()
    if len(text) > size - 16:
        raise ValueError("the header is too long")
    head = magic + len(text).to_bytes(4, "little") + zlib.crc32(text).to_bytes(4, "little") + text
    return head.ljust(size, b"\0")


def header_bytes(identity: str, rows: int, seed: int, layout: KeyLayout, summary: int) -> bytes:
    columns = [column._asdict() for column in layout.columns]
    header = {"identity": identity, "rows": rows, "seed": seed, "columns": columns, "summary": summary}
    return framed(header, _MAGIC, HEADER)


def entry_bytes(words: np.ndarray, numbers: np.ndarray, places: Places) -> bytes:
    """Entries as bytes. A row number's lowest byte follows the key; the rest replaces the bits of the bucket."""
    shift = np.uint64(64 - places.bits)
    packed = np.empty((len(words), places.entry), np.uint8)
    packed[:, :-1] = np.ascontiguousarray(words).view(np.uint8)
    first = (words[:, 0] & ((np.uint64(1) << shift) - np.uint64(1))) | ((numbers >> np.uint64(8)) << shift)
    packed[:, :8] = first.view(np.uint8).reshape(-1, 8)
    packed[:, -1] = numbers & np.uint64(255)
    return packed.tobytes()


def scramble(words: np.ndarray, seed: int) -> np.ndarray:
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


def filter_bits(first: np.ndarray) -> np.ndarray:
    """The five filter bits of each first word, as one word each."""
    six = np.uint64(63)
    one = np.uint64(1)
    bits = one << (first & six)
    for shift in (6, 12, 18, 24):
        bits |= one << ((first >> np.uint64(shift)) & six)
    return bits


def filter_places(first: np.ndarray, size: int) -> np.ndarray:
    """The position of the filter word that holds the bits of each first word. It rises with the first words."""
    result: np.ndarray = ((first >> np.uint64(32)) * np.uint64(size)) >> np.uint64(32)
    return result


def salts_of(buckets: np.ndarray, seed: int) -> np.ndarray:
    """The start value of each bucket's checksum (uint64), so that one bucket's bytes fail as another bucket."""
    with np.errstate(over="ignore"):
        result: np.ndarray = (buckets * np.uint64(0x9E3779B1) ^ np.uint64(seed)) & _U32
    return result
