"""What is reported about a landing zone: warnings of the engine, findings of `lakemirror check`.

    found by a look + those of the looks before ─▶ lasting ─▶ what the status shows (contract section 11)

A finding has a code, a severity, a place and an advice. An error stops its table, and its code is in
`error_codes.CODES`; a warning does not, an advice is about cost. A warning about a state stays as long as it; one about
an event for a day.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lakemirror.error_codes import CODES
from lakemirror.errors import LakemirrorError

EVENTS = frozenset({"already-applied", "changed-by-others", "marker-lost"})
"""The codes of warnings about an event. All others are about a state: they go when a look does not find it any more."""

EVENT_LASTS = 86_400.0
"""Seconds for which a warning about an event stays."""

_MOST_ALIKE = 3  # warnings of one code that are all shown


class Warned(NamedTuple):
    """Something reported and never fatal: a stable code, one sentence, the file (relative to the database).

    `since`: when it began or happened, in seconds since the epoch; 0: when it was found first.
    """

    code: str
    message: str
    file: str = ""
    since: float = 0.0


def lasting(before: Sequence[Warned], found: Sequence[Warned], now: float) -> tuple[Warned, ...]:
    """The warnings after a look, each with its time: those found, and the events of the last day.

    `before`: the warnings after the look before, also of an earlier process. A time in the future counts as now: a
    clock was set back.
    """
    if not before and not found:
        return ()
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


Severity = Literal["error", "warning", "advice"]

# Beside the codes of error_codes.py: what is reported and never fatal, with the edit that helps.
REPORTED: dict[str, tuple[Severity, str]] = {
    # the landing zone
    "folder-skipped": (
        "warning",
        "Nothing to do if it is the publisher's own; else rename it: no leading _, and a name before .schema.",
    ),
    "not-a-file": (
        "warning",
        "Put a regular file or a real folder in its place: links, FIFOs, sockets and devices are never opened.",
    ),
    "file-stray": ("warning", "Move it into a table folder: Files/LandingZone/<table>/."),
    "readers-unmet": ("warning", "Do what the message says, or take the client out of the setting `readers`."),
    "table-empty": ("advice", "The table is made when its first change file arrives."),
    "partner-events-invalid": ("advice", 'Write {"partnerName": "…", "sourceInfo": {"sourceType": "…"}}.'),
    "marker-lost": ("warning", "Nothing to do; publishers should leave _mirror.json where it is."),
    "folder-missing": ("warning", "Put the folder back at once if its table is to stay; else nothing to do."),
    "folder-renamed": ("warning", "Publish the table again from number 1, or rename the folder back."),
    # metadata
    "metadata-lenient": ("warning", "Write valid JSON: other readers may be stricter."),
    "property-unknown": ("warning", "Correct its spelling, or remove it: it has no effect."),
    "schema-undeclared": ("warning", "Declare SchemaDefinition with the type of every column."),
    "keys-many": ("advice", "Keep to fewer than five key columns: each is compared for every change."),
    "text-looks-typed": (
        "warning",
        "Declare the column in SchemaDefinition, and how its text is written, if it is one.",
    ),
    "separator-doubtful": ("warning", "Declare the columnSeparator that the file uses."),
    # files
    "file-ignored": (
        "warning",
        "Name change files <20 digits>.<extension>, from 00000000000000000001, directly in the table folder.",
    ),
    "detection-undeclared": (
        "warning",
        'Write _metadata.json: {"keyColumns": ["…"], "fileDetectionStrategy": "LastUpdateTimeFileDetection"}, '
        "or name the files <20 digits>.parquet.",
    ),
    "file-incomplete": ("warning", "Nothing to do if it is being written; write to a name with _ in front and rename."),
    "number-missing": ("warning", "Publish the missing numbers: the files behind the gap wait for them."),
    "already-applied": ("warning", "Publish corrections under the next number: applied numbers are never read again."),
    "files-small": ("advice", "Collect changes for 15 seconds or more, or up to about 1 MB (a million narrow rows)."),
    "files-many": ("advice", "Write fewer, larger files: each costs a look, a move and a line in the manifest."),
    "file-large": ("advice", "Split it: files of up to about 1 GB can be applied in several steps."),
    # columns and rows
    "value-converted": ("warning", "Nothing to do if this is meant; else write the column in another type."),
    "row-marker-spelling": ("warning", "Spell it __rowMarker__: in another spelling it is an ordinary column."),
    "key-null": ("warning", "Give every row its key: rows whose key is NULL count as the same row."),
    "rows-unchecked": ("advice", "Nothing to do: a file this long is checked in part."),
}


@dataclass(frozen=True)
class Finding:
    """One finding for a publisher's author. `row` counts from 1 within the file.

    `file` is a file or a folder, relative to what was checked; `table` is empty for what concerns no single table.
    """

    code: str
    severity: Severity
    message: str
    advice: str
    table: str = ""
    file: str = ""
    row: int | None = None
    column: str | None = None


def reported(
    code: str, message: str, *, table: str = "", file: str = "", row: int | None = None, column: str | None = None
) -> Finding:
    """A finding with the severity and the advice of its code."""
    if code in REPORTED:
        severity, advice = REPORTED[code]
    else:
        severity, advice = "error", CODES[code].hint
    return Finding(code, severity, message, advice, table, file, row, column)


def from_error(error: LakemirrorError, table: str = "") -> Finding:
    """The finding that says what would stop the table. Its message does not begin with the file."""
    file, row = error.file or "", error.row
    message = error.message.removeprefix(f"{file}: ").removeprefix(f"{file}, row {row}: ")
    return Finding(error.code, "error", message, error.hint, error.table or table, file, row, error.column)


def from_warning(warned: Warned, table: str = "") -> Finding:
    return reported(warned.code, warned.message, table=table, file=warned.file)


def summed_up(warnings: Iterable[Warned]) -> list[Warned]:
    """The warnings to show, by code: all of up to _MOST_ALIKE of one code, else the first with their number."""
    by_code: dict[str, list[Warned]] = {}
    for warned in dict.fromkeys(warnings):
        by_code.setdefault(warned.code, []).append(warned)
    shown = []
    for same in by_code.values():
        if len(same) > _MOST_ALIKE:
            more = len(same) - 1 + sum(parted(each.message)[1] for each in same)
            same = [same[0]._replace(message=f"{parted(same[0].message)[0]} (and {more} more like it)")]
        shown += same
    return shown
