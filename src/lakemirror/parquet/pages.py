"""The pages of a Parquet column as their own headers describe them: what Arrow's reader does not compare.

A reader stops at the number of rows that the footer gives; rows that the pages hold beyond it are lost without an
error. So the headers are read, without the pages, and their counts are compared with the footer's. Format:
parquet.thrift, `PageHeader`, in Thrift's compact encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lakemirror.parquet.thrift import I32, STRUCT, Wire, behind, struct, varint

DATA, INDEX, DICTIONARY, DATA_V2 = 0, 1, 2, 3
PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, DELTA_BINARY, DELTA_LENGTH, DELTA_BYTES, RLE_DICTIONARY, SPLIT = (
    0, 2, 3, 4, 5, 6, 7, 8, 9,
)  # fmt: skip

POINTING = {PLAIN_DICTIONARY, RLE_DICTIONARY}
"""The encodings of pages whose values are places in the dictionary."""

_READABLE = {PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, DELTA_BINARY, DELTA_LENGTH, DELTA_BYTES, RLE_DICTIONARY, SPLIT}
_KINDS = (DATA, INDEX, DICTIONARY, DATA_V2)
_COUNTS = {DATA: 5, DICTIONARY: 7, DATA_V2: 8}  # the field of a header that holds them
# the bytes of usual headers: a field's distance from the one before and its type
_I32, _STATISTICS, _SORTED = 0x15, 0x1C, (0x11, 0x12)
_KIND_OF = {b"\x15\x00": DATA, b"\x15\x04": DICTIONARY}
_COUNTS_AFTER_SIZE, _COUNTS_AFTER_CHECKSUM = {DATA: 0x2C, DICTIONARY: 0x4C}, {DATA: 0x1C, DICTIONARY: 0x3C}
_FIRST_LOOK = 256  # bytes; statistics make headers longer
_LONGEST_HEADER = 16 << 20
_SMALL_CHUNK = 128 << 10  # read at once
_INT = Wire(I32)
_HEADER = {
    1: _INT, 2: _INT, 3: _INT, 5: Wire(STRUCT, fields={1: _INT, 2: _INT}), 7: Wire(STRUCT, fields={1: _INT, 2: _INT}),
    8: Wire(STRUCT, fields={1: _INT, 3: _INT, 4: _INT}),
}  # fmt: skip


class Page(NamedTuple):
    """A page: `values` with NULLs, `rows` where its header says them; `size` after decompression, in bytes.

    `begin`, `stored`: where its bytes are in the file, and how many, as they are stored.
    """

    kind: int
    values: int
    size: int
    encoding: int
    rows: int | None
    begin: int
    stored: int

    @property
    def is_data(self) -> bool:
        return self.kind in (DATA, DATA_V2)


def pages(read_at: Callable[[int, int], bytes], chunk: Any) -> list[Page]:
    """The pages of a column chunk. `read_at(offset, size)` gives bytes of the file; `chunk`: its footer's metadata.

    ValueError where headers are invalid, leave the chunk, or name an encoding that some readers cannot read.
    """
    begin = begin_of(chunk.data_page_offset, chunk.dictionary_page_offset if chunk.has_dictionary_page else None)
    end = begin + chunk.total_compressed_size
    whole = read_at(begin, end - begin) if end - begin <= _SMALL_CHUNK else None
    found, at = [], begin
    while at < end:
        usual = _usual_page(whole, at - begin, begin) if whole is not None else None
        if usual is not None and usual.begin + usual.stored <= end and usual.encoding in _READABLE:
            found.append(usual)
            at = usual.begin + usual.stored
            continue
        fields, length = _header(read_at, whole, begin, at, end)
        kind, size, stored = fields.get(1), fields.get(2), fields.get(3)
        if kind not in _KINDS or size is None or stored is None:
            raise ValueError(f"the page header at byte {at} makes no sense")
        if size < 0 or stored < 0 or at + length + stored > end:
            raise ValueError(f"the page at byte {at} does not end in its column")
        if kind != INDEX:
            found.append(_page(kind, size, fields.get(_COUNTS[kind]), at, at + length, stored))
        at += length + stored
    return found


def checked_pages(read_at: Callable[[int, int], bytes], footer: Any, group: int, leaf: int) -> list[Page]:
    """The pages of a column in a row group. ValueError where their counts differ from the footer's."""
    told, schema = footer.row_group(group), footer.schema.column(leaf)
    chunk, expected = told.column(leaf), told.num_rows
    found = pages(read_at, chunk)
    data = [page for page in found if page.kind != DICTIONARY]
    values, rows = sum([page.values for page in data]), [page.rows for page in data]
    said = chunk.num_values if schema.max_repetition_level > 0 else expected
    counted = expected if not rows or None in rows else sum(filter(None, rows))
    if values != said or values < expected or counted != expected:
        raise ValueError(
            f"row group {group} has {expected} rows, but the pages of column {schema.path!r} hold {values} values"
        )
    return found


