"""The types of columns as the binary log writes them: numbers of the replication protocol."""

from __future__ import annotations

from dataclasses import dataclass

TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24, DATE, YEAR = 1, 2, 3, 4, 5, 8, 9, 10, 13
VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 15, 16, 17, 18, 19
VECTOR, JSON, DECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 242, 245, 246, 247, 248, 252, 253, 254, 255
_INTEGERS = {TINY: "tinyint", SHORT: "smallint", INT24: "mediumint", LONG: "int", LONGLONG: "bigint"}
_TIMES = {TIMESTAMP2: "timestamp", DATETIME2: "datetime", TIME2: "time"}
_NAMES = {
    FLOAT: "float",
    DOUBLE: "double",
    DATE: "date",
    YEAR: "year",
    JSON: "json",
    VECTOR: "vector",
    GEOMETRY: "geometry",
}
BINARY = 63
"""The collation of bytes."""


@dataclass(frozen=True)
class ColumnType:
    """A column's type as the log has it. `code`: its real type. `labels`: of an enum or a set. `collation`: 0 where it
    has none.
    """

    code: int
    meta: tuple[int, int]
    is_unsigned: bool = False
    collation: int = 0
    labels: tuple[bytes, ...] = ()

    @property
    def name(self) -> str:
        """The type as `mariadb_types.family` names it, so that it can be compared with the catalog's."""
        sign = " unsigned" if self.is_unsigned else ""
        if self.code in _INTEGERS:
            return _INTEGERS[self.code] + sign
        if self.code == DECIMAL:
            return f"decimal({self.meta[0]},{self.meta[1]})"
        if self.code in _TIMES:
            return f"{_TIMES[self.code]}({self.meta[0]})"
        if self.code == BIT:
            return f"bit({self.meta[1] * 8 + self.meta[0]})"
        if self.code in (ENUM, SET):
            return "enum" if self.code == ENUM else "set"
        kinds = {VARCHAR: "varchar", VAR_STRING: "varchar", STRING: "char", BLOB: "text"}
        if self.code in kinds:
            binary = {"varchar": "varbinary", "char": "binary", "text": "blob"}
            return binary[kinds[self.code]] if self.collation == BINARY else kinds[self.code]
        return _NAMES.get(self.code, f"type {self.code}")
