"""Given rows of flat columns of a Parquet file, read by the pages that they are in.

    rows ─▶ pages ─▶ their bytes, neighbours together ─▶ a small file in memory for each column ─▶ Arrow ─▶ the rows

The small file has the pages as they are, with their dictionary, and a footer of ours. So every encoding, compression
and type is decoded by Arrow. Its cost is that of the pages, however many others the file has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.parquet.copied_chunks import MAGIC
from lakemirror.parquet.page_index import ChunkPages, Numbers, PagesOfFile, ReadPieces, varints
from lakemirror.parquet.thrift import BINARY, I32, I64, LIST, STRUCT
from lakemirror.parquet.thrift_bytes import list_bytes, struct_bytes

_LONGEST_HEADER = 40  # bytes of a page header without statistics
_SUM, _NO_SUM, _DATA = 0x15, 0x2C, 0x1C  # heads of a header's fields: a checksum, the counts without and after one
_BYTE_ARRAY = 6
_ROOT = struct_bytes((4, BINARY, b"schema"), (5, I32, 1))

RowsOfGroup = tuple[int, Numbers]
"""The number of a row group, and places of rows in it, ascending."""


class Apart(NamedTuple):
    """When pieces are read apart: with more than `gap` bytes between them, and at most so many, `most`."""

    gap: int
    most: int


class _Part(NamedTuple):
    """The pages of a column in a row group that have rows that are asked for: which, and their rows together."""

    chunk: ChunkPages
    pages: Numbers
    rows: int


def read_rows(
    index: PagesOfFile, names: Sequence[str], wanted: Sequence[RowsOfGroup], read: ReadPieces, apart: Apart
) -> dict[str, list[pa.Array]] | None:
    """The values of these rows, in their order, by the name of the column; texts may be dictionaries.

    None where a page is not what the index says of it. For columns of which `share_of_pages` knows the pages.
    Errors: ArrowException, and those of `read`.
    """
    parts = {name: [_part(index.chunks[name][group], places) for group, places in wanted] for name in names}
    data = _Bytes(_ranges([part for its in parts.values() for part in its]), read, apart)
    if not _are_true(data, [part for its in parts.values() for part in its]):
        return None
    found = {}
    for name, its in parts.items():
        column = _decoded(index, name, its, data)
        at = _places(its, [places for _, places in wanted])
        found[name] = _taken(column, at)
    return found


def share_of_pages(index: PagesOfFile, name: str, wanted: Sequence[RowsOfGroup]) -> float | None:
    """The share of the row groups' rows that is in pages with these rows; None if the column's pages are not known."""
    chunks = index.chunks.get(name)
    if chunks is None or any(chunks[group] is None for group, _ in wanted):
        return None
    parts = [_part(chunks[group], places) for group, places in wanted]
    return sum(part.rows for part in parts) / sum(int(part.chunk.firsts[-1]) for part in parts)


def _part(chunk: ChunkPages | None, places: Numbers) -> _Part:
    assert chunk is not None
    at = np.searchsorted(chunk.firsts, places, "right") - 1
    pages = at[np.flatnonzero(np.diff(at, prepend=-1))]
    return _Part(chunk, pages, int((chunk.firsts[pages + 1] - chunk.firsts[pages]).sum()))


def _places(parts: Sequence[_Part], places: Sequence[Numbers]) -> Numbers:
    """Where the rows are among those of the pages."""
    found, before = [], 0
    for part, its in zip(parts, places, strict=True):
        firsts = part.chunk.firsts[part.pages]
        counts = part.chunk.firsts[part.pages + 1] - firsts
        begins = np.cumsum(counts) - counts + before
        at = np.searchsorted(firsts, its, "right") - 1
        found.append(begins[at] + its - firsts[at])
        before += part.rows
    return np.concatenate(found)


def _ranges(parts: Sequence[_Part]) -> Numbers:
    """The bytes of the pages and their dictionaries: begin and end of each."""
    begins = np.concatenate([part.chunk.begins[part.pages] for part in parts])
    ends = begins + np.concatenate([part.chunk.sizes[part.pages] for part in parts])
    both = np.array([part.chunk.dictionary for part in parts], np.int64).reshape(-1, 2)
    ranges = np.concatenate([np.stack([begins, ends], axis=1), both[both[:, 1] > 0]])
    return ranges[np.argsort(ranges[:, 0], kind="stable")]


class _Bytes:
    """The bytes of some ranges of a file, read with what is between neighbours."""

    def __init__(self, ranges: Numbers, read: ReadPieces, apart: Apart) -> None:
        gaps = ranges[1:, 0] - ranges[:-1, 1]
        cut = gaps > apart.gap
        if cut.sum() >= apart.most:
            cut &= gaps > np.sort(gaps)[-apart.most]
        places = np.concatenate([[0], np.flatnonzero(cut) + 1, [len(ranges)]])
        self._begins, ends = ranges[places[:-1], 0], ranges[places[1:] - 1, 1]
        sizes = ends - self._begins
        self._places = np.cumsum(sizes) - sizes
        self.data = np.empty(int(sizes.sum()) + _LONGEST_HEADER, np.uint8)
        self.data[-_LONGEST_HEADER:] = 0
        read(list(zip(self._begins.tolist(), ends.tolist(), strict=True)), self.data.data[:-_LONGEST_HEADER])

    def places_of(self, begins: Numbers) -> Numbers:
        """Where the bytes that begin there in the file are in `data`."""
        piece = np.searchsorted(self._begins, begins, "right") - 1
        found: Numbers = self._places[piece] + begins - self._begins[piece]
        return found


def _are_true(held: _Bytes, parts: Sequence[_Part]) -> bool:
    """True if the headers of the pages say what the index says: their rows and bytes. False also for headers that are
    not those of usual pages.
    """
    at = held.places_of(np.concatenate([part.chunk.begins[part.pages] for part in parts]))
    sizes = np.concatenate([part.chunk.sizes[part.pages] for part in parts])
    rows = np.concatenate([part.chunk.firsts[part.pages + 1] - part.chunk.firsts[part.pages] for part in parts])
    heads: npt.NDArray[np.uint8] = held.data[at[:, None] + np.arange(_LONGEST_HEADER)]
    has_sum = _has_sum(heads[:1])
    base = 8 if has_sum else 6  # fields before the counts
    numbers = varints(heads, base + 11)
    if has_sum is None or numbers is None:
        return False
    values, ends = numbers
    expected = [(0, 0x15), (1, 0), (2, 0x15), (4, 0x15), (base, _DATA if has_sum else _NO_SUM)]
    expected += [(6, _SUM)] if has_sum else []
    expected += [(base + 1 + field, 0x15) for field in (0, 2, 4, 6)] + [(base + 9, 0), (base + 10, 0)]
    if any((values[:, place] != value).any() for place, value in expected):
        return False
    is_right = (values[:, base + 2] == 2 * rows) & (ends[:, base + 10] + (values[:, 5] >> 1) == sizes)
    return bool(is_right.all())


def _has_sum(head: npt.NDArray[np.uint8]) -> bool | None:
    """Whether a page header has a checksum; None if it is too short."""
    numbers = varints(head, 7)
    return None if numbers is None else bool(numbers[0][0, 6] == _SUM)


def _decoded(index: PagesOfFile, name: str, parts: Sequence[_Part], held: _Bytes) -> pa.ChunkedArray:
    """All rows of these pages of a column."""
    pieces: list[bytes | memoryview] = [MAGIC]
    data, size, groups = held.data.data, len(MAGIC), []
    for part in parts:
        chunk, begin = part.chunk, size
        first, end = chunk.dictionary
        if end:
            (at,) = held.places_of(np.array([first])).tolist()
            pieces.append(data[at : at + end - first])
            size += end - first
        page = size
        cuts = np.concatenate([[0], np.flatnonzero(np.diff(part.pages) != 1) + 1, [len(part.pages)]])
        firsts, lasts = part.pages[cuts[:-1]], part.pages[cuts[1:] - 1]  # of pages without another one between them
        begins = held.places_of(chunk.begins[firsts])
        ends = begins + chunk.begins[lasts] + chunk.sizes[lasts] - chunk.begins[firsts]
        pieces += [data[at:to] for at, to in zip(begins.tolist(), ends.tolist(), strict=True)]
        size += int((ends - begins).sum())
        groups.append(_group(part, name.encode(), begin, page, size))
    footer = struct_bytes(
        (1, I32, index.version), (2, LIST, list_bytes(STRUCT, [_ROOT, index.elements[name]])),
        (3, I64, sum(part.rows for part in parts)), (4, LIST, list_bytes(STRUCT, groups)), (6, BINARY, index.writer),
    )  # fmt: skip
    small = b"".join([*pieces, footer, len(footer).to_bytes(4, "little"), MAGIC])
    is_text = all(part.chunk.told[1] == _BYTE_ARRAY and part.chunk.dictionary[1] for part in parts)
    with pq.ParquetFile(
        pa.BufferReader(small), read_dictionary=[name] if is_text else None, coerce_int96_timestamp_unit="us",
        page_checksum_verification=False, pre_buffer=False,
    ) as file:  # fmt: skip
        return file.read(use_threads=False).column(0)


def _group(part: _Part, name: bytes, begin: int, page: int, end: int) -> bytes:
    """The encoded row group of some pages, which are from `begin`, with their dictionary before `page`, to `end`."""
    told = part.chunk.told
    meta = struct_bytes(
        (1, I32, told[1]), (2, LIST, list_bytes(I32, told[2])), (3, LIST, list_bytes(BINARY, [name])),
        (4, I32, told[4]), (5, I64, part.rows), (6, I64, told[6]), (7, I64, end - begin), (9, I64, page),
        (11, I64, begin if page > begin else None),
    )  # fmt: skip
    chunk = struct_bytes((2, I64, 0), (3, STRUCT, meta))
    return struct_bytes((1, LIST, list_bytes(STRUCT, [chunk])), (2, I64, told[6]), (3, I64, part.rows))


def _taken(column: pa.ChunkedArray, at: Numbers) -> list[pa.Array]:
    """The values at these places (ascending), of each chunk that has one."""
    found, begin = [], 0
    for chunk in column.chunks:
        low, high = np.searchsorted(at, [begin, begin + len(chunk)])
        if high > low:
            found.append(chunk.take(pa.array(at[low:high] - begin)))
        begin += len(chunk)
    if sum(map(len, found)) != len(at):
        raise ValueError("pages have fewer rows than they say")
    return found
