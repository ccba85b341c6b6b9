"""Writes a copy of the rows of one data file (`row_file.py`).

rows in parts ─▶ values of one size each, texts to the end of the file unless they came lately ─▶ checksums
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.long_texts import LONG
from lakemirror.engines.kernels.data_rows import stored_arrow_type
from lakemirror.engines.row_work import TargetColumn
from lakemirror.keys.row_file import (
    HEADER,
    NULLS,
    SUM,
    Column,
    Numbers,
    Shape,
    format_of,
    header_bytes,
    name_of,
    text_sums,
)

_MOST_TEXTS = 1 << 16  # distinct texts that are remembered while a copy is written
_MOST_BYTES = 16 << 20  # of them
_PIECE = 8 << 20  # bytes of rows that are written at once


def write_row_file(
    path: Path, identity: str, rows: int, columns: Sequence[TargetColumn], parts: Iterable[pa.Table],
    bounds: Mapping[str, tuple[int, int]],
) -> None:  # fmt: skip
    """Writes the copy of a data file with so many rows. `parts`: these, with these columns. `bounds`: least and largest
    value of columns of whole numbers. Errors: ValueError if other rows come, OSError.
    """
    shape = Shape(identity, [_column_of(column, bounds.get(column.name)) for column in columns])
    texts, written = _Texts(shape.salt), 0
    with path.open("wb") as file:
        for table in (piece for part in parts for piece in _pieces(part)):
            if written + table.num_rows > rows:
                raise ValueError(f"more than {rows} rows")
            file.seek(HEADER + rows * shape.width + texts.bytes)
            data = _encoded(shape, table, written, texts, file)
            file.seek(HEADER + written * shape.width)
            file.write(data.data)
            written += table.num_rows
        if written != rows:
            raise ValueError(f"{written} rows instead of {rows}")
        file.seek(0)
        file.write(header_bytes(identity, rows, texts.bytes, shape.columns))


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """The rows in parts of few bytes, or one row: writing takes sixteen times as many."""
    if table.num_rows < 2 or table.nbytes <= _PIECE:
        yield table
        return
    half = table.num_rows // 2
    yield from _pieces(table.slice(0, half))
    yield from _pieces(table.slice(half))


def _encoded(shape: Shape, table: pa.Table, first: int, texts: _Texts, file: IO[bytes]) -> npt.NDArray[np.uint8]:
    """The bytes of rows; new texts are written to the file. `first`: the number of the first row."""
    data = np.zeros(table.num_rows * shape.width, np.uint8)
    rows = data.view(shape.record)
    for place, (column, held) in enumerate(zip(shape.columns, table.columns, strict=True)):
        array = held.combine_chunks()
        null = np.asarray(array.is_null().cast(pa.uint8()))
        rows[NULLS][:, place >> 3] |= null << np.uint8(place & 7)
        if column.format == "text":
            field = rows[f"c{place}"]
            field["at"], field["size"] = texts.add(array, file)
        else:
            rows[f"c{place}"] = _stored(array, null.astype(bool), column)
    rows[SUM] = shape.sums(rows, np.arange(first, first + len(rows)))
    return data


class _Texts:
    """The texts of a copy that is being written. One that came lately is not written again."""

    def __init__(self, salt: np.uint64) -> None:
        self.bytes = 0
        self._salt = salt
        self._known: dict[pa.DataType, pa.Array] = {}
        self._at: dict[pa.DataType, Numbers] = {}

    def add(self, texts: pa.Array, file: IO[bytes]) -> tuple[Numbers, Numbers]:
        """Where each text is, in words, and how many bytes it has. Writes what is new to the file."""
        kind = texts.type
        known, places = self._known.get(kind, pa.array([], kind)), self._at.get(kind, np.zeros(0, np.int64))
        encoded = texts.fill_null("" if pa.types.is_string(kind) else b"").dictionary_encode()
        distinct = encoded.dictionary
        found = pc.index_in(distinct, value_set=known)
        new = distinct.filter(found.is_null())
        at = self._written(new, file)
        if len(known) + len(new) > _MOST_TEXTS or known.nbytes + new.nbytes > _MOST_BYTES:
            self._known[kind], self._at[kind] = new, at
        else:
            self._known[kind], self._at[kind] = pa.concat_arrays([known, new]), np.append(places, at)
        its = np.empty(len(distinct), np.int64)
        is_new = np.asarray(found.is_null().cast(pa.uint8())).astype(bool)
        its[is_new], its[~is_new] = at, places[np.asarray(found.drop_null())]
        codes = np.asarray(encoded.indices)
        return its[codes], np.diff(_bytes_of(distinct)[0])[codes]

    def _written(self, texts: pa.Array, file: IO[bytes]) -> Numbers:
        offsets, data = _bytes_of(texts)
        lengths = np.diff(offsets)
        if lengths.max(initial=0) > LONG:
            raise ValueError("a text is long")
        words = 1 + ((lengths + 7) >> 3)
        at = np.cumsum(words) - words
        held = np.zeros(int(words.sum()), np.uint64)
        moved = np.repeat(8 * at + 8 - (offsets[:-1] - offsets[0]), lengths) + np.arange(int(lengths.sum()))
        held.view(np.uint8)[moved] = data
        begin = self.bytes >> 3
        if begin + len(held) >= 1 << 32:
            raise ValueError("there are too many texts")
        held[at] = text_sums(held, at, words, at + begin, self._salt)
        file.write(held.data)
        self.bytes += held.nbytes
        found: Numbers = at + begin
        return found


def _column_of(column: TargetColumn, bounds: tuple[int, int] | None) -> Column:
    kind = stored_arrow_type(column)
    format = format_of(kind)
    if not pa.types.is_integer(kind):
        return Column(name_of(column), 0, format)
    low, high = bounds or (-(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1)
    size = next(size for size in (1, 2, 4, 8) if high - low < 1 << 8 * size)
    return Column(name_of(column), low, f"<u{size}")


def _bytes_of(texts: pa.Array) -> tuple[Numbers, npt.NDArray[np.uint8]]:
    """Where each text begins and the last one ends, and the bytes of all."""
    _, offsets, data = texts.buffers()
    if not len(texts):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    at = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    held = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return at, held[at[0] : at[-1]]


def _stored(values: pa.Array, null: npt.NDArray[np.bool_], column: Column) -> npt.NDArray[Any]:
    """The values of a column without texts as they are stored; zeros for NULL. ValueError if one is out of bounds."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return np.asarray(values.cast(pa.uint8()).fill_null(0))
    size = np.dtype(column.format).itemsize if pa.types.is_decimal(kind) else kind.bit_width // 8
    raw = np.frombuffer(values.buffers()[1], "V16" if size == 16 else f"<u{size}")
    raw = raw[values.offset : values.offset + len(values)].copy()
    if pa.types.is_integer(kind):
        numbers = raw.view(f"<i{size}").astype(np.int64)
        with np.errstate(over="ignore"):
            above = numbers.view(np.uint64) - np.uint64(column.least % (1 << 64))
        above[null] = 0
        found = above.astype(column.format)
        if (numbers[~null] < column.least).any() or (found != above).any():
            raise ValueError("a number is not between its bounds")
        return found
    raw[null] = np.zeros(1, raw.dtype)
    return raw
