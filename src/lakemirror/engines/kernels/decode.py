"""Computes how many rows of a row group can be decoded at once within the memory budget. No I/O.

page headers + footer ─▶ rows at once and columns to read as dictionaries, or TooLarge
batch ─▶ slices whose converted values are small enough

Sizes are upper bounds from the headers of the pages to be read, never from the footer's statistics.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.parquet.pages import DELTA_BYTES, DICTIONARY, POINTING, Page

DEFAULT = 512 << 20
"""The default of the setting `memory`, in bytes."""

MOST_ROWS = 64 * 1024
"""The most rows that are decoded at once."""

_SHARE = 8  # 1/8 of the budget is for decoded rows; the rest is for their conversion and the reader
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}
_WIDEST = 16  # bytes of a number, or of where a text begins
_SHARED = 8  # a dictionary is kept if at least so many rows share each of its values
_LEVELS = 4  # bytes of a nested value's levels
_GROWN = 64  # a nested column that grows so many times when decoded cannot be cut into rows safely
_SCANNED = 1 << 16  # bytes of a dictionary that are scanned at once: more would not stay in the processor's cache
_FEW = 256  # values of a dictionary that are looked at one by one
_OBJECT = 150  # bytes of a Python value; JSON text of some types is made from Python values
_TEXT = 24  # bytes of a number as text
_ESCAPED = 6  # bytes of an escaped character in JSON


class MemoryBudget:
    """`size` bytes that threads share: each thread takes bytes before it allocates them, and gives freed ones back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._left = size
        self._given = threading.Condition()

    def take(self, size: int, *, waits: bool = False) -> bool:
        """Takes so many bytes. Returns False, and takes nothing, if fewer are left.

        `waits`: waits for them instead. For at most the budget's size, and for a thread that holds none of it.
        """
        with self._given:
            while waits and size > self._left:
                self._given.wait()
            if size > self._left:
                return False
            self._left -= size
            return True

    def give(self, size: int) -> None:
        """Gives bytes back."""
        with self._given:
            self._left += size
            self._given.notify_all()


class TooLarge(Exception):
    """One row or one page needs more than the budget. `what`: which. `size`: in bytes."""

    def __init__(self, what: str, size: int) -> None:
        super().__init__(what)
        self.what = what
        self.size = size


@dataclass(frozen=True)
class ColumnPages:
    """A column chunk to be read: its path, physical type, width of a fixed-length value, and its pages.

    `longest`: the length in bytes of the longest value in its dictionary; None: unknown.
    """

    path: str
    physical_type: str
    length: int
    nested: bool
    pages: tuple[Page, ...]
    longest: int | None = None

    @cached_property
    def data(self) -> list[Page]:
        return [page for page in self.pages if page.kind != DICTIONARY]

    @property
    def dictionary(self) -> int:
        """An upper bound for the bytes of a value in the dictionary."""
        if self.longest is not None:
            return self.longest
        return max([page.size for page in self.pages if page.kind == DICTIONARY], default=0)

    @property
    def values(self) -> int:
        return sum([page.values for page in self.data])

    @cached_property
    def largest_page(self) -> int:
        """The bytes of the largest page; 0 if there is none."""
        return max([page.size for page in self.pages], default=0)


class Portion(NamedTuple):
    """How to decode a row group: `rows` at once. Columns in `dictionaries` (paths) stay dictionaries until sliced."""

    rows: int
    dictionaries: tuple[str, ...] = ()


