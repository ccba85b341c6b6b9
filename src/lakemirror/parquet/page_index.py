"""Where the pages of a file's flat columns are and which rows they have, from its footer and its offset index.

    footer ─▶ where the offset index of each column chunk is ─▶ its bytes, of all chunks together ─▶ PagesOfFile

A chunk whose index leaves something open has no entry: its rows are read with all others of their row group. Each page
says itself how many rows it has, which `page_rows` compares. Format: parquet.thrift, `OffsetIndex`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from lakemirror.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Wire, behind, struct, varint
from lakemirror.parquet.thrift_bytes import encoded_fields
from lakemirror.parquet.unchecked import encoded_footer

Numbers = npt.NDArray[np.int64]
ReadPieces = Callable[[Sequence[tuple[int, int]], memoryview], None]
"""Reads the bytes of a file from each begin to its end, one piece after the other, into memory. The pieces ascend."""

_META = Wire(
    STRUCT,
    fields={1: Wire(I32), 2: Wire(LIST, I32), 4: Wire(I32), **{number: Wire(I64) for number in (5, 6, 7, 9, 11)}},
)
_CHUNK = {3: _META, 4: Wire(I64), 5: Wire(I32)}
_FOOTER = {1: Wire(I32), 4: Wire(LIST, STRUCT, {1: Wire(LIST, STRUCT, _CHUNK), 3: Wire(I64)}), 6: Wire(BINARY)}
_ELEMENT = {1: Wire(I32), 3: Wire(I32), 4: Wire(BINARY), 5: Wire(I32)}
_REPEATED = 2
_MOST = 32 << 20  # bytes of the offset indexes of a file: more are not read
_OF_LOCATION = 7  # bytes and numbers of a page's place: three heads, three numbers, the end
_HEADS = ((0, 0x16), (2, 0x15), (4, 0x16), (6, 0x00))


@dataclass(frozen=True, eq=False)
class ChunkPages:
    """The data pages of a flat column in a row group: where each begins, its bytes with the header, its first row in
    the group; `firsts` has the number of all rows at its end. `told`: what the footer says of the chunk. `dictionary`:
    the bytes of the dictionary's page, from its begin to its end; empty without one.
    """

    begins: Numbers
    sizes: Numbers
    firsts: Numbers
    told: Mapping[int, Any]
    dictionary: tuple[int, int]


class PagesOfFile(NamedTuple):
    """The pages of a file. `chunks`: by name of a column, then by row group. `elements`: the encoded schema of each
    column. `version`, `writer`: as in the footer.
    """

    chunks: Mapping[str, Sequence[ChunkPages | None]]
    elements: Mapping[str, bytes]
    version: int
    writer: bytes | None

    @property
    def nbytes(self) -> int:
        """The approximate bytes in memory."""
        return sum(1000 + each.firsts.nbytes * 3 for chunks in self.chunks.values() for each in chunks if each)


def has_page_index(footer: pq.FileMetaData) -> bool:
    """True if some column chunk has an offset index."""
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    return any(group.column(number).has_offset_index for group in groups[:1] for number in range(group.num_columns))


def pages_of_file(footer: pq.FileMetaData, read: ReadPieces) -> PagesOfFile | None:
    """The pages of the flat columns of a file; None if nothing can be said of them. OSError from `read`."""
    encoded = encoded_footer(footer)
    try:
        told, _ = struct(encoded, shape=_FOOTER)
        flat = _flat_columns(encoded_fields(encoded)[2][1])
        groups = told[4]
        places = {
            (index, leaf): (chunk[4], chunk[4] + chunk[5])
            for index, group in enumerate(groups) for leaf, chunk in enumerate(group[1])
            if leaf in flat and {3, 4, 5} <= chunk.keys() and chunk[4] > 0 and chunk[5] > 0
        }  # fmt: skip
        begin, end = min(first for first, _ in places.values()), max(last for _, last in places.values())
        if not 0 < end - begin <= _MOST:
            return None
        buffer = bytearray(end - begin)
        read([(begin, end)], memoryview(buffer))
        data = bytes(buffer)
        chunks: dict[str, list[ChunkPages | None]] = {name: [None] * len(groups) for name, _ in flat.values()}
        for (index, leaf), (first, last) in places.items():
            group = groups[index]
            chunk = _chunk(data[first - begin : last - begin], group[1][leaf][3], group[3])
            chunks[flat[leaf][0]][index] = chunk
        return PagesOfFile(chunks, dict(flat.values()), told[1], told.get(6))
    except (IndexError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _flat_columns(schema: bytes) -> dict[int, tuple[str, bytes]]:
    """The name and the encoded schema of each column that has one value a row, by the number of its leaf."""
    size, at = schema[0] >> 4, 1
    if size == 15:
        size, at = varint(schema, 1)
    found, leaf = {}, 0
    left = [1]  # children that come, of each node around
    for _ in range(size):
        end = behind(schema, at, STRUCT)
        element, _ = struct(schema, at, shape=_ELEMENT)
        while not left[-1]:
            left.pop()
        left[-1] -= 1
        if element.get(5):
            left.append(element[5])
        else:
            if len(left) == 2 and element.get(3) != _REPEATED:
                found[leaf] = element[4].decode(), schema[at:end]
            leaf += 1
        at = end
    return found


def _chunk(index: bytes, told: Mapping[int, Any], rows: int) -> ChunkPages | None:
    """The pages of a chunk of so many rows, by its encoded offset index; None where they are not one after the other,
    from the first to the last byte and row of the chunk.
    """
    found = _locations(index)
    if found is None or told[5] != rows:
        return None
    begins, sizes, firsts = found
    start, end = told[9], (told[11] if 0 < told.get(11, 0) < told[9] else told[9]) + told[7]
    firsts = np.append(firsts, rows)
    ends = begins + sizes
    is_whole = begins[0] == start and ends[-1] == end and (begins[1:] == ends[:-1]).all()
    if not is_whole or (sizes <= 0).any() or firsts[0] != 0 or (np.diff(firsts) <= 0).any():
        return None
    dictionary = (told[11], start) if 0 < told.get(11, 0) < start else (0, 0)
    return ChunkPages(begins, sizes, firsts, told, dictionary)


def _locations(index: bytes) -> tuple[Numbers, Numbers, Numbers] | None:
    """Place, size and first row of each page; None where they are not written as usual."""
    if index[0] != 0x19:  # field 1, a list
        return None
    count, at = index[1] >> 4, 2
    if index[1] & 15 != STRUCT:
        return None
    if count == 15:
        count, at = varint(index, 2)
    data = np.frombuffer(index, np.uint8)[at:]
    numbers = varints(data[None, :], count * _OF_LOCATION)
    if not count or numbers is None:
        return None
    fields = numbers[0][0].reshape(count, _OF_LOCATION)
    if any((fields[:, place] != head).any() for place, head in _HEADS):
        return None
    places = fields[:, [1, 3, 5]] >> 1  # none is negative: `_chunk` compares them
    return places[:, 0], places[:, 1], places[:, 2]


def varints(data: npt.NDArray[np.uint8], count: int) -> tuple[Numbers, Numbers] | None:
    """The first `count` numbers in each row of bytes, unsigned, and the places behind them; None where there are fewer,
    or some are longer than eight bytes.
    """
    rows, width = data.shape
    row = np.arange(rows) * width
    flat = np.flatnonzero(data < 128)
    first = np.searchsorted(flat, row)
    if (np.append(first[1:], len(flat)) - first < count).any():
        return None
    ends = flat[first[:, None] + np.arange(count)]
    begins = np.empty_like(ends)
    begins[:, 0], begins[:, 1:] = row, ends[:, :-1] + 1
    lengths = ends - begins + 1
    longest = int(lengths.max())
    if longest > 8:
        return None
    content = data.ravel()
    values = content[ends].astype(np.int64)  # the last byte of a number is its highest
    for byte in range(longest - 1):
        longer = lengths > byte + 1
        values[longer] = (values[longer] << 7) | (content[ends[longer] - byte - 1] & 127)
    ends -= row[:, None]
    return values, ends + 1
