"""A copy of the rows of one data file in the cache folder, from which rows are read by their numbers.

    header │ rows, all of one size: checksum, NULLs, values, where texts are │ texts, each with a checksum

So reading rows decodes nothing and costs what they have, however many others there are. Each row and text that is read
is checked by its checksum, which has its number or place in it. A file that is too short, or a failing disk, gives an
error; `many_pieces` says what happens to one that is cut while it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemirror.engines.kernels.data_rows import stored_arrow_type
from lakemirror.engines.row_work import TargetColumn
from lakemirror.keys.key_file import Replaced
from lakemirror.keys.key_format import Damaged, framed, header_of
from lakemirror.keys.key_values import mixed
from lakemirror.storage.many_pieces import TooShort, read_pieces

FAMILY = b"LMROWS"
"""The first bytes of a copy of any version."""

_MAGIC = FAMILY + b"01"
HEADER = 64 << 10
_FEW_TEXTS = 4 << 20  # bytes of texts that stay in memory once they were read
_TOO_SHORT = "a copy of rows is too short"
SUM, NULLS = "sum", "nulls"

Numbers: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]


class Column(NamedTuple):
    """A column of a copy: what tells it from others, the least value of whole numbers, NumPy's type of a value."""

    name: tuple[Any, ...]
    least: int
    format: str


def can_hold(columns: Sequence[TargetColumn]) -> bool:
    """True if a copy can have columns of these types: all but nested ones."""
    return all(format_of(stored_arrow_type(column)) for column in columns)


def header_bytes(identity: str, rows: int, texts: int, columns: Sequence[Column]) -> bytes:
    """The header of a copy. ValueError if it is too long."""
    return framed({"identity": identity, "rows": rows, "texts": texts, "columns": columns}, _MAGIC, HEADER)


def identity_of(path: Path) -> str:
    """The identity of the data file whose rows are at `path`. Errors: Damaged, OSError."""
    with path.open("rb") as file:
        return str(header_of(file, _MAGIC, HEADER, "copy of rows")["identity"])