def pages_of_group(file: Any, footer: Any, group: int) -> dict[str, list[Page]]:
    """The pages of every column of a row group, by its path.

    Each column's pages of an open file (`seek`, `read`) are compared with its footer. ValueError where their counts
    differ.
    """

    def read_at(at: int, size: int) -> bytes:
        file.seek(at)
        return bytes(file.read(size))

    return {
        footer.schema.column(leaf).path: checked_pages(read_at, footer, group, leaf)
        for leaf in range(footer.num_columns)
    }


def _usual_page(data: bytes, at: int, begin: int) -> Page | None:
    """The page whose header is at `at`, if the header has the fields that most writers write, in their order.

    None for all others, also damaged ones. It saves most of the time of `_header`. `begin`: the place of `data` in the
    file.
    """
    try:
        kind = _KIND_OF.get(data[at : at + 2])
        if kind is None:
            return None
        (size, stored), at = _numbers(data, at + 2, 2)
        if data[at] == _I32:  # a checksum
            at = varint(data, at + 1)[1]
            is_usual = data[at] == _COUNTS_AFTER_CHECKSUM[kind]
        else:
            is_usual = data[at] == _COUNTS_AFTER_SIZE[kind]
        if not is_usual:
            return None
        (values, encoding, *_), at = _numbers(data, at + 1, 4 if kind == DATA else 2)
        if kind == DATA:
            if data[at] == _STATISTICS:
                at = behind(data, at + 1, STRUCT, 1)
        elif data[at] in _SORTED:
            at += 1
        if data[at : at + 2] != b"\0\0":
            return None
    except (IndexError, ValueError):
        return None
    return Page(kind, values, size, encoding, None, begin + at + 2, stored)


def _numbers(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """The numbers of the next fields, none negative, and where they end. ValueError for any other field."""
    numbers = []
    for _ in range(count):
        if data[at] != _I32:
            raise ValueError
        raw = data[at + 1]
        at += 2
        if raw > 127:
            raw, at = varint(data, at - 1)
        if raw & 1:
            raise ValueError
        numbers.append(raw >> 1)
    return numbers, at


def _page(kind: int, size: int, header: Any, at: int, begin: int, stored: int) -> Page:
    if not isinstance(header, dict):
        raise ValueError(f"the page header at byte {at} lacks its counts")
    values, encoding = header.get(1), header.get(4 if kind == DATA_V2 else 2)
    rows = header.get(3) if kind == DATA_V2 else None
    if not isinstance(values, int) or values < 0 or (rows is not None and not 0 <= rows <= values):
        raise ValueError(f"the page header at byte {at} has impossible counts")
    if encoding not in _READABLE:
        raise ValueError(f"the page at byte {at} has the unknown encoding {encoding}")
    return Page(kind, values, size, encoding, rows, begin, stored)


def _header(
    read_at: Callable[[int, int], bytes], whole: bytes | None, begin: int, at: int, end: int
) -> tuple[dict[int, Any], int]:
    """A page header's fields by their numbers, and its length."""
    look = _FIRST_LOOK
    while True:
        if whole is not None:
            data, place, last = whole, at - begin, True
        else:
            look = min(look, end - at)
            data, place, last = read_at(at, look), 0, look >= min(end - at, _LONGEST_HEADER)
        try:
            fields, after = struct(data, place, shape=_HEADER)
            return fields, after - place
        except IndexError:
            if last:
                raise ValueError(f"the page header at byte {at} does not end") from None
            look *= 16


def extents(group: Any) -> list[tuple[int, int]]:
    """Where the bytes of each column of a row group begin and end in its file, as its footer says."""
    found = []
    for chunk in map(group.column, range(group.num_columns)):
        begin = begin_of(chunk.data_page_offset, chunk.dictionary_page_offset if chunk.has_dictionary_page else None)
        found.append((begin, begin + chunk.total_compressed_size))
    return found


def begin_of(page: int, dictionary: int | None) -> int:
    """Where the pages of a column chunk begin, from the places of its first data page and its dictionary.

    A chunk without rows may have a dictionary alone: the place of its data page is 0 then.
    """
    if dictionary and dictionary > 0 and (dictionary < page or page == 0):
        return dictionary
    return page
