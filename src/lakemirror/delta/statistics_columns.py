"""Which columns of a Delta table have statistics in the log, by the table's properties.

    delta.dataSkippingStatsColumns     names of columns, or of fields in structs: these alone
    delta.dataSkippingNumIndexedCols   otherwise: so many columns, counted as leaves; -1: all; unset: 32

Delta Spark has the same rules. An invalid value counts as none, because statistics are optional.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

NAMES, COUNT = "delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols"
NUMBER = 32
"""So many columns have statistics where a table's properties do not say which."""

_PART = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s.,`]+))\s*([.,]|$)")


@dataclass(frozen=True)
class StatisticsColumns:
    """`names`: the columns and fields that have statistics, as paths in lower case; None: the first `count` leaves do.

    A leaf is a column, or a field of a struct, that is no struct itself. `count` -1: all leaves.
    """

    names: tuple[tuple[str, ...], ...] | None = None
    count: int = NUMBER

    def chosen(self, leaves: Iterable[Sequence[str]]) -> list[bool]:
        """For each leaf, whether it has statistics. `leaves`: logical paths in the order of the schema, without the
        partition columns. The name of a struct stands for all its fields.
        """
        if self.names is None:
            return [self.count < 0 or number < self.count for number, _ in enumerate(leaves)]
        lowered = (tuple(step.lower() for step in leaf) for leaf in leaves)
        return [any(leaf[: len(name)] == name for name in self.names) for leaf in lowered]


BY_DEFAULT = StatisticsColumns()


def statistics_columns(configuration: Mapping[str, str]) -> StatisticsColumns:
    """The columns that a table's properties (`metaData.configuration`) choose."""
    names = _parse_names(configuration[NAMES]) if NAMES in configuration else None
    return StatisticsColumns(names, _parse_count(configuration.get(COUNT, "")))


def _parse_names(text: str) -> tuple[tuple[str, ...], ...] | None:
    """A list of column names in SQL, such as "id, address.city, `a.b`"; None if it is no such list."""
    names: list[tuple[str, ...]] = []
    path: list[str] = []
    at, follows = 0, bool(text.strip())
    while follows:
        part = _PART.match(text, at)
        if part is None:
            return None
        quoted, plain, separator = part.groups()
        path.append((plain or quoted.replace("``", "`")).lower())
        at, follows = part.end(), bool(separator)
        if separator != ".":
            names.append(tuple(path))
            path = []
    return tuple(names)


def _parse_count(text: str) -> int:
    try:
        return count if (count := int(text)) >= -1 else NUMBER
    except ValueError:
        return NUMBER
