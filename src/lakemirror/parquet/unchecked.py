"""What a publisher's footer says that nobody compares with the rows, although readers act on it.

    a footer, as Arrow read it ─▶ reason_to_rewrite   a Bloom filter, an order, a place, a bound that Arrow passes over
    its encoded bytes          ─▶ is_read_wholly      something that Arrow does not know
    the pages of its columns   ─▶ hides_values        values outside of a dictionary that are said to be in it

A file with such a footer is not copied whole: its rows are right, and they get a footer of ours. Only fields that are
named here may be in a footer; one that comes later is a reason, too. Fields: parquet.thrift, `FileMetaData`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeAlias

import pyarrow.parquet as pq

from lakemirror.parquet.pages import DATA, DATA_V2, POINTING, Page
from lakemirror.parquet.thrift import struct

_END = 8  # bytes of a file behind its footer
_FILE, _GROUP, _CHUNK = {1, 2, 3, 4, 5, 6, 7}, {1, 2, 3, 5, 6, 7}, {2, 3}
_META, _BOUNDS = {*range(1, 10), 11, 12, 13, 16}, set(range(1, 9))
_NAMES = {
    "row group": {4: "sorting columns"},
    "column": dict.fromkeys(range(4, 8), "a page index"),
    "values": {10: "an index page", 14: "a Bloom filter", 15: "a Bloom filter", 17: "bounds of places"},
}
_OLD_TYPES = {  # the number of the older annotation that says the same as the table's type
    "smallint": {16}, "int": {17}, "bigint": {18}, "string": {0}, "date": {6}, "timestamp": {10}, "timestamp_ntz": {10},
    "decimal": {5},
}  # fmt: skip
_DECIMAL_DIGITS, _DECIMAL_PLACES = 8, 7
_LOW, _HIGH = (1, 5), (2, 6)  # the older and the newer field of a bound
Told: TypeAlias = "tuple[Set[int], Set[int] | None]"
"""The encodings that a footer names for a column, and those of the data pages that it counts, if it does."""

_DATA_PAGES = (DATA, DATA_V2)


def reason_to_rewrite(footer: pq.FileMetaData, types: Mapping[str, str]) -> str | None:
    """What the footer of a file with flat columns says unchecked, in words after the file's name; None if nothing.

    `types`: the table type of each column. Compared with the rows elsewhere, and so no reason: numbers of rows, values
    and NULLs, and bounds that Arrow sees (`delta.statistics`); pages and their numbers (`pages`).
    """
    told = _parsed(encoded_footer(footer))
    if other := told.keys() - _FILE:
        return f"has field {min(other)} in its footer, which cannot be checked"
    leaves = [element for element in told[2][1:] if not element.get(5)]
    for element in leaves:
        if not _is_annotated_alike(element, types.get(_text(element[4]), "")):
            return f"tells the type of column {_text(element[4])!r} twice, and differently"
    has_orders = 7 in told
    if has_orders and [list(order) for order in told[7]] != [[1]] * len(leaves):
        return "orders its columns in an unknown way"
    for index, group in enumerate(told.get(4, [])):
        reason = _of_group(group, footer.row_group(index), has_orders=has_orders)
        if reason is not None:
            return reason
    return None


def is_read_wholly(footer: pq.FileMetaData, file: Any) -> bool:
    """True if the end of an open file (`seek`, `read`) is this footer, byte by byte, as Arrow writes what it read.

    Otherwise there may be something in it that Arrow leaves out, and another reader acts on.
    """
    encoded = encoded_footer(footer)
    size = file.seek(0, 2)
    length = len(encoded) + _END
    if size < length:
        return False
    file.seek(size - length)
    found = bytes(file.read(length))
    return found[: len(encoded)] == encoded and int.from_bytes(found[-_END:-4], "little") == len(encoded)


def encodings_told(footer: pq.FileMetaData) -> list[list[Told]]:
    """The encodings that a footer tells, by row group and column."""
    groups = _parsed(encoded_footer(footer)).get(4, [])
    return [[_told(chunk[3]) for chunk in group[1]] for group in groups]


def _told(meta: Mapping[int, Any]) -> Told:
    counted = {each[2] for each in meta[13] if each[1] in _DATA_PAGES} if 13 in meta else None
    return set(meta[2]), counted


def hides_values(told: Sequence[Told], pages: Iterable[Sequence[Page]]) -> bool:
    """True if a column of a row group has values outside of its dictionary, and the footer does not say so.

    `told`, `pages`: of each column. Spark skips a row group whose dictionary lacks the wanted value, if all pages are
    said to point into it.
    """
    for (named, counted), found in zip(told, pages, strict=True):
        used = {page.encoding for page in found if page.is_data} - POINTING
        if used - named or (counted is not None and used - counted):
            return True
    return False


def _of_group(group: Mapping[int, Any], read: Any, *, has_orders: bool) -> str | None:
    if other := group.keys() - _GROUP:
        return _unknown("row group", min(other))
    stored = 0
    for index, chunk in enumerate(group[1]):
        if other := chunk.keys() - _CHUNK:
            return _unknown("column", min(other))
        meta = chunk[3]
        if other := meta.keys() - _META:
            return _unknown("values", min(other))
        stored += meta[7]
        if 11 in meta and not 0 < meta[11] < meta[9]:
            return "has the dictionary of a column behind its values"
        if not _are_bounds_seen(meta.get(12, {}), read.column(index).statistics, has_orders=has_orders):
            return "has bounds that cannot be checked"
    if group.get(6, stored) != stored:  # Spark looks for a row group in the middle of these bytes
        return f"says that a row group has {group[6]} bytes, and its columns have {stored}"
    return None


def _unknown(where: str, number: int) -> str:
    what = _NAMES[where].get(number, f"field {number} of a {where} in its footer")
    return f"has {what}, which cannot be checked"


def _are_bounds_seen(told: Mapping[int, Any], read: Any, *, has_orders: bool) -> bool:
    """True if Arrow sees every bound and number of NULLs, so that they were compared with the rows."""
    if told.keys() - _BOUNDS:
        return False
    if 3 in told and (read is None or not read.has_null_count):
        return False
    if not told.keys() & {*_LOW, *_HIGH}:
        return True
    if read is None or not read.has_min_max:
        return False
    for older, newer in (_LOW, _HIGH):  # Arrow reads one of the two, other readers the other one
        seen, other = (newer, older) if has_orders else (older, newer)
        if seen not in told or told.get(other, told[seen]) != told[seen]:
            return False
    return True


def _is_annotated_alike(element: Mapping[int, Any], type_: str) -> bool:
    """True if the older annotation of a column is missing, or says what the table's type says."""
    kind, _, rest = type_.partition("(")
    if 6 in element and element[6] not in _OLD_TYPES.get(kind, ()):
        return False
    if kind != "decimal":
        return True
    digits, places = (int(number) for number in rest.rstrip(")").split(","))
    return bool(element.get(_DECIMAL_DIGITS, digits) == digits and element.get(_DECIMAL_PLACES, places) == places)


def encoded_footer(footer: pq.FileMetaData) -> bytes:
    sink = io.BytesIO()
    footer.write_metadata_file(sink)
    return sink.getvalue()[4:-_END]


def _parsed(encoded: bytes) -> dict[int, Any]:
    return struct(encoded)[0]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
