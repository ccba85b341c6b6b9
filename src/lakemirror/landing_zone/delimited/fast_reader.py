"""The same rows as `records` gives, by Arrow's reader, as long as both must agree; else it says so.

    blocks ─▶ pieces of whole rows, each looked over ─▶ parsed, several at once

Arrow parses many times faster than Python and in the file's order, but knows no escape character that counts between
quotes alone, takes text behind a closing quote for part of the field, and ends rows at any line break. Where one of
these could make a difference, `Inexact` is raised and the exact reader reads the file from its start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from lakemirror.landing_zone.metadata import DelimitedFormat

_MOST_IN_ROW = 16 * 1024 * 1024
_TRIES = 1000  # line breaks that a quoted field may hold at the end of a block


class Inexact(Exception):
    """Arrow's reader might not give what the contract means."""


def parsed(piece: bytes, names: Sequence[str], form: DelimitedFormat) -> pa.RecordBatch:
    """The rows of one piece as columns of strings, NULL where the text means it. Raises `Inexact`."""
    try:
        table = pc.read_csv(
            pa.BufferReader(piece),
            read_options=pc.ReadOptions(column_names=list(names), block_size=len(piece) + 1, use_threads=False),
            parse_options=pc.ParseOptions(
                delimiter=form.column_separator,
                quote_char=form.quote or False,
                double_quote=bool(form.quote),
                escape_char=False,
                newlines_in_values=bool(form.quote),
                ignore_empty_lines=len(names) > 1,
            ),
            convert_options=pc.ConvertOptions(
                column_types={name: pa.string() for name in names},
                null_values=[form.null_value or ""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=form.null_value is not None,
            ),
        )
    except pa.ArrowInvalid as error:
        if str(error) != "Empty CSV file":
            raise Inexact(str(error)) from error
        return pa.RecordBatch.from_pydict({name: pa.array([], pa.string()) for name in names})
    columns = [
        pa.concat_arrays(column.chunks) if column.chunks else pa.array([], pa.string()) for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def whole_rows(blocks: Iterator[bytes], form: DelimitedFormat) -> Iterator[bytes]:
    """The text in pieces that end where a row does, each of which Arrow reads as the contract means. `Inexact`.

    A piece ends at a line break with an even number of quotes before it. Where that is no end of a row, quotes are
    not as `_well_quoted` wants them, and the piece is refused.
    """
    quote, end = form.quote.encode(), form.row_separator.encode()[-1:]
    before = form.column_separator.encode()  # the byte before the next piece
    is_exact = _looked_over(form)
    waiting = b""
    for block in blocks:
        waiting += block
        at = _row_end(waiting, quote, end)
        if at:
            piece, waiting = waiting[:at], waiting[at:]
            is_exact(before, piece)
            before = piece[-1:]
            yield piece
        elif len(waiting) > _MOST_IN_ROW:
            raise Inexact("a long row")
    if waiting:
        if not waiting.endswith(end):
            if waiting.endswith(b"\r"):
                raise Inexact("line breaks of another kind")
            waiting += end  # without it Arrow takes a last empty field for a quoted one
        is_exact(before, waiting)
        yield waiting


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
    lone = re.compile(rb"\r(?!\n)" if form.row_separator != "\r" else rb"(?<!\r)\n")
    well_quoted, escapes = _well_quoted(form), _escapes(form)

    def look_over(before: bytes, piece: bytes) -> None:
        if lone.search(before + piece, 1):
            raise Inexact("line breaks of another kind")
        if quote and quote in piece:
            if escapes is not None and escapes.search(piece):
                raise Inexact("escapes")
            if not _simply_quoted(before + piece, form) and quote in well_quoted.sub(b"", before + piece):
                raise Inexact("quotes that neither begin nor end a field")

    return look_over


def _simply_quoted(text: bytes, form: DelimitedFormat) -> bool:
    """True where each quote is by turns the first and the last byte of a field: `_well_quoted` without doubled ones.

    `text` has a byte before its first field and ends with a row.
    """
    if len(form.quote.encode()) != 1:
        return False
    bytes_ = np.frombuffer(text, np.uint8)
    found = np.flatnonzero(bytes_ == ord(form.quote))
    edge = np.isin(np.arange(256), list(form.column_separator.encode() + b"\r\n"))
    first, last = found[::2], found[1::2]
    if len(first) != len(last) or not len(last) or last[-1] + 1 == len(bytes_):
        return False
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
