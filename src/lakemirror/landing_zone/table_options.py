"""What a publisher or an operator may ask of one table beside its keys: deletes, order, history (`"lakemirror"` in
`_metadata.json`).

Here a name that is not known is an error, not a warning: a misspelt option would silently change what rows mean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lakemirror.landing_zone.forgiving_json import JsonObject, Members, invalid, is_text, shown
from lakemirror.landing_zone.reserved_columns import ADDED_COLUMNS, NEVER_COLUMNS

HARD, SOFT, IGNORE = "hard", "soft", "ignore"
CURRENT, CHANGES, SCD2, LATE = "current", "changes", "scd2", "late"
LATE_DAYS = 7
OPTION_NAMES = frozenset({"deletes", "sequence", "late_days", "history"})
"""What a publisher declares as one; the goal of freshness is the operator's."""

_RESERVED = frozenset(name.lower() for name in NEVER_COLUMNS | ADDED_COLUMNS)
_DURATION = re.compile(r"(\d+(?:\.\d+)?) *(ms|s|m|min|h|d)", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_LONGEST_NAME = 255  # bytes; on most file systems
_SUFFIXES = {CHANGES: "__changes", SCD2: "__history", LATE: "__late"}


@dataclass(frozen=True)
class HistoryOptions:
    """A second table of a table folder. `mode`: CHANGES (every change as it came), SCD2 (versions with intervals), or
    LATE, which nobody declares (`TableOptions.targets`).

    `name`: the whole name of the table as declared; empty: the default. `track`: the columns whose changes begin a new
    version; empty: all but the sequence.
    """

    mode: str
    name: str = ""
    track: tuple[str, ...] = ()

    def table(self, mirrored: str) -> str:
        """The name of the second table; `mirrored` is that of the mirrored table, without its schema."""
        return self.name or f"{mirrored}{_SUFFIXES[self.mode]}"


@dataclass(frozen=True)
class TableOptions:
    """Options of a table (history.md). The defaults are what a table without options is.

    `deletes`: HARD, SOFT or IGNORE. `sequence`: the columns that order the changes of a key; empty: files and rows do.
    `late_days`: for so long, what a late change needs is remembered. `history`: the tables beside the mirrored one.
    `freshness`: seconds within which a change file is to be applied; 0: no goal.
    """

    deletes: str = HARD
    sequence: tuple[str, ...] = ()
    late_days: int = LATE_DAYS
    history: tuple[HistoryOptions, ...] = ()
    freshness: float = 0.0

    @cached_property
    def reserves_names(self) -> bool:
        """True if the source cannot have columns with the names of those that lakemirror adds (history.md)."""
        return self.deletes != HARD or bool(self.sequence) or bool(self.history)

    @property
    def has_versions(self) -> bool:
        """True if there is a table of versions. Then the row marker 0 means upsert, too: one row a key."""
        return any(each.mode == SCD2 for each in self.history)

    @property
    def keeps_times(self) -> bool:
        """True if tables keep when the source changed a row."""
        return self.deletes == SOFT or self.has_versions

    @property
    def remembers_all(self) -> bool:
        """True if late changes need all others, because they split versions; else they need deletes alone."""
        return bool(self.sequence) and self.has_versions

    @cached_property
    def targets(self) -> tuple[HistoryOptions, ...]:
        """The tables beside the mirrored one: those of `history`, and with a sequence the one that remembers what late
        changes need. If deletes are ignored, they need nothing. That one is first: partial rows in it take values from
        versions as they are before a batch."""
        remembers = bool(self.sequence) and (self.deletes != IGNORE or self.has_versions)
        return (HistoryOptions(LATE), *self.history) if remembers else self.history


NO_OPTIONS = TableOptions()


def as_declared(options: TableOptions) -> dict[str, Any]:
    """The options as `_metadata.json` has them; what is the default is left out."""
    found: dict[str, Any] = {}
    if options.deletes != HARD:
        found["deletes"] = options.deletes
    if options.sequence:
        found["sequence"] = list(options.sequence)
    if options.late_days != LATE_DAYS:
        found["late_days"] = options.late_days
    if options.history:
        found["history"] = [
            {
                "mode": each.mode,
                **({"name": each.name} if each.name else {}),
                **({"track": list(each.track)} if each.track else {}),
            }
            for each in options.history
        ]
    if options.freshness:
        found["freshness"] = f"{options.freshness:g}s"
    return found


def named_targets(options: TableOptions, mirrored: str, file: str) -> list[tuple[HistoryOptions, str]]:
    """The tables beside the mirrored one, each with its name. `mirrored`: that of the mirrored table, without its
    schema; `file`: where the options are from. TableError `metadata-invalid` for a name that a table cannot have."""
    found: dict[str, tuple[HistoryOptions, str]] = {}
    for each in options.targets:
        table = each.table(mirrored)
        wrong = _wrong_name(table, mirrored) if each.name else ""
        if table.lower() in found:
            wrong = "is the name of two tables"
        if len(table.encode()) > _LONGEST_NAME:
            wrong = f"has {len(table.encode())} bytes, and the name of a folder at most {_LONGEST_NAME}"
        if wrong:
            option = "sequence" if each.mode == LATE else "history.name"
            raise invalid(file, f"lakemirror.{option}: {table!r} {wrong}")
        found[table.lower()] = (each, table)
    return list(found.values())


def _wrong_name(table: str, mirrored: str) -> str:
    if table.lower() == mirrored.lower():
        return "is the name of the mirrored table"
    if any(each in table for each in "/\\.\0"):
        return "is outside of its schema"
    return "begins with _, as internal folders do" if table.startswith("_") else ""


def parse_options(members: Members | None, key_columns: tuple[str, ...]) -> TableOptions:
    """The options under `lakemirror`; what else is there has been taken already. TableError `metadata-invalid`."""
    if members is None:
        return NO_OPTIONS
    deletes = members.choice("deletes", (HARD, SOFT, IGNORE), HARD)
    sequence = _columns(members, "sequence")
    late_days = _days(members, "late_days")
    history = _histories(members)
    freshness = _freshness(members)
    members.refuse_rest()
    if late_days is not None and not sequence:
        raise members.refused("late_days", "has no meaning without lakemirror.sequence")
    for option, needs in (("sequence", bool(sequence)), ("history", any(each.mode == SCD2 for each in history))):
        if needs and not key_columns:
            raise members.refused(option, "needs keyColumns: without keys no two rows are one")
    fixed = {name.lower() for name in (*key_columns, *sequence)}
    for name in (name for each in history for name in each.track if name.lower() in fixed):
        raise members.refused("history.track", f"names {shown(name)}, which is a key column or the sequence")
    if sequence and {name.lower() for name in sequence} <= {name.lower() for name in key_columns}:
        raise members.refused("sequence", f"names keyColumns alone: {shown(sequence)} orders no changes of one key")
    if deletes != HARD and not key_columns:
        raise members.refused("deletes", f"{shown(deletes)} needs keyColumns")
    found = TableOptions(deletes, sequence, late_days or LATE_DAYS, history, freshness)
    return found if found != NO_OPTIONS else NO_OPTIONS


def _days(members: Members, option: str) -> int | None:
    value = members.take(option)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 36500 or value != int(value):
        raise members.wrong(option, value, "must be a whole number of days from 1 to 36500")
    return int(value)


def _freshness(members: Members) -> float:
    """The goal in seconds, which is given as a duration such as 30s; 0 where there is none."""
    value = members.take("freshness")
    if value is None:
        return 0.0
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < seconds <= 3650 * 86_400:
        raise members.wrong("freshness", value, 'must be a duration such as "30s", "5m" or "1h"')
    return seconds


def _columns(members: Members, option: str) -> tuple[str, ...]:
    """One column, or a list of them."""
    value = members.take(option)
    if value is None:
        return ()
    names = value if isinstance(value, list) and not isinstance(value, JsonObject) else [value]
    if not names or not all(is_text(name) and name.strip() for name in names):
        raise members.wrong(option, value, "must name a column, or be a list of column names")
    if len({name.lower() for name in names}) < len(names):
        raise members.refused(option, f"names a column twice: {shown(names)}")
    reserved = next((name for name in names if name.lower() in _RESERVED), None)
    if reserved is not None:
        raise members.refused(option, f"names {shown(reserved)}, which is no column of the source")
    return tuple(names)


def _histories(members: Members) -> tuple[HistoryOptions, ...]:
    """A mode, an object, or a list of them."""
    value = members.take("history")
    if value is None:
        return ()
    items = value if isinstance(value, list) and not isinstance(value, JsonObject) else [value]
    found: list[HistoryOptions] = []
    for number, item in enumerate(items):
        inner = item if isinstance(item, JsonObject) else JsonObject([("mode", item)])
        found.append(_history(members.wrap(f"history[{number}]" if len(items) > 1 else "history", inner)))
    if len({each.mode for each in found}) < len(found):
        raise members.refused("history", f"has a mode twice: {shown([each.mode for each in found])}")
    named = [each.name.lower() for each in found if each.name]
    if len(set(named)) < len(named):
        raise members.refused("history", f"gives two tables one name: {shown(named)}")
    return tuple(found)


def _history(members: Members) -> HistoryOptions:
    if "mode" not in members:
        raise members.wrong("mode", None, f'must be "{CHANGES}" or "{SCD2}"')
    mode = members.choice("mode", (CHANGES, SCD2), CHANGES)
    track = _columns(members, "track")
    name = members.text("name")
    members.refuse_rest()
    if name is not None and not name.strip():
        raise members.wrong("name", name, "must be the name of a table")
    if track and mode != SCD2:
        raise members.refused("track", f'has a meaning for the mode "{SCD2}" alone')
    return HistoryOptions(mode, name or "", track)
