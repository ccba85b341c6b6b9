"""The records of delimited text, exactly: what the contract means, at the speed of Python.

- A row ends at the declared separator. With `\\n` or `\\r\\n` a line feed ends it, with or without a carriage return
  before; with `\\r` a carriage return, with or without a line feed behind. The last row needs no end.
- A field that begins with the quote character ends at the next one that stands alone. In it, a doubled quote is a
  quote, and the escape character makes a quote or itself ordinary; before anything else it is an ordinary character.
  Behind the closing quote only a separator may follow.
- In any other field quote and escape characters are ordinary.
- An empty line is no row, unless the header has one column alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lakemirror.errors import TableError
from lakemirror.landing_zone.metadata import DelimitedFormat

MOST_IN_RECORD = 16 * 1024 * 1024  # bytes, where no memory budget is given
OF_MEMORY = 32  # a row may have this part of the budget: four files at once hold it as text, fields and values


class Blocks:
    """Text in blocks; iterate. What was read too far can be put back."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._before: list[bytes] = []

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return self._before.pop() if self._before else next(self._blocks)

    def put_back(self, text: bytes) -> None:
        """The next block is this text, if it is not empty."""
        if text:
            self._before.append(text)


class Field(NamedTuple):
    """One field's text in UTF-8, and whether it was quoted."""

    text: bytes
    quoted: bool


@dataclass(frozen=True)
class Record:
    """One row: the line on which it begins (from 1, the header's is 1), its fields."""

    line: int
    fields: list[Field]


class _More(Exception):
    """The buffer ends within a record."""


class RecordReader:
    """Reads records one after another; iterate. `put_back` ends that.

    `line`: the number of the line on which the next record begins. `taken`: how many bytes the records had so far.
    """

    def __init__(
        self, blocks: Blocks, form: DelimitedFormat, file: str, line: int = 1, memory: int | None = None
    ) -> None:
        """`memory`: the budget in bytes."""
        self._most = MOST_IN_RECORD if memory is None else memory // OF_MEMORY
        self.line = line
        self.taken = 0
        self._blocks = blocks
        self._file = file
        self._buffer = b""
        self._at = 0
        self._ended = False
        self._separator = form.column_separator.encode()
        self._quote = form.quote.encode()
        self._escape = form.escape.encode() if form.escape != form.quote else b""
        self._end = b"\r" if form.row_separator == "\r" else b"\n"
        self._in_plain = re.compile(b"[" + re.escape(self._separator + self._end) + b"]")
        self._in_quotes = re.compile(b"[" + re.escape(self._quote + self._escape) + b"]") if self._quote else None

    def __iter__(self) -> Iterator[Record]:
        """Every record; an empty line is one with an empty field. TableError `file-unreadable`, `file-too-large`,
        `value-invalid`."""
        while True:
            try:
                fields, at = self._record(self._at)
            except _More:
                self._read_more()
                continue
            if fields is None:
                return
            record = Record(self.line, fields)
            self.line += self._buffer.count(self._end, self._at, at)
            self.taken += at - self._at
            self._at = at
            yield record

    def put_back(self) -> None:
        """Gives the text behind the last record back to the blocks."""
        self._blocks.put_back(self._buffer[self._at :])
        self._buffer, self._at, self._ended = b"", 0, False

    def _read_more(self) -> None:
        left = len(self._buffer) - self._at
        if left > self._most:
            what = f"a row of more than {self._most} bytes (1/{OF_MEMORY} of the setting `memory`), or an open quote"
            raise self._error("file-too-large", what, self.line)
        parts = [self._buffer[self._at :]]
        self._buffer, self._at = b"", 0
        # twice as much each time: else a long row is read again for every block
        wanted = min(max(left, 1), self._most - left + 1)
        while wanted > 0:
            block = next(self._blocks, None)
            if block is None:
                self._ended = True
                break
            parts.append(block)
            wanted -= len(block)
        self._buffer = b"".join(parts)

    def _record(self, at: int) -> tuple[list[Field] | None, int]:
        if at >= len(self._buffer):
            if not self._ended:
                raise _More
            return None, at
        fields = []
        while True:
            quoted = bool(self._quote) and self._buffer.startswith(self._quote, at)
            text, at = self._quoted(at + 1) if quoted else self._plain(at)
            fields.append(Field(text, quoted))
            if at >= len(self._buffer):
                return fields, at
            if self._buffer.startswith(self._separator, at):
                at += 1
                if at >= len(self._buffer):
                    if not self._ended:
                        raise _More
                    fields.append(Field(b"", False))
                    return fields, at
                continue
            return fields, self._after_end(at)

    def _plain(self, at: int) -> tuple[bytes, int]:
        found = self._in_plain.search(self._buffer, at)
        if found is None:
            if not self._ended:
                raise _More
            return self._buffer[at:], len(self._buffer)
        end = found.start()
        text = self._buffer[at:end]
        if self._end == b"\n" and self._buffer.startswith(b"\n", end) and text.endswith(b"\r"):
            return text[:-1], end
        return text, end

    def _quoted(self, at: int) -> tuple[bytes, int]:
        assert self._in_quotes is not None
        buffer, parts = self._buffer, []
        while True:
            found = self._in_quotes.search(buffer, at)
            if found is None or (found.end() >= len(buffer) and not self._ended):
                if not self._ended:
                    raise _More
                raise self._error("file-unreadable", "a quoted field that is never closed", self.line)
            quote_at = found.start()
            following = buffer[quote_at + 1 : quote_at + 2]
            if found.group() == self._quote and following != self._quote:
                parts.append(buffer[at:quote_at])
                return b"".join(parts), self._closed(quote_at + 1)
            special = following == self._quote or (found.group() == self._escape and following == self._escape)
            parts.append(buffer[at : quote_at if special else quote_at + 1])
            if special:
                parts.append(following)
            at = quote_at + (2 if special else 1)

    def _closed(self, at: int) -> int:
        """Where the separator behind a closing quote is."""
        if at >= len(self._buffer):
            return at
        if self._end == b"\n" and self._buffer.startswith(b"\r", at):
            if at + 1 >= len(self._buffer):
                if not self._ended:
                    raise _More
                return at + 1
            if self._buffer.startswith(b"\n", at + 1):
                return at + 1
        if self._buffer[at : at + 1] not in (self._separator, self._end):
            line = self.line + self._buffer.count(self._end, self._at, at)
            raise self._error("value-invalid", "text behind the closing quote of a field", line)
        return at

    def _after_end(self, at: int) -> int:
        if self._end == b"\r":
            if at + 1 >= len(self._buffer) and not self._ended:
                raise _More
            if self._buffer.startswith(b"\n", at + 1):
                return at + 2
        return at + 1

    def _error(self, code: str, what: str, line: int) -> TableError:
        return TableError(code, f"{self._file}, line {line}: {what}", file=self._file, row=line)