class RowFile:
    """A copy. Errors: Damaged, OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb", buffering=0) as file:
            header = header_of(file, _MAGIC, HEADER, "copy of rows")
            stat = os.fstat(file.fileno())
        try:
            self.identity, self.rows, self._texts = str(header["identity"]), int(header["rows"]), int(header["texts"])
            columns = [Column(tuple(name), int(least), str(kind)) for name, least, kind in header["columns"]]
            self._shape = Shape(self.identity, columns)
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"{path.name}: {error}") from error
        self._places = {column.name: place for place, column in enumerate(columns)}
        self._end = HEADER + self.rows * self._shape.width
        self._known = _KnownTexts(self._texts >> 3) if self._texts <= _FEW_TEXTS else None
        self.nbytes = 2048 + (3 * self._texts if self._known is not None else 0)
        self.touched = stat.st_mtime
        self._state = stat.st_ino, stat.st_size
        if stat.st_size != self._end + self._texts:
            raise Damaged(f"{path.name} does not have its full size")

    def has(self, columns: Sequence[TargetColumn]) -> bool:
        """True if the copy has all these columns."""
        return all(name_of(column) in self._places for column in columns)

    def chosen(self, numbers: Numbers, columns: Sequence[TargetColumn]) -> pa.Table:
        """The rows with these numbers (ascending), in these columns. Errors: Damaged, Replaced, OSError."""
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.fstat(file)
            if (stat.st_ino, stat.st_size) != self._state:
                raise Replaced(str(self.path))
            rows = self._records(file, numbers)
            values = []
            for column in columns:
                place, kind = self._places[name_of(column)], stored_arrow_type(column)
                if is_text(kind):
                    values.append(self._text(file, rows, place, kind))
                else:
                    values.append(self._shape.values(rows, place, kind))
        finally:
            os.close(file)
        return pa.table(values, schema=pa.schema([(column.name, stored_arrow_type(column)) for column in columns]))

    def _records(self, file: int, numbers: Numbers) -> npt.NDArray[Any]:
        if len(numbers) and (numbers[0] < 0 or numbers[-1] >= self.rows):
            raise Damaged(f"{self.path.name} has no row {numbers[-1]}")
        width = self._shape.width
        data, at = _read(file, HEADER + numbers * width, width)
        rows: npt.NDArray[Any] = data[: len(data) // width * width].view(f"V{width}").take(at // width)
        rows = rows.view(self._shape.record)
        if (self._shape.sums(rows, numbers) != rows[SUM]).any():
            raise Damaged(f"{self.path.name}: a row is damaged")
        return rows

    def _text(self, file: int, rows: npt.NDArray[Any], place: int, kind: pa.DataType) -> pa.Array:
        """The texts of a column."""
        told, null = rows[f"c{place}"], self._shape.nulls(rows, place)
        starts, lengths = told["at"].astype(np.int64), told["size"].astype(np.int64)
        if self._known is not None:
            texts, codes = self._known.found(starts, lengths, partial(self._texts_at, file))
        else:
            first, codes = _distinct(starts, self._texts >> 3)
            texts = self._texts_at(file, starts[first], lengths[first])
        chosen = texts.take(pa.array(codes, mask=null if null.any() else None))
        return chosen.cast(pa.binary()).view(kind)

    def _texts_at(self, file: int, starts: Numbers, lengths: Numbers) -> pa.Array:
        """The texts at these places (words, ascending)."""
        words = 1 + ((lengths + 7) >> 3)
        if len(starts) and (starts[-1] + words[-1] > self._texts >> 3 or (starts[1:] < starts[:-1] + words[:-1]).any()):
            raise Damaged(f"{self.path.name}: its texts are not where they should be")
        data, at = _read(file, self._end + 8 * starts, 8 * words)
        held, at = data[: len(data) // 8 * 8].view(np.uint64), at >> 3
        if (text_sums(held, at, words, starts, self._shape.salt) != held[at]).any():
            raise Damaged(f"{self.path.name}: a text is damaged")
        bounds = np.stack([8 * at + 8, 8 * at + 8 + lengths], axis=1).ravel()  # a text, and what is up to the next one
        both = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(bounds),
            [None, pa.py_buffer(np.append(bounds, bounds[-1:] if len(bounds) else 0)), pa.py_buffer(data)],
        )  # fmt: skip
        return both.take(pa.array(np.arange(0, len(bounds), 2)))


class _KnownTexts:
    """The texts of a copy that were read and checked, in memory: a copy has few, or their places are not kept."""

    def __init__(self, words: int) -> None:
        self._codes, self._sizes = np.full(words, -1, np.int32), np.zeros(words, np.uint32)
        self._texts = pa.array([], pa.large_binary())
        self._lock = threading.Lock()

    def found(
        self, starts: Numbers, lengths: Numbers, read: Callable[[Numbers, Numbers], pa.Array]
    ) -> tuple[pa.Array, npt.NDArray[Any]]:
        """All known texts, and for each place (in words) the number of its text. `read`: gives texts. Errors: its own,
        Damaged."""
        if (starts >= len(self._codes)).any():
            raise Damaged("a text is behind the end")
        with self._lock:
            new = np.flatnonzero(self._codes[starts] < 0)
            if len(new):
                places, first = np.unique(starts[new], return_index=True)
                sizes = lengths[new[first]]
                texts = read(places, sizes)
                self._codes[places], self._sizes[places] = len(self._texts) + np.arange(len(places)), sizes
                self._texts = pa.concat_arrays([self._texts, texts])
            texts, codes = self._texts, self._codes[starts]
        if (self._sizes[starts] != lengths).any():
            raise Damaged("a text has another length")
        return texts, codes


class Shape:
    """How a row is laid out. `width`: its bytes, a multiple of four. `salt`: what the checksums of this copy begin
    with, so that rows of another one are not taken for its own."""

    def __init__(self, identity: str, columns: Sequence[Column]) -> None:
        self.columns = columns
        told = json.dumps([identity, columns]).encode()
        self.salt = np.uint64(int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "little"))
        texts = np.dtype([("at", "<u4"), ("size", "<u4")])
        fields: list[Any] = [(SUM, "<u4"), (NULLS, "u1", (1 + (len(columns) - 1) // 8,))]
        fields += [(f"c{place}", texts if each.format == "text" else each.format) for place, each in enumerate(columns)]
        packed: Any = np.dtype(fields)
        self.width = (packed.itemsize + 3) & ~3
        names = packed.names
        layout: Any = {"names": names, "formats": [packed[name] for name in names], "itemsize": self.width}
        self.record: np.dtype[Any] = np.dtype(layout | {"offsets": [packed.fields[name][1] for name in names]})

    def sums(self, rows: npt.NDArray[Any], numbers: Numbers) -> npt.NDArray[np.uint32]:
        """The checksums of rows with these numbers."""
        words = rows.view(np.uint32).reshape(len(rows), self.width // 4)
        found = numbers.astype(np.uint64) ^ self.salt
        with np.errstate(over="ignore"):
            for word, factor in enumerate(_factors(words.shape[1])[1:], start=1):
                found += words[:, word] * factor
        return (mixed(found) >> np.uint64(32)).astype(np.uint32)

    def nulls(self, rows: npt.NDArray[Any], place: int) -> npt.NDArray[np.bool_]:
        """Which rows have NULL in this column."""
        found: npt.NDArray[np.bool_] = (rows[NULLS][:, place >> 3] >> np.uint8(place & 7)) & 1 != 0
        return found

    def values(self, rows: npt.NDArray[Any], place: int, kind: pa.DataType) -> pa.Array:
        """The values of a column that has no texts."""
        null, least, raw = self.nulls(rows, place), self.columns[place].least, rows[f"c{place}"]
        valid = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
        if pa.types.is_boolean(kind):
            data = np.packbits(raw != 0, bitorder="little")
        elif pa.types.is_integer(kind):
            data = (raw.astype(np.uint64) + np.uint64(least % (1 << 64))).astype(f"u{kind.bit_width // 8}")
        else:
            data = np.ascontiguousarray(raw)
        return pa.Array.from_buffers(kind, len(rows), [valid, pa.py_buffer(data)])


def _distinct(places: Numbers, size: int) -> tuple[Numbers, Numbers]:
    """The first row of each distinct place, by place, and for each row the number of its place among these."""
    if size > 8 * len(places):
        _, first, inverse = np.unique(places, return_index=True, return_inverse=True)
        return first, inverse
    rows = np.full(size, -1)
    rows[places[places < size]] = np.flatnonzero(places < size)
    if (places >= size).any():
        raise Damaged("a text is behind the end")
    distinct = np.flatnonzero(rows >= 0)
    rank = np.empty(size, np.int64)
    rank[distinct] = np.arange(len(distinct))
    return rows[distinct], rank[places]


def text_sums(words: Words, at: Numbers, counts: Numbers, places: Numbers, salt: np.uint64) -> Words:
    """The checksums of texts that have so many words, with the checksum itself, from `at` on. `places`: in the file."""
    tail = counts - 1
    ends = np.cumsum(tail)
    place = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - tail, tail)
    total = np.zeros(len(place) + 1, np.uint64)
    with np.errstate(over="ignore"):
        np.cumsum(words[np.repeat(at + 1, tail) + place] * _factors(int(tail.max(initial=0)))[place], out=total[1:])
        return mixed(total[ends] - total[ends - tail] + (places.astype(np.uint64) ^ salt))


def _factors(count: int) -> Words:
    """An odd factor for each word: a change of one word changes the sum."""
    result: Words = mixed(np.arange(1, count + 1, dtype=np.uint64)) | np.uint64(1)
    return result


def _read(file: int, begins: Numbers, sizes: Numbers | int) -> tuple[Any, Numbers]:
    """As `read_pieces`. Errors: Damaged, OSError."""
    try:
        return read_pieces(file, begins, sizes)
    except TooShort:
        raise Damaged(_TOO_SHORT) from None


def format_of(kind: pa.DataType) -> str:
    """NumPy's type of a value as it is stored; empty for a type that a copy cannot have."""
    if is_text(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "u1"
    if pa.types.is_decimal128(kind):
        return "V16"
    if (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
    ):
        return f"<u{kind.bit_width // 8}"
    return ""


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def name_of(column: TargetColumn) -> tuple[Any, ...]:
    """What tells a column of a copy from others."""
    return column.physical_name, column.type, column.field_id, column.by_id, column.default