def portion(columns: Sequence[ColumnPages], rows: int, budget: int) -> Portion:
    """How to decode a row group of so many rows. TooLarge if one page exceeds the budget."""
    share = max(budget // _SHARE, 1)
    held = sum([column.largest_page for column in columns])
    if held > budget:
        raise TooLarge("the pages of one row", held)
    at_once = max(1, min(MOST_ROWS, rows))
    width = sum([_width(column) for column in columns if not column.nested])
    at_once = min(at_once, max(1, share // max(width, 1)))
    dictionaries = []
    for column in columns:
        if column.physical_type == "BYTE_ARRAY":
            if _expands_at(column, at_once, rows, share):
                dictionaries.append(column.path)
            at_once = _within(column, at_once, max(share, 2 * held))
        if column.nested:
            at_once = min(at_once, _rows_of_nested(column, rows, at_once, share, budget))
    return Portion(at_once, tuple(dictionaries))


def suspects(columns: Sequence[ColumnPages], rows: int, budget: int) -> list[ColumnPages]:
    """The columns whose dictionaries must be measured, because their size alone allows values that are too long."""
    return [
        column
        for column in columns
        if column.physical_type == "BYTE_ARRAY" and _expands_at(column, min(MOST_ROWS, rows), rows, share_of(budget))
    ]


def has_few_values(column: ColumnPages) -> bool:
    """True if all pages of a flat column use a dictionary, and on average many rows share each of its values."""
    distinct = sum(page.values for page in column.pages if page.kind == DICTIONARY)
    pointing = all(page.encoding in POINTING for page in column.data)
    return pointing and not column.nested and 0 < distinct * _SHARED <= column.values


def slices(batch: pa.RecordBatch, share: int, budget: int) -> Iterator[pa.RecordBatch]:
    """The batch in parts whose converted values take at most `share` bytes each.

    TooLarge if one row needs more than the budget.
    """
    if not batch.num_rows or not any_expands(batch.schema.types):
        yield batch
        return
    if sum(_size_at_most(column) for column in batch.columns) <= share:
        yield batch
        return
    open_parts = [batch]
    while open_parts:
        part = open_parts.pop()
        size = sum(_converted_size(column) for column in part.columns)
        if size <= share or part.num_rows == 1:
            if size > budget:
                raise TooLarge("one row", size)
            yield part
            continue
        half = part.num_rows // 2
        open_parts += [part.slice(half), part.slice(0, half)]


def longest(values: pa.Array) -> int:
    """The bytes of the longest value in a dictionary."""
    if not pa.types.is_dictionary(values.type) or not len(values.dictionary):
        return 0
    return int(pc.max(pc.binary_length(values.dictionary)).as_py() or 0)


def longest_stored(dictionary: bytes, values: int) -> int | None:
    """The bytes of the longest value in a decompressed dictionary page; None if it cannot be found quickly.

    It can if there are few values, or all are shorter than 256 bytes and contain no three zero bytes in a row. Each
    value is stored as its length in four bytes and its bytes. Among many values, every position that looks like a
    length is taken as one; the result is valid if each value then ends where the next begins.
    """
    data = np.frombuffer(dictionary, np.uint8)
    if not values or len(data) < 4:
        return None
    if values <= _FEW:
        return _longest_of_few(data, values)
    found = []
    for begin in range(0, len(data) - 3, _SCANNED):
        zero = data[begin : begin + _SCANNED + 3] == 0
        is_length = zero[1:-2] & zero[2:-1]
        is_length &= zero[3:]
        found.append(np.flatnonzero(is_length) + begin)
    places = np.concatenate(found)
    if len(places) != values or places[0] != 0:
        return None
    lengths = data[places]
    ends_last = int(places[-1]) + 4 + int(lengths[-1]) == len(data)
    if not ends_last or (places[1:] - places[:-1] - 4 != lengths[:-1]).any():
        return None
    return int(lengths.max())


def _longest_of_few(dictionary: npt.NDArray[np.uint8], values: int) -> int | None:
    at = most = 0
    for _ in range(values):
        if at + 4 > len(dictionary):
            return None
        length = int.from_bytes(dictionary[at : at + 4].tobytes(), "little")
        at, most = at + 4 + length, max(most, length)
    return most if at == len(dictionary) else None


def any_expands(kinds: Iterable[pa.DataType]) -> bool:
    """True if values of one of these types may take more bytes after conversion: dictionaries, nested, extensions."""
    return any(
        pa.types.is_dictionary(kind) or pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)
        for kind in kinds
    )


def bytes_at_most(pages: Sequence[Page], rows: int) -> int:
    """An upper bound for the decoded bytes of a flat column with these pages."""
    size = _WIDEST * rows
    for page in pages:
        repeats = page.kind == DICTIONARY or page.encoding == DELTA_BYTES  # each row may repeat its longest value
        size += page.size * rows if repeats else page.size
    return size


def share_of(budget: int) -> int:
    """The bytes that may be decoded at once."""
    return max(budget // _SHARE, 1)


def _expands_at(column: ColumnPages, at_once: int, rows: int, share: int) -> bool:
    """True if so many rows may take more bytes than the share when their dictionary values are written out."""
    longest = column.dictionary
    if not longest:
        return False
    values = sum([page.values for page in column.data if page.encoding in POINTING])
    if column.nested:
        at_once += max(0, column.values - rows)
    return longest * min(at_once, values) > share


def _width(column: ColumnPages) -> int:
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return max(16, column.length)
    return _WIDTHS.get(column.physical_type, 4)


def _within(column: ColumnPages, rows: int, most: int) -> int:
    """The number of rows at once for which a column's text stays within `most` bytes, at any position in its pages."""
    data = column.data
    grows = any(page.encoding == DELTA_BYTES for page in data)  # each value may repeat the one before
    if grows:
        longest = max(page.size for page in data)
        return max(1, min(rows, most // max(longest, 1)))
    sizes = [0 if page.encoding in POINTING else page.size for page in data]
    if sum(sizes) <= most:
        return rows
    ends = np.cumsum([page.values for page in data])
    begins = ends - np.array([page.values for page in data])
    sums = np.concatenate([[0], np.cumsum(sizes)])
    while rows > 1:
        # for a window that begins in each page: the last page that it can touch
        last = np.searchsorted(begins, begins + np.array([page.values for page in data]) - 1 + rows, "left")
        if int((sums[last] - sums[:-1]).max()) <= most:
            return rows
        rows = max(1, rows // 4)
    return rows


def _rows_of_nested(column: ColumnPages, rows: int, at_once: int, share: int, budget: int) -> int:
    """The number of rows at once for which the values of a repeated column stay within the share.

    Each row has at least one value. So one row has at most all values but one for each other row.
    """
    each = _width(column) + _LEVELS
    spare = max(0, column.values - rows)
    if (spare + at_once) * each <= share:
        return at_once
    needed, stored = column.values * each, sum(page.size for page in column.data)
    if needed > budget and needed > _GROWN * max(stored, 1) and spare * each > budget:
        raise TooLarge("the lists of one row", spare * each)
    return max(1, min(at_once, rows * share // max(needed, 1)))


def _converted_size(values: pa.Array) -> int:
    """An upper bound for the bytes of the values after conversion to the table's type."""
    if pa.types.is_dictionary(values.type):
        return _dictionary_size(values)
    if pa.types.is_nested(values.type) and not pa.types.is_run_end_encoded(values.type):
        return _text_size(values)
    return int(values.get_total_buffer_size() if isinstance(values, pa.ExtensionArray) else values.nbytes)


def _size_at_most(values: pa.Array) -> int:
    """A coarser upper bound: for a dictionary, by its longest value, which is faster."""
    if pa.types.is_dictionary(values.type) and pa.types.is_string(values.type.value_type):
        return len(values) * (longest(values) + 8)
    return _converted_size(values)


def _text_size(values: Any) -> int:
    """An upper bound for the bytes of nested values as JSON text."""
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return _text_size(values.storage)
    if pa.types.is_map(kind):
        offsets = np.asarray(values.offsets)
        begin, size = int(offsets[0]), int(offsets[-1] - offsets[0])
        inner = _text_size(values.keys.slice(begin, size)) + _text_size(values.items.slice(begin, size))
        return _TEXT * len(values) + 2 * size + inner
    if pa.types.is_struct(kind):
        names = sum(_ESCAPED * len(kind.field(place).name.encode()) + 4 for place in range(kind.num_fields))
        return (names + 6) * len(values) + sum(_text_size(field) for field in values.flatten())
    if pa.types.is_run_end_encoded(kind):
        return _text_size(pc.run_end_decode(values))
    if pa.types.is_nested(kind):
        return _TEXT * len(values) + _text_size(values.flatten())
    if pa.types.is_dictionary(kind):
        return _ESCAPED * _dictionary_size(values) + _TEXT * len(values)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _OBJECT * len(values)
    if pa.types.is_temporal(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return 2 * _TEXT * len(values)
    return int(_ESCAPED * values.nbytes + _OBJECT * len(values))


def _dictionary_size(values: pa.DictionaryArray) -> int:
    """The bytes of a dictionary column when each row holds its own value."""
    if not len(values):
        return 0
    kinds = values.dictionary
    if pa.types.is_fixed_size_binary(kinds.type):
        return int(len(values) * kinds.type.byte_width)
    if not hasattr(kinds, "offset") or pa.types.is_primitive(kinds.type):
        return 16 * len(values)
    lengths = np.asarray(pc.fill_null(pc.binary_length(kinds), 0)).astype(np.int64)
    if not len(lengths):
        return 8 * len(values)
    places = np.asarray(values.indices.fill_null(0))
    return int(lengths[places].sum()) + 8 * len(values)
