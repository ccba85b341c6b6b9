"""The footer of a Parquet file, read and checked when the file is first seen (contract section 4).

A footer is a claim of its writer. It is checked for contradictions and against the file's size before Arrow reads it:
some false footers make Arrow end the process. Pages and rows are checked against the footer when they are read
(`pages`, `engines/kernels/reading`). Field numbers: parquet.thrift, `FileMetaData`.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.parquet.pages import begin_of, pages
from lakemirror.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Wire, struct

_FIRST_LOOK = 16 << 10  # bytes from the file's end; most footers are shorter
_MAGIC, _ENCRYPTED_MAGIC = b"PAR1", b"PARE"
_BEFORE, _BEHIND = 4, 8  # bytes of a file before its first page and behind its footer
_CODECS = {0: None, 1: "snappy", 2: "gzip", 4: "brotli", 5: "lz4_raw", 6: "zstd", 7: "lz4_raw"}
_CODEC_NAMES = {3: "LZO"}
_ENCODINGS = {0, 2, 3, 4, 5, 6, 7, 8, 9}
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_FORMS = (None, _REQUIRED, _OPTIONAL, _REPEATED)
_BYTES = 6  # the physical type of texts and bytes of any length
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # of a bound, by the column's physical type
_FIXED_LENGTH = 7


_NUMBERS = Wire(LIST, I64)
_SIZES = Wire(STRUCT, fields={1: Wire(I64), 2: _NUMBERS, 3: _NUMBERS})
_BOUNDS = Wire(STRUCT, fields={n: Wire(I64 if n in (3, 4) else BINARY) for n in range(1, 7)})
_META = Wire(
    STRUCT,
    fields={
        1: Wire(I32), 2: Wire(LIST, I32), 4: Wire(I32), 5: Wire(I64), 6: Wire(I64), 7: Wire(I64),
        9: Wire(I64), 10: Wire(I64), 11: Wire(I64), 12: _BOUNDS, 16: _SIZES,
    },
)  # fmt: skip
_CHUNK = {1: Wire(BINARY), 3: _META, 8: Wire(STRUCT), 9: Wire(BINARY)}
_ELEMENT = {n: Wire(BINARY if n == 4 else I32) for n in range(1, 6)}
_GROUP = {1: Wire(LIST, STRUCT, _CHUNK), 3: Wire(I64)}
_FOOTER = {2: Wire(LIST, STRUCT, _ELEMENT), 3: Wire(I64), 4: Wire(LIST, STRUCT, _GROUP), 8: Wire(STRUCT)}


class FooterContradiction(ValueError):
    """A complete footer that cannot be true, or that no reader can use: waiting does not help."""


def read_footer(file: Any) -> pq.FileMetaData:
    """The footer of a file that is open for reading: a binary file of Python's or Arrow's.

    FooterContradiction: see `contradiction`. ArrowException, OSError or ValueError where there is no complete footer,
    which may be one that is still written.
    """
    size = file.seek(0, 2)
    tail = _tail(file, size)
    footer = None if tail is None else _proven.find(tail, size)
    if footer is None:
        if tail is not None:
            reason = contradiction(tail, size)
            if reason is not None:
                raise FooterContradiction(reason)
        if tail is None:
            file.seek(0)
            footer = pq.read_metadata(file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, mode="r"))
        else:  # Arrow parses the bytes that were checked
            length = len(tail).to_bytes(4, "little")
            footer = pq.read_metadata(pa.BufferReader(b"".join((_MAGIC, tail, length, _MAGIC))))
            _proven.keep(tail, size, footer)
    reason = _against_empty_groups(footer, file)
    if reason is not None:
        raise FooterContradiction(reason)
    return footer


def contradiction(footer: bytes, size: int) -> str | None:
    """Why an encoded footer cannot be true of a file of `size` bytes; None where it has no contradiction.

    Checked: numbers of rows and values, negative or different between file, row groups and columns; places outside
    of the file; codecs and encodings that some readers cannot read; encryption; bounds that are no value of their type.
    """
    try:
        fields, _ = struct(footer, shape=_FOOTER)
        return _against(fields, size - len(footer))
    except (IndexError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"its footer makes no sense: {error}"


class ProvenFooters:
    """Footers that have been checked, by their bytes and the size of their file: the same bytes are not parsed twice.

    A file is looked at by the one who plans and again by the one who reads its rows. What is not in the footer (pages,
    row groups without rows) is checked each time.
    """

    def __init__(self, most_bytes: int = 3 << 20) -> None:
        """`most_bytes`: of encoded footers, together; the longest unused ones are forgotten. Parsed, a footer of a
        few columns takes nine times as much (measured)."""
        self._most_bytes = most_bytes
        self._held: OrderedDict[bytes, tuple[int, pq.FileMetaData]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def find(self, footer: bytes, size: int) -> pq.FileMetaData | None:
        """The parsed footer, None where these bytes have not been checked for a file of this size."""
        key = _digest(footer, size)
        with self._lock:
            held = self._held.get(key)
            if held is None:
                return None
            self._held.move_to_end(key)
            return held[1]

    def keep(self, footer: bytes, size: int, parsed: pq.FileMetaData) -> None:
        """Remembers a footer in which `contradiction` found nothing."""
        key = _digest(footer, size)
        with self._lock:
            if key not in self._held:
                self._bytes += len(footer)
                self._held[key] = len(footer), parsed
            while self._bytes > self._most_bytes:
                self._bytes -= self._held.popitem(last=False)[1][0]


_proven = ProvenFooters()


def _digest(footer: bytes, size: int) -> bytes:
    return hashlib.blake2b(footer, digest_size=32, salt=size.to_bytes(8, "little")).digest()


def _against_empty_groups(footer: pq.FileMetaData, file: Any) -> str | None:
    """The contradiction where a row group claims no rows and its pages have some; no reader opens it, so it is checked
    here.
    """

    def read_at(at: int, size: int) -> bytes:
        file.seek(at)
        return bytes(file.read(size))

    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        if group.num_rows:
            continue
        for number in range(group.num_columns):
            try:
                held = sum(page.values for page in pages(read_at, group.column(number)) if page.is_data)
            except ValueError as error:
                return f"row group {index} cannot be read: {error}"
            if held:
                return f"row group {index} says 0 rows, and its pages hold {held} values"
    return None


def _tail(file: Any, size: int) -> bytes | None:
    """The encoded footer; None where the file does not end as Parquet files do."""
    look = min(size, _FIRST_LOOK)
    file.seek(size - look)
    data = file.read(look)
    if data[-4:] == _ENCRYPTED_MAGIC:
        raise FooterContradiction("it is encrypted")
    if len(data) < _BEFORE + _BEHIND or data[-4:] != _MAGIC:
        return None
    length = int.from_bytes(data[-8:-4], "little")
    if length + _BEHIND > size:
        return None
    if length + _BEHIND > look:
        file.seek(size - length - _BEHIND)
        data = file.read(length + _BEHIND)
    return bytes(data[-length - _BEHIND : -_BEHIND])


def _against(footer: Mapping[int, Any], size: int) -> str | None:
    """`size`: of the file without its footer."""
    if 8 in footer:
        return "it is encrypted"
    said, groups = footer[3], footer.get(4, [])
    if said < 0:
        return f"its footer says {said} rows"
    columns = _leaves(footer[2])
    rows = 0
    for index, group in enumerate(groups):
        reason = _against_group(group, columns, size)
        if reason is not None:
            return f"row group {index} {reason}"
        rows += group[3]
    if not groups and size > _BEFORE + _BEHIND:
        return f"its footer names no row group, and {size - _BEFORE - _BEHIND} bytes are before it"
    if rows != said:
        return f"its footer says {said} rows, and its row groups say {rows}"
    return None


class _Leaf(NamedTuple):
    """A column that holds values, with the highest levels of its values: more than one a row where `repetition`."""

    element: Mapping[int, Any]
    definition: int
    repetition: int


def _leaves(schema: Sequence[Mapping[int, Any]]) -> list[_Leaf]:
    """The columns that hold values. ValueError where the schema is invalid."""
    leaves = []
    open_nodes = [(schema[0].get(5, 0), 0, 0)]
    for element in schema[1:]:
        while open_nodes and open_nodes[-1][0] == 0:
            open_nodes.pop()
        if not open_nodes:
            raise ValueError("its schema has more columns than it says")
        left, definition, repetition = open_nodes.pop()
        open_nodes.append((left - 1, definition, repetition))
        form = element.get(3)
        if form not in _FORMS:
            raise ValueError(f"a column of its schema is neither required nor optional nor repeated, but {form}")
        definition += form in (_OPTIONAL, _REPEATED)
        repetition += form == _REPEATED
        if element.get(5):
            open_nodes.append((element[5], definition, repetition))
        elif 1 in element:
            leaves.append(_Leaf(element, definition, repetition))
    if any(left for left, _, _ in open_nodes):
        raise ValueError("its schema has fewer columns than it says")
    return leaves


def _against_group(group: Mapping[int, Any], columns: Sequence[_Leaf], size: int) -> str | None:
    rows, chunks = group[3], group.get(1, [])
    if rows < 0:
        return f"says {rows} rows"
    if len(chunks) != len(columns):
        return f"has {len(chunks)} columns where the schema has {len(columns)}"
    for leaf, chunk in zip(columns, chunks, strict=True):
        reason = _against_chunk(leaf, chunk, rows, size)
        if reason is not None:
            return reason
    return None


def _against_chunk(leaf: _Leaf, chunk: Mapping[int, Any], rows: int, size: int) -> str | None:
    element = leaf.element
    name = element[4].decode("utf-8", "replace")
    if 8 in chunk or 9 in chunk or 3 not in chunk:
        return f"has column {name!r} encrypted"
    if chunk.get(1):
        return f"says that column {name!r} is in another file"
    told = chunk[3]
    kind, encodings, codec, values = told[1], told[2], told[4], told[5]
    if kind != element[1]:
        return f"has column {name!r} in another type than the schema's"
    if values < rows or (values != rows and not leaf.repetition):
        return f"says {rows} rows, and {values} values of column {name!r}"
    readable = _CODECS.get(codec, "")
    if readable == "" or (readable is not None and not _is_available(readable)):
        return f"has column {name!r} compressed by codec {_CODEC_NAMES.get(codec, codec)}, which cannot be read"
    unknown = set(encodings) - _ENCODINGS
    if unknown:
        return f"has column {name!r} encoded by {', '.join(map(str, sorted(unknown)))}, which cannot be read"
    decompressed, length, page, dictionary = told[6], told[7], told[9], told.get(11)
    begin = begin_of(page, dictionary)
    if length < 0 or decompressed < 0:
        return f"says that column {name!r} has {length} bytes, and {decompressed} decompressed"
    if (rows or length) and (begin < _BEFORE or begin + length > size - _BEHIND or (rows and page >= begin + length)):
        return f"says that column {name!r} is in bytes {begin} to {begin + length} of a file of {size}"
    return _against_levels(name, leaf, told.get(16, {})) or _against_bounds(
        name, kind, element, told.get(12, {}), values
    )


@cache
def _is_available(codec: str) -> bool:
    return bool(pa.Codec.is_available(codec))


def _against_levels(name: str, leaf: _Leaf, told: Mapping[int, Any]) -> str | None:
    """`told`: the size statistics. Arrow ends the process for those that do not fit the schema."""
    for field, highest, what in ((2, leaf.repetition, "repetition"), (3, leaf.definition, "definition")):
        counts = len(told.get(field, ()))
        if counts not in (0, highest + 1):
            return f"counts {counts} {what} levels of column {name!r}, which has {highest + 1}"
    if 1 in told and leaf.element[1] != _BYTES:
        return f"says how long the texts of column {name!r} are, which has none"
    return None


def _against_bounds(
    name: str, kind: int, element: Mapping[int, Any], told: Mapping[int, Any], values: int
) -> str | None:
    if not 0 <= told.get(3, 0) <= values:
        return f"says {told[3]} NULLs in {values} values of column {name!r}"
    width = element.get(2) if kind == _FIXED_LENGTH else _WIDTHS.get(kind)
    if width is not None and any(len(told[bound]) != width for bound in (1, 2, 5, 6) if told.get(bound)):
        return f"has bounds of column {name!r} that are none of its type"
    return None
