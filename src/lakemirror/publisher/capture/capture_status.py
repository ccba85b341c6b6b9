"""What a capture has reached: per table from the landing zone, and from the source what only the source can say."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.publisher.capture.capture_position import read_zone_state
from lakemirror.publisher.landing import Landing

_NEXT_TO_NOTHING = 1 << 20  # bytes


@dataclass(frozen=True)
class SlotView:
    """What the source says of the slot. `wal_status`: as PostgreSQL has it, or `gone`. `kept_back`: bytes of log.
    `now`: the position at the end of the log. `active`: a capture reads it.
    """

    wal_status: str
    kept_back: int
    now: int
    active: bool


def capture_status(landing: Landing, slot: SlotView | None = None) -> dict[str, Any] | None:
    """The report of `capture status --json` (sources.md, 10); None where no capture publishes to this landing zone.

    Without `slot` the source was not asked: `logKeptBackBytes`, `walStatus` and `secondsBehind` are null.
    """
    said = read_zone_state(landing.folder(LANDING_ZONE))
    if said is None:
        return None
    behind = None if slot is None else _seconds_behind(said, slot)
    return {
        "source": said.get("source"),
        "name": said.get("name"),
        "slot": said.get("slot"),
        "logKeptBackBytes": None if slot is None else slot.kept_back,
        "walStatus": None if slot is None else slot.wal_status,
        "tables": [_table(each, behind) for each in said.get("tables", [])],
    }


def _table(said: Mapping[str, Any], behind: float | None) -> dict[str, Any]:
    return {
        "table": said.get("table"),
        "phase": said.get("phase"),
        "rowsLoaded": said.get("rowsLoaded"),
        "position": said.get("position"),
        "secondsBehind": behind if said.get("phase") == "streaming" else None,
        "files": said.get("files"),
        "errorCode": said.get("errorCode") or None,
        "errorMessage": said.get("errorMessage") or None,
    }


def _seconds_behind(said: Mapping[str, Any], slot: SlotView) -> float:
    """The age of the newest transaction that is in the landing zone; 0 if the source has written next to nothing since.

    An idle database writes some log, too, which a capture that runs confirms now and then.
    """
    written = slot.now - int(said.get("position") or 0)
    if written <= 0 or (slot.active and written < _NEXT_TO_NOTHING):
        return 0.0
    committed = float(said.get("committed") or 0) or float(said.get("time") or 0)
    return round(max(time.time() - committed, 0.0), 3)
