"""Warnings: reported, never fatal. One is about a state and stays as long as it; one about an event stays for a day.

found by a look + those of the looks before ─▶ lasting ─▶ what the status shows (contract section 11)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

EVENTS = frozenset({"already-applied", "changed-by-others", "marker-lost"})
"""The codes of warnings about an event. All others are about a state: they go when a look does not find it any more."""

EVENT_LASTS = 86_400.0
"""Seconds for which a warning about an event stays."""


class Warned(NamedTuple):
    """Something reported and never fatal: a stable code, one sentence, the file (relative to the database).

    `since`: when it began or happened, in seconds since the epoch; 0: when it was found first.
    """

    code: str
    message: str
    file: str = ""
    since: float = 0.0


def lasting(before: Iterable[Warned], found: Iterable[Warned], now: float) -> tuple[Warned, ...]:
    """The warnings after a look, each with its time: those found, and the events of the last day.

    `before`: the warnings after the look before, also of an earlier process. A time in the future counts as now: a
    clock was set back.
    """
    known = {_key(warned): min(warned.since or now, now) for warned in before}
    current = {
        key: warned._replace(since=warned.since or known.get(key, now)) for warned in found for key in [_key(warned)]
    }
    events = [
        warned._replace(since=known[key])
        for warned in before
        for key in [_key(warned)]
        if warned.code in EVENTS and key not in current and now - known[key] < EVENT_LASTS
    ]
    return tuple(capped([*current.values(), *sorted(events, key=lambda event: -event.since)]))


def capped(warnings: Iterable[Warned], most: int = 20) -> list[Warned]:
    """The warnings, at most so many of one code: the last of them says how many there were."""
    by_code: dict[str, list[int]] = {}
    more: dict[str, int] = {}
    kept: list[Warned] = []
    for warned in warnings:
        places = by_code.setdefault(warned.code, [])
        message, left_out = parted(warned.message)
        more[warned.code] = more.get(warned.code, 0) + left_out
        if len(places) < most:
            places.append(len(kept))
            kept.append(warned._replace(message=message))
        else:
            more[warned.code] += 1
    for code, count in more.items():
        if count:
            last = by_code[code][-1]
            kept[last] = kept[last]._replace(message=f"{kept[last].message} (and {count} more)")
    return kept


_MORE = re.compile(r" \(and ([0-9]{1,9}) more\)$")  # that `capped` has left out


def parted(message: str) -> tuple[str, int]:
    """A message, and the number of warnings that `capped` left out behind it."""
    found = _MORE.search(message)
    return (message[: found.start()], int(found[1])) if found else (message, 0)


def _key(warned: Warned) -> tuple[str, str, str]:
    return warned.code, parted(warned.message)[0], warned.file


__all__ = ["EVENTS", "EVENT_LASTS", "Warned", "capped", "lasting", "parted"]
