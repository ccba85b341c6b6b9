"""What `lakemirror check` finds, and what the engine warns of: code, severity, place, advice.

An error stops its table (its code is in `errors.CODES`), a warning does not, an advice is about cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from lakemirror.errors import CODES, LakemirrorError
from lakemirror.landing_zone.warned import Warned, parted

Severity = Literal["error", "warning", "advice"]

# Beside the codes of errors.py: what is reported and never fatal, with the edit that helps.
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
    """The finding that says what would stop the table."""
    return Finding(
        error.code, "error", error.message, error.hint, error.table or table, error.file or "", error.row, error.column
    )


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


_MOST_ALIKE = 3

__all__ = ["REPORTED", "Finding", "Severity", "from_error", "from_warning", "reported", "summed_up"]
