"""When a table's folder was missed first, and whether that is long enough ago to drop the table (contract section 7).

    a look that misses a folder ─▶ note with its time ─▶ a look of a later pass, `drop_after` seconds later ─▶ gone

Clocks are set, and engines on several machines share the note. So the time is measured by two clocks, and the one that
shows less counts: the storage's, which stamps the note, and that of the machine since its start, which nobody sets.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

NOTE = "Files/Monitoring/missing.json"
MOST_BYTES = 16 * 1024**2  # of the note


@dataclass(frozen=True)
class Look:
    """The moment of a look, by the clock of its machine since it was started, and by the storage's clock.

    `stored`: seconds since the epoch; None if the storage's clock is not known.
    """

    machine: str
    clock: float
    stored: float | None = None

    def since(self, first: Look) -> float | None:
        """Seconds since an earlier look; None if no clock has seen both. Negative: a clock was set back."""
        found = []
        if self.machine == first.machine:
            found.append(self.clock - first.clock)
        if self.stored is not None and first.stored is not None:
            found.append(self.stored - first.stored)
        return min(found, default=None)


def now() -> Look:
    """This moment by the machine's clock."""
    return Look(_machine(), time.monotonic())


def note_of(missed: Mapping[str, Look]) -> bytes:
    """The note: the first look that missed each target. A look without `stored` was made when the note was written."""
    rows = {target: {"since": each.stored, "machine": each.machine, "clock": each.clock}
            for target, each in sorted(missed.items())}  # fmt: skip
    return json.dumps(rows).encode()


def read_note(data: bytes, written: float) -> dict[str, Look]:
    """What a note says. `written`: when it was written, by the storage's clock. What makes no sense is left out."""
    try:
        rows = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(rows, dict):
        return {}
    found = {target: _look(row, written) for target, row in rows.items()}
    return {target: look for target, look in found.items() if look is not None}


def _look(row: Any, written: float) -> Look | None:
    if not isinstance(row, dict) or not isinstance(row.get("machine"), str) or not _is_time(row.get("clock")):
        return None
    since = row.get("since")
    if since is not None and not _is_time(since):
        return None
    return Look(row["machine"], row["clock"], written if since is None else since)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@lru_cache(1)
def _machine() -> str:
    """The name of this machine's start; without one, of this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return uuid.uuid4().hex


__all__ = ["MOST_BYTES", "NOTE", "Look", "note_of", "now", "read_note"]
