"""What the binary log says of a table before its rows: names, types, signs, character sets (binlog_row_metadata=FULL).

    TABLE_MAP event ─▶ one `MappedTable`, whose columns can read their values

Layouts: the replication protocol of MariaDB and MySQL. Rows are described by their own log, never by today's catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakemirror.publisher.capture.envelope import EventColumn
from lakemirror.publisher.capture.mariadb.binlog_values import Reader, column_reader
from lakemirror.publisher.capture.mariadb.logged_types import (
    BIT,
    BLOB,
    DATETIME2,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLOAT,
    GEOMETRY,
    INT24,
    JSON,
    LONG,
    LONGLONG,
    SET,
    SHORT,
    STRING,
    TIME2,
    TIMESTAMP2,
    TINY,
    VAR_STRING,
    VARCHAR,
    VECTOR,
    YEAR,
    ColumnType,
)

Meta = tuple[int, tuple[int, int]]
_RAW = pa.string()
_NUMERIC = {TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24, YEAR, DECIMAL}
_TEXTUAL = {VARCHAR, BLOB, VAR_STRING, STRING, VECTOR}
_META_SIZES = {FLOAT: 1, DOUBLE: 1, VARCHAR: 2, BIT: 2, DECIMAL: 2, BLOB: 1, GEOMETRY: 1, JSON: 1, VECTOR: 1, STRING: 2,
               VAR_STRING: 2, ENUM: 2, SET: 2, TIMESTAMP2: 1, DATETIME2: 1, TIME2: 1, 140: 1, 141: 2}  # fmt: skip


@dataclass(frozen=True)
class MappedTable:
    """A table as the log describes it. `readers` read one value each; `key`: the places of its primary key.

    `missing`: why its rows cannot be read; empty if they can.
    """

    schema: str
    name: str
    columns: tuple[EventColumn, ...]
    readers: tuple[Reader, ...]
    key: tuple[int, ...]
    missing: str = ""


def lenenc(data: bytes, at: int) -> tuple[int, int]:
    """A number whose length its first byte says, and the place behind it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


class _Bytes:
    """Bytes that are read from the front."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        """The next so many bytes."""
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self) -> int:
        """The number that comes next, as `lenenc`."""
        found, self._at = lenenc(self._data, self._at)
        return found

    def sized(self) -> bytes:
        """The bytes that come behind their number."""
        return self.take(self.number())


def read_table_map(body: bytes, codec_of: Callable[[int], str | None], *, is_mariadb: bool) -> tuple[int, MappedTable]:
    """The number that rows name this table by, and the table. `codec_of`: the codec of a collation."""
    data = _Bytes(body)
    number, _ = int.from_bytes(data.take(6), "little"), data.take(2)
    schema, name = (data.take(data.take(1)[0] + 1)[:-1].decode("utf-8") for _ in range(2))  # with a zero behind each
    codes = data.sized()
    metas = list(_metas(codes, data.sized()))
    data.take((len(codes) + 7) // 8)
    more = {}
    while data:
        kind = data.take(1)[0]
        more[kind] = data.sized()
    if 4 not in more:
        return number, MappedTable(schema, name, (), (), (), "binlog_row_metadata is not FULL")
    types = _types(metas, more, is_mariadb=is_mariadb)
    names = [text.decode("utf-8") for text in _texts(more[4])]
    found = [column_reader(each, codec_of(each.collation)) for each in types]
    wrong = next((f"{names[i]} is of {types[i].name}" for i, reader in enumerate(found) if reader is None), "")
    readers = tuple(reader for reader in found if reader is not None)
    columns = tuple(EventColumn(column, _RAW, each.name) for column, each in zip(names, types, strict=True))
    key = tuple(_numbers(more[8])) if 8 in more else tuple(_numbers(more[9])[::2]) if 9 in more else ()
    missing = f"column {wrong}, which cannot be read" if wrong else ""
    return number, MappedTable(schema, name, columns, readers, key, missing)


def _types(metas: list[Meta], more: Mapping[int, bytes], *, is_mariadb: bool) -> list[ColumnType]:
    numeric = [i for i, (code, _) in enumerate(metas) if code in _NUMERIC]
    signs = more.get(1, b"")
    unsigned = {i for place, i in enumerate(numeric) if signs and signs[place // 8] & (0x80 >> place % 8)}
    textual_codes = _TEXTUAL | ({GEOMETRY} if is_mariadb else set())
    collations = _collations([i for i, (code, _) in enumerate(metas) if code in textual_codes], more, 2, 3)
    listed = [i for i, (code, _) in enumerate(metas) if code in (ENUM, SET)]
    collations |= _collations(listed, more, 10, 11)
    sets, enums = iter(_lists(more.get(5, b""))), iter(_lists(more.get(6, b"")))
    found = []
    for i, (code, meta) in enumerate(metas):
        labels = next(sets, ()) if code == SET else next(enums, ()) if code == ENUM else ()
        found.append(ColumnType(code, meta, i in unsigned, collations.get(i, 0), labels))
    return found


def _collations(places: list[int], more: Mapping[int, bytes], default: int, each: int) -> dict[int, int]:
    """The collation of each of these columns: a default and its exceptions, or one for each."""
    if each in more:
        return dict(zip(places, _numbers(more[each]), strict=True))
    if default not in more:
        return {}
    first, *pairs = _numbers(more[default])
    others = dict(zip(pairs[::2], pairs[1::2], strict=True))
    return {column: others.get(place, first) for place, column in enumerate(places)}


def _metas(codes: bytes, data: bytes) -> Iterator[Meta]:
    """Each column's real type and its two numbers."""
    rest = _Bytes(data)
    for code in codes:
        part = rest.take(_META_SIZES.get(code, 0))
        first, second = (*part, 0, 0)[:2]
        if code == VARCHAR or code == 141:
            yield code, (first | second << 8, 0)
        elif code == STRING and first in (ENUM, SET):
            yield first, (second, 0)
        elif code == STRING:
            yield code, (((first & 0x30) ^ 0x30) << 4 | second, 0)
        else:
            yield code, (first, second)


def _numbers(data: bytes) -> list[int]:
    rest, found = _Bytes(data), []
    while rest:
        found.append(rest.number())
    return found


def _texts(data: bytes) -> list[bytes]:
    rest, found = _Bytes(data), []
    while rest:
        found.append(rest.sized())
    return found


def _lists(data: bytes) -> list[tuple[bytes, ...]]:
    rest, found = _Bytes(data), []
    while rest:
        found.append(tuple(rest.sized() for _ in range(rest.number())))
    return found
