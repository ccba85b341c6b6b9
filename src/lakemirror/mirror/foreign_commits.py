"""What other writers did to a mirrored table since our last apply (contract section 10, "Other writers"); pure.

commits, newest first, down to our last apply ─▶ judge ─▶ do rows and position still match?
                                                          └─▶ which commits changed data
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lakemirror.delta.log import Action
from lakemirror.landing_zone.metadata import Warned
from lakemirror.mirror.position import Position, current_position

OURS = "lakemirror"
"""The `engineInfo` of commits that lakemirror makes without Delta."""

_REPLACES = ("REPLACE TABLE", "CREATE OR REPLACE TABLE")  # REPLACE COLUMNS keeps all rows


class ForeignChange(NamedTuple):
    """A commit of another writer that changed data. `time`: ISO 8601 in UTC, empty where the commit has none."""

    version: int
    operation: str
    writer: str
    time: str

    def __str__(self) -> str:
        when = f" at {self.time}" if self.time else ""
        return f"version {self.version}: {self.operation} by {self.writer}{when}"


class Verdict(NamedTuple):
    """`restored`: the commit after which rows and position no longer match; None where they match. `changes`:
    other commits that changed data, oldest first."""

    restored: ForeignChange | None = None
    changes: tuple[ForeignChange, ...] = ()

    @property
    def warnings(self) -> list[Warned]:
        """A warning `changed-by-others` for each commit that changed data."""
        return [Warned("changed-by-others", f"another writer changed rows: {change}") for change in self.changes]


def judge(newer: Sequence[tuple[int, Sequence[Action]]], applied: int | None, position: Position | None) -> Verdict:
    """What the commits after our last apply mean.

    `newer`: version and actions of each, newest first. `applied`: the version of our last apply, `position` that it
    set; None where its commit is no longer in the log.

    A RESTORE to our last apply or a later version undoes only what others did since. After any other RESTORE, a
    REPLACE TABLE, or a commit that sets an earlier position, rows and position no longer match.
    """
    changes: list[ForeignChange] = []
    newest_seen = None
    for version, actions in newer:
        if newest_seen is not None and version > newest_seen:
            continue  # a later RESTORE undid it
        info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        operation = str(info.get("operation", "")).upper()
        if operation == "RESTORE":
            target = _restored_version(info)
            if target is None or applied is None or target < applied:
                return Verdict(_described(version, info))
            newest_seen = target
        elif operation.startswith(_REPLACES) or _moves_back(actions, position):
            return Verdict(_described(version, info))
        elif info.get("engineInfo") != OURS and any(_changes_data(action) for action in actions):
            changes.append(_described(version, info))
    return Verdict(None, tuple(reversed(changes)))


def _restored_version(info: Mapping[str, Any]) -> int | None:
    """The version that a RESTORE went back to; None where only a time was given."""
    given = info.get("operationParameters")
    try:
        return int(str(given["version"]))  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        return None


def _moves_back(actions: Sequence[Action], position: Position | None) -> bool:
    """True for a commit that sets an earlier position than our last apply."""
    given = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
    found = current_position(given)
    if found is None or position is None:
        return False
    return (found.generation, found.number) < (position.generation, position.number)


def _changes_data(action: Action) -> bool:
    return any((action.get(kind) or {}).get("dataChange") is True for kind in ("add", "remove"))


def _described(version: int, info: Mapping[str, Any]) -> ForeignChange:
    moment = info.get("timestamp")
    time = ""
    if isinstance(moment, int | float) and 0 <= moment < 1e14:
        time = datetime.datetime.fromtimestamp(moment / 1000, datetime.timezone.utc).isoformat(timespec="seconds")
    writer = str(info.get("engineInfo") or info.get("clientVersion") or "an unknown writer")
    return ForeignChange(version, str(info.get("operation") or "a commit without a name"), writer, time)
