"""The same rows as `records` gives, by Arrow's faster reader; raises `Inexact` where the two might differ.

    blocks ─▶ pieces of complete rows ─▶ looked over and parsed, several at once

Arrow parses many times faster than Python and in the file's order, but knows no escape character that counts between
quotes alone, takes text after a closing quote as part of the field, and ends rows at any line break. Where one of
these could make a difference, `Inexact` is raised, and the exact reader reads the piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from lakemirror.landing_zone.delimited.records import Blocks
from lakemirror.landing_zone.metadata import DelimitedFormat

_LONG_ROW = 1024 * 1024  # bytes without the end of a row: quotes that the exact reader must pair
_MARK = b"\xef\xbb\xbf"
_TRIES = 1000  # line breaks that a quoted field may hold at the end of a block


class Inexact(Exception):
    """Arrow's reader might not give the rows that the contract defines."""


@dataclass(frozen=True)
class Piece:
    """Text that ends where a row does. `before`: the byte before it. `line`: the number of its first line.

    `refused`: why Arrow must not read it; empty where it may.
    """

    text: bytes
    before: bytes
    line: int
    refused: str = ""


def whole_rows(blocks: Blocks, form: DelimitedFormat, line: int = 1) -> Iterator[Piece]:
    """The text in pieces. Text after the last piece taken is still in `blocks`.

    A piece ends at a line break with an even number of quotes before it. Where that is no end of a row, quotes are
    not as `FastReader` wants them, and it refuses the piece.
    """
    quote, end = form.quote.encode(), form.row_separator.encode()[-1:]
    before = form.column_separator.encode()
    waiting = b""
    for block in blocks:
        waiting += block
        at = _row_end(waiting, quote, end)
        if not at and len(waiting) <= _LONG_ROW:
            continue
        piece, behind = (waiting[:at], waiting[at:]) if at else (waiting, b"")
        blocks.put_back(behind)
        yield Piece(piece, before, line, "" if at else "a long row")
        line += piece.count(end)
        before, waiting = piece[-1:], b""
    if waiting:
        broken = not waiting.endswith(end) and waiting.endswith(b"\r")
        yield Piece(waiting, before, line, "line breaks of another kind" if broken else "")


class FastReader:
    """Parses pieces of a file by Arrow, in several threads if wanted.

    `types`: each column with the type that Arrow gives it: `string`, or a number's where its text needs no
    conversion.
    """

    def __init__(self, types: Mapping[str, pa.DataType], form: DelimitedFormat) -> None:
        self._texts = dict.fromkeys(types, pa.string())
        self._types: Mapping[str, pa.DataType] = types
        self._form = form
        self._end = form.row_separator.encode()[-1:]
        self._look_over = _looked_over(form)

    def parsed(self, piece: Piece) -> pa.RecordBatch:
        """The rows of a piece, NULL where the text means it. Raises `Inexact`.

        Columns are strings, also those of numbers where Arrow might read a number that is none.
        """
        if piece.refused:
            raise Inexact(piece.refused)
        if piece.text.startswith(_MARK):  # Arrow leaves it out; within a file it is a character of a value
            raise Inexact("a byte-order mark")
        # without a line break Arrow takes a last empty field for a quoted one
        text = piece.text if piece.text.endswith((b"\n", b"\r")) else piece.text + self._end
        self._look_over(piece.before, text)
        if self._types != self._texts and not _may_hold_hex(text):
            try:
                found = _read(text, self._types, self._form)
            except Inexact:
                found = None
            if found is not None and all(_is_plain(column) for column in found.columns):
                return found
            self._types = self._texts  # pieces of one file resemble each other
        return _read(text, self._texts, self._form)


def _read(text: bytes, types: Mapping[str, pa.DataType], form: DelimitedFormat) -> pa.RecordBatch:
    names = list(types)
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text),
            read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=len(text) + 1, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=form.column_separator,
                quote_char=form.quote or False,
                double_quote=bool(form.quote),
                escape_char=False,
                newlines_in_values=bool(form.quote),
                ignore_empty_lines=len(names) > 1,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types,
                null_values=[form.null_value or ""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=form.null_value is not None,
            ),
        )
    except pa.ArrowInvalid as error:
        if str(error) != "Empty CSV file":
            raise Inexact(str(error)) from error
        return pa.RecordBatch.from_pydict({name: pa.array([], kind) for name, kind in types.items()})
    columns = [
        pa.concat_arrays(column.chunks) if column.chunks else pa.array([], column.type) for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)


