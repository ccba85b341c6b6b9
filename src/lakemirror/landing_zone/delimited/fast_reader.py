"""The same rows as `records` gives, by Arrow's reader, as long as both must agree; else it says so.

Arrow parses many times faster than Python and in the file's order, but knows no escape character that counts between
quotes alone, takes text behind a closing quote for part of the field, and ends rows at any line break. So every block
is looked over on its way; where one of these could make a difference, `Inexact` is raised and the exact reader begins
anew.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.csv as pc

from lakemirror.landing_zone.metadata import DelimitedFormat

_BLOCK = 4 * 1024 * 1024
_MOST_IN_ROW = 16 * 1024 * 1024
_TRIES = 1000  # line breaks that a quoted field may hold at the end of a block


class Inexact(Exception):
    """Arrow's reader might not give what the contract means."""


def fast_columns(
    blocks: Iterator[bytes], names: Sequence[str], form: DelimitedFormat, text_null: str | None
) -> Iterator[pa.RecordBatch]:
    """The rows behind the header as columns of strings, NULL where the text means it. Raises `Inexact`.

    `text_null`: the text that means NULL whether quoted or not; None: an empty field that is not quoted.
    """
    stream = _Watched(blocks, form)
    try:
        reader = pc.open_csv(
            pa.PythonFile(stream, mode="r"),
            read_options=pc.ReadOptions(column_names=list(names), block_size=_BLOCK, use_threads=True),
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
                null_values=[text_null or ""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=text_null is not None,
            ),
        )
        yield from reader
    except (pa.ArrowInvalid, OSError) as error:
        if stream.failed is not None:
            raise stream.failed from error
        if str(error) != "Empty CSV file":
            raise Inexact(str(error)) from error


class _Watched(io.RawIOBase):
    """The blocks as a file that ends where Arrow would read otherwise, with the reason in `failed`.

    They are passed on in pieces that end where a row does: at a line break with an even number of quotes before it.
    Where that is no end of a row, quotes are not as `_well_quoted` wants them, and the piece is refused.
    """

    def __init__(self, blocks: Iterator[bytes], form: DelimitedFormat) -> None:
        self.failed: Exception | None = None
        self._blocks = blocks
        self._quote = form.quote.encode()
        self._break = form.row_separator.encode()[-1:]
        self._before = form.column_separator.encode()  # the byte before the next piece
        self._waiting = b""
        self._ready = b""
        self._ended = False
        self._lone = re.compile(rb"\r(?!\n)" if form.row_separator != "\r" else rb"(?<!\r)\n")
        self._well_quoted = _well_quoted(form) if form.quote else re.compile(b"(?!)")
        self._escapes = _escapes(form)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._ended and (size < 0 or len(self._ready) < size):
            try:
                self._ready += self._next_piece()
            except Exception as error:
                self.failed = error
                raise OSError("the source failed") from error
        taken, self._ready = (self._ready[:size], self._ready[size:]) if size >= 0 else (self._ready, b"")
        return taken

    def _next_piece(self) -> bytes:
        block = next(self._blocks, None)
        if block is None:
            self._ended = True
            if self._waiting and not self._waiting.endswith(self._break):
                if self._waiting.endswith(b"\r"):
                    raise Inexact("line breaks of another kind")
                self._waiting += self._break  # without it Arrow takes a last empty field for a quoted one
            piece = self._waiting
        else:
            self._waiting += block
            end = self._row_end()
            if not end and len(self._waiting) > _MOST_IN_ROW:
                raise Inexact("a long row")
            piece, self._waiting = self._waiting[:end], self._waiting[end:]
        if piece:
            self._look_over(self._before + piece)
            self._before = piece[-1:]
        return piece

    def _row_end(self) -> int:
        """Behind the last line break that has an even number of quotes before it; 0 where there is none."""
        # a carriage return is looked at once it is known whether a line feed follows
        end, quotes = len(self._waiting) - (self._break == b"\r"), 0
        left = self._waiting.count(self._quote, 0, end) if self._quote else 0
        for _ in range(_TRIES):
            found = self._waiting.rfind(self._break, 0, end)
            if found < 0:
                return 0
            quotes += self._waiting.count(self._quote, found, end) if self._quote else 0
            if (left - quotes) % 2 == 0:
                return found + 1 + (self._break == b"\r" and self._waiting.startswith(b"\n", found + 1))
            end = found
        return 0

    def _look_over(self, piece: bytes) -> None:
        if self._lone.search(piece, 1):
            raise Inexact("line breaks of another kind")
        if self._quote and self._quote in piece:
            if self._escapes is not None and self._escapes.search(piece):
                raise Inexact("escapes")
            if self._quote in self._well_quoted.sub(b"", piece):
                raise Inexact("quotes that neither begin nor end a field")


def _well_quoted(form: DelimitedFormat) -> re.Pattern[bytes]:
    """A quoted field from its separator to the next one."""
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
