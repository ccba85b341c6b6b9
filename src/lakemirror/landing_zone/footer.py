"""The footer of a Parquet file, read and checked when the file is first seen (contract section 4).

A footer is what its writer says. Here it is held against itself and against the file's size, before Arrow sees it:
some that cannot be true end the whole process there. The pages and the rows are held against it where they are read
(`pages`, `engines/kernels/read`). Field numbers: parquet.thrift, `FileMetaData`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.landing_zone.pages import begin_of, pages
from lakemirror.landing_zone.thrift import struct

_FIRST_LOOK = 16 << 10  # bytes from the file's end; most footers are shorter
_MAGIC, _ENCRYPTED_MAGIC = b"PAR1", b"PARE"
_BEFORE, _BEHIND = 4, 8  # bytes of a file before its first page and behind its footer
_CODECS = {0: None, 1: "snappy", 2: "gzip", 4: "brotli", 5: "lz4_raw", 6: "zstd", 7: "lz4_raw"}
_CODEC_NAMES = {3: "LZO"}
_ENCODINGS = {0, 2, 3, 4, 5, 6, 7, 8, 9}
_REPEATED = 2
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # of a bound, by the column's physical type
_FIXED_LENGTH = 7


class FooterContradiction(ValueError):
    """A complete footer that cannot be true, or that no row can be read by: waiting does not help."""


def read_footer(file: Any) -> pq.FileMetaData:
    """The footer of a file that is open for reading: a binary file of Python's or Arrow's.

    FooterContradiction: see `contradiction`. ArrowException, OSError or ValueError where there is no complete footer,
    which may be one that is still written.
    """
    size = file.seek(0, 2)
    tail = _tail(file, size)
    if tail is not None:
        reason = contradiction(tail, size)
        if reason is not None:
            raise FooterContradiction(reason)
    file.seek(0)
    footer = pq.read_metadata(file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, mode="r"))
    reason = _against_empty_groups(footer, file)
    if reason is not None:
        raise FooterContradiction(reason)
    return footer


def contradiction(footer: bytes, size: int) -> str | None:
    """Why an encoded footer cannot be true of a file of `size` bytes; None where nothing in it says so.

    Checked: numbers of rows and values, negative or different between file, row groups and columns; places outside
    of the file; codecs and encodings that nobody reads; encryption; bounds that are no value of their type.
    """
    try:
        fields, _ = struct(footer)
        return _against(fields, size - len(footer))
    except (IndexError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"its footer makes no sense: {error}"


def _against_empty_groups(footer: pq.FileMetaData, file: Any) -> str | None:
    """Why a row group without rows has some after all; nobody may read it, so its pages are looked at here."""

    def read_at(at: int, size: int) -> bytes:
        file.seek(at)
        return bytes(file.read(size))

    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        if group.num_rows:
            continue
        for place in range(group.num_columns):
            try:
                held = sum(page.values for page in pages(read_at, group.column(place)) if page.is_data)
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
    columns = list(_leaves(footer[2]))
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


def _leaves(schema: Sequence[Mapping[int, Any]]) -> Iterator[tuple[Mapping[int, Any], bool]]:
    """The columns that hold values, each with whether a row may have more than one of them."""
    open_nodes = [(schema[0].get(5, 0), False)]
    for element in schema[1:]:
        while open_nodes and open_nodes[-1][0] == 0:
            open_nodes.pop()
        if not open_nodes:
            raise ValueError("its schema has more columns than it says")
        left, repeated = open_nodes.pop()
        open_nodes.append((left - 1, repeated))
        repeated = repeated or element.get(3) == _REPEATED
        if element.get(5):
            open_nodes.append((element[5], repeated))
        elif 1 in element:
            yield element, repeated
    if any(left for left, _ in open_nodes):
        raise ValueError("its schema has fewer columns than it says")


def _against_group(
    group: Mapping[int, Any], columns: Sequence[tuple[Mapping[int, Any], bool]], size: int
) -> str | None:
    rows, chunks = group[3], group.get(1, [])
    if rows < 0:
        return f"says {rows} rows"
    if len(chunks) != len(columns):
        return f"has {len(chunks)} columns where the schema has {len(columns)}"
    for (element, repeated), chunk in zip(columns, chunks, strict=True):
        reason = _against_chunk(element, repeated, chunk, rows, size)
        if reason is not None:
            return reason
    return None


def _against_chunk(
    element: Mapping[int, Any], repeated: bool, chunk: Mapping[int, Any], rows: int, size: int
) -> str | None:
    name = element[4].decode("utf-8", "replace")
    if 8 in chunk or 9 in chunk or 3 not in chunk:
        return f"has column {name!r} encrypted"
    if chunk.get(1):
        return f"says that column {name!r} is in another file"
    told = chunk[3]
    kind, encodings, codec, values = told[1], told[2], told[4], told[5]
    if kind != element[1]:
        return f"has column {name!r} in another type than the schema's"
    if values < rows or (values != rows and not repeated):
        return f"says {rows} rows, and {values} values of column {name!r}"
    readable = _CODECS.get(codec, "")
    if readable == "" or (readable is not None and not pa.Codec.is_available(readable)):
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
    return _against_bounds(name, kind, element, told.get(12, {}), values)


def _against_bounds(
    name: str, kind: int, element: Mapping[int, Any], told: Mapping[int, Any], values: int
) -> str | None:
    if not 0 <= told.get(3, 0) <= values:
        return f"says {told[3]} NULLs in {values} values of column {name!r}"
    width = element.get(2) if kind == _FIXED_LENGTH else _WIDTHS.get(kind)
    if width is not None and any(len(told[bound]) != width for bound in (1, 2, 5, 6) if told.get(bound)):
        return f"has bounds of column {name!r} that are none of its type"
    return None