def _may_hold_hex(text: bytes) -> bool:
    """True where the text has 0x anywhere: Arrow takes 0x1F for a number."""
    # one byte is found many times faster than two
    return (b"x" in text and b"0x" in text) or (b"X" in text and b"0X" in text)


def _is_plain(column: pa.Array) -> bool:
    """False for floating-point numbers among which are infinite ones or NaN: their text may be a number too large."""
    return not pa.types.is_floating(column.type) or bool(pc.all(pc.is_finite(column)).as_py() in (True, None))


def _row_end(text: bytes, quote: bytes, end: bytes) -> int:
    """Behind the last line break that has an even number of quotes before it; 0 where there is none."""
    # a carriage return is looked at once it is known whether a line feed follows
    limit = len(text) - (end == b"\r")
    left = text.count(quote, 0, limit) if quote else 0
    for _ in range(_TRIES):
        found = text.rfind(end, 0, limit)
        if found < 0:
            return 0
        left -= text.count(quote, found, limit) if quote else 0
        if left % 2 == 0:
            return found + 1 + (end == b"\r" and text.startswith(b"\n", found + 1))
        limit = found
    return 0


def _looked_over(form: DelimitedFormat) -> Callable[[bytes, bytes], None]:
    """What raises `Inexact` for a piece, given the byte before it, that the two readers may read otherwise."""
    quote = form.quote.encode()
    has_lone = b"\r" if form.row_separator != "\r" else b"\n"
    lone = re.compile(rb"\r(?!\n)" if form.row_separator != "\r" else rb"(?<!\r)\n")
    well_quoted, escapes = _well_quoted(form), _escapes(form)

    def look_over(before: bytes, piece: bytes) -> None:
        if has_lone in piece and lone.search(before + piece, 1):
            raise Inexact("line breaks of another kind")
        if quote and quote in piece:
            if escapes is not None and escapes.search(piece):
                raise Inexact("escapes")
            if not _simply_quoted(piece, form) and quote in well_quoted.sub(b"", before + piece):
                raise Inexact("quotes that neither begin nor end a field")

    return look_over


def _simply_quoted(piece: bytes, form: DelimitedFormat) -> bool:
    """True where each quote is by turns the first and the last byte of a field: `_well_quoted` without doubled ones.

    `piece` begins where a field does and ends with a row.
    """
    if len(form.quote.encode()) != 1:
        return False
    bytes_ = np.frombuffer(piece, np.uint8)
    found = np.flatnonzero(bytes_ == ord(form.quote))
    first, last = found[::2], found[1::2]
    if len(first) != len(last) or not len(last) or last[-1] + 1 == len(bytes_):
        return False
    edge = np.zeros(256, bool)
    edge[list(form.column_separator.encode() + b"\r\n")] = True
    # before place 0 this looks at the last byte, which ends a row
    return bool(edge[bytes_[first - 1]].all() and edge[bytes_[last + 1]].all())


def _well_quoted(form: DelimitedFormat) -> re.Pattern[bytes]:
    """A quoted field from its separator to the next one."""
    if not form.quote:
        return re.compile(b"(?!)")
    quote = re.escape(form.quote.encode())
    edge = b"[" + re.escape(form.column_separator.encode()) + rb"\r\n]"
    inner = b"[^" + quote + b"]*"
    return re.compile(
        b"(?<=" + edge + b")" + quote + inner + b"(?:" + quote * 2 + inner + b")*" + quote + b"(?=" + edge + b")"
    )


def _escapes(form: DelimitedFormat) -> re.Pattern[bytes] | None:
    """The escape character where it has a meaning; None where it never has one of its own."""
    if not form.quote or form.escape in ("", form.quote):
        return None
    return re.compile(re.escape(form.escape.encode()) + b"[" + re.escape((form.escape + form.quote).encode()) + b"]")
