"""Encodes keys as 64-bit words, the same number of words for each key of a data file. The key index stores them.

    keys ─▶ layout_of: form and width of each column ─▶ encode: words, equal exactly if the keys are equal

A UUID as text takes 16 bytes; a number, date or timestamp 8; a decimal 16; short text the bytes of its longest value
and one more. Keys that need more than 64 bytes are stored as a 64-bit hash; then different keys may have equal words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakemirror.keys.key_values import combined, comparable_column, key_hashes

MOST_WORDS = 8
_WIDEST_TEXT = 62
_NUMBER, _DECIMAL, _TEXT = "number", "decimal", "text"
_LETTER_GAP = {"uuid": ord("a") - ord("9") - 1, "UUID": ord("A") - ord("9") - 1}  # between 9 and the first letter
_DASHES = (8, 13, 18, 23)
_WORDS = ((0, 4), (9, 14), (19, 24), (28, 32))  # the positions of the two groups of four digits in each word
_UUIDS_AT_ONCE = 4096  # they fit into the processor's cache


class ColumnLayout(NamedTuple):
    """The layout of one key column.

    `form`: number, decimal, uuid, UUID (capital letters) or text. `width`: bytes of a value. `nulls`: one more byte
    says whether the value is NULL.
    """

    form: str
    width: int
    nulls: bool

    @property
    def bytes(self) -> int:
        return self.width + (self.form == _TEXT) + self.nulls


@dataclass(frozen=True)
class KeyLayout:
    """The layout of the keys of one data file."""

    columns: tuple[ColumnLayout, ...]

    @property
    def is_exact(self) -> bool:
        """True if equal words mean equal keys."""
        return self._bytes <= 8 * MOST_WORDS and all(c.width <= _WIDEST_TEXT for c in self.columns)

    @property
    def words(self) -> int:
        return max(1, -(-self._bytes // 8)) if self.is_exact else 1

    @property
    def _bytes(self) -> int:
        return sum(column.bytes for column in self.columns)

    def widened(self, other: KeyLayout) -> KeyLayout:
        """The narrowest layout that can hold the keys of both layouts."""
        return KeyLayout(tuple(_widened(a, b) for a, b in zip(self.columns, other.columns, strict=True)))


def layout_of(keys: pa.Table) -> KeyLayout:
    """The narrowest layout that can hold these keys. The width of text grows in steps of eight bytes."""
    return KeyLayout(tuple(_layout(combined(comparable_column(column))) for column in keys.columns))


def encode(keys: pa.Table, layout: KeyLayout) -> tuple[np.ndarray, np.ndarray]:
    """The keys as words (uint64, one row per key), and which of them (bool) the layout can hold.

    Ignore the words of a key that the layout cannot hold: the data file does not have such a key.
    """
    if not layout.is_exact:
        return key_hashes(keys).reshape(-1, 1), np.ones(keys.num_rows, bool)
    rows = np.zeros((keys.num_rows, 8 * layout.words), np.uint8)
    fits = np.ones(keys.num_rows, bool)
    begin = 0
    for column, how in zip(keys.columns, layout.columns, strict=True):
        values = combined(comparable_column(column))
        valid = _is_valid(values)
        if how.nulls:
            rows[:, begin] = ~valid
            begin += 1
        else:
            fits &= valid
        if how.form == _NUMBER:
            rows[:, begin : begin + 8] = _bytes_of(_whole(values), 8) * valid[:, None]
        elif how.form == _DECIMAL:
            rows[:, begin : begin + 16] = _decimal_bytes(values) * valid[:, None]
        elif how.form == _TEXT:
            fits &= _put_text(rows[:, begin : begin + how.bytes - how.nulls], values, valid, how.width)
        else:
            fits &= _put_uuids(rows[:, begin : begin + 16], values, valid, how.form)
        begin += how.bytes - how.nulls
    return rows.view(np.uint64), fits


def _layout(values: pa.Array) -> ColumnLayout:
    nulls = bool(values.null_count)
    if pa.types.is_decimal(values.type):
        return ColumnLayout(_DECIMAL, 16, nulls)
    if not _is_text(values.type):
        return ColumnLayout(_NUMBER, 8, nulls)
    valid = _is_valid(values)
    offsets, _ = _text_buffers(values)
    lengths = np.diff(offsets)[valid]
    if len(lengths) and (lengths == 36).all():
        scratch = np.zeros((len(values), 16), np.uint8)
        for form in _LETTER_GAP:
            if _put_uuids(scratch, values, valid, form)[valid].all():
                return ColumnLayout(form, 16, nulls)
    return _text_layout(int(lengths.max()) if len(lengths) else 0, nulls)


def _widened(a: ColumnLayout, b: ColumnLayout) -> ColumnLayout:
    nulls = a.nulls or b.nulls
    if a.form == b.form:
        return ColumnLayout(a.form, max(a.width, b.width), nulls)
    widths = [36 if each.form in _LETTER_GAP else each.width for each in (a, b)]
    return _text_layout(max(widths), nulls)


def _text_layout(longest: int, nulls: bool) -> ColumnLayout:
    width = -(-(longest + 1) // 8) * 8 - 1
    return ColumnLayout(_TEXT, _WIDEST_TEXT if longest <= _WIDEST_TEXT < width else width, nulls)


def _put_text(rows: np.ndarray, values: pa.Array, valid: np.ndarray, width: int) -> np.ndarray:
    """Writes each value and its length into `rows`. Returns which values (bool) fit into `width` or are NULL."""
    offsets, data = _text_buffers(values)
    lengths = np.where(valid, np.diff(offsets), 0)
    fits: np.ndarray = lengths <= width
    lengths = np.where(fits, lengths, 0)
    longest = int(lengths.max()) if len(lengths) else 0
    if longest:
        places = np.arange(longest)
        at = np.minimum(offsets[:-1, None] + places, len(data) - 1)
        rows[:, :longest] = np.where(places < lengths[:, None], data[at], 0)
    rows[:, width] = lengths
    return fits


def _put_uuids(rows: np.ndarray, values: pa.Array, valid: np.ndarray, form: str) -> np.ndarray:
    """Writes each value as 16 bytes into `rows`. Returns which values (bool) are UUIDs of this form or NULL."""
    offsets, data = _text_buffers(values)
    fits: np.ndarray = ~valid | (np.diff(offsets) == 36)
    whole = np.flatnonzero(fits & valid)
    if len(whole) == len(values):
        text = data[offsets[0] : offsets[-1]]
    else:
        text = data[offsets[whole, None] + np.arange(36)].reshape(-1)
    good = np.empty(len(whole), bool)
    packed = np.empty((len(whole), 2), np.uint64)
    for begin in range(0, len(whole), _UUIDS_AT_ONCE):
        end = min(len(whole), begin + _UUIDS_AT_ONCE)
        good[begin:end] = _pack_uuids(text[36 * begin : 36 * end], packed[begin:end], form)
    if len(whole) == len(values):
        rows[:] = packed.view(np.uint8)
    else:
        rows[whole] = packed.view(np.uint8)
    fits[whole[~good]] = False
    return fits


def _pack_uuids(text: np.ndarray, packed: np.ndarray, form: str) -> np.ndarray:
    """Packs values of 36 bytes into two words each. Returns which of them (bool) are UUIDs of this form.

    Eight digits are decoded at once, as the bytes of a word. A value is a UUID of the form exactly if its decoded
    digits, encoded again, give the same value.
    """
    count = len(text) // 36
    letters = np.empty((4, count), np.uint64)
    halves = letters.view(np.uint32).reshape(4, count, 2)
    for word, begins in enumerate(_WORDS):
        for half, begin in enumerate(begins):
            halves[word, :, half] = np.ndarray(count, "<u4", text, begin, (36,))
    digits = letters >> np.uint64(6)
    digits &= _each_byte(1)
    digits *= np.uint64(9)
    digits += letters & _each_byte(15)
    again = digits + _each_byte(6)
    again >>= np.uint64(4)
    again &= _each_byte(1)
    again *= np.uint64(_LETTER_GAP[form])
    again += digits
    again += _each_byte(ord("0"))
    again ^= letters
    again |= digits & _each_byte(0xF0)
    good: np.ndarray = ~np.bitwise_or.reduce(again, axis=0).astype(bool)
    dashes = text.reshape(-1, 36)
    for place in _DASHES:
        good &= dashes[:, place] == ord("-")
    pairs = digits << np.uint64(4)
    pairs |= digits >> np.uint64(8)
    pairs &= np.uint64(0x00FF00FF00FF00FF)
    pairs |= pairs >> np.uint64(8)
    pairs &= np.uint64(0x0000FFFF0000FFFF)
    pairs |= pairs >> np.uint64(16)
    pairs &= np.uint64(0xFFFFFFFF)
    packed[:, 0] = pairs[0] | (pairs[1] << np.uint64(32))
    packed[:, 1] = pairs[2] | (pairs[3] << np.uint64(32))
    return good


def _each_byte(value: int) -> np.uint64:
    return np.uint64(value * 0x0101010101010101)


def _decimal_bytes(values: pa.Array) -> np.ndarray:
    values = values.cast(pa.decimal128(38, values.type.scale))
    every = np.frombuffer(values.buffers()[1], np.uint8).reshape(-1, 16)
    return every[values.offset : values.offset + len(values)]


def _whole(values: pa.Array) -> np.ndarray:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return np.asarray(values.cast(pa.int64()).fill_null(0))


def _bytes_of(values: np.ndarray, width: int) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, width)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def _text_buffers(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The begin of each value, followed by the end of the last one (int64), and the bytes of all values."""
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    _, offset_buffer, data_buffer = values.buffers()
    if not len(values):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(offset_buffer, np.int64 if large else np.int32)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    return offsets[values.offset : values.offset + len(values) + 1].astype(np.int64), data


def _is_valid(values: pa.Array) -> np.ndarray:
    if not values.null_count:
        return np.ones(len(values), bool)
    return np.asarray(values.is_valid().cast(pa.uint8())).astype(bool)
