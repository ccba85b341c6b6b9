"""What a person must put right although no table has an error: nothing will ever be applied there (exit code 3).

status of the tables, warnings about the database ─▶ what needs attention, by table or place
"""

from __future__ import annotations

from collections.abc import Iterable

from lakemirror.error_codes import CODES
from lakemirror.landing_zone.findings import REPORTED, Warned
from lakemirror.status.status import TableStatus

_OF_FOLDERS = ("file-ignored", "detection-undeclared", "not-a-file")
"""Warnings that need a person where a table folder has no change file at all; else they are only shown."""

_OF_DATABASES = ("file-stray", "readers-unmet")


def needing_attention(tables: Iterable[TableStatus], warnings: Iterable[Warned]) -> dict[str, Warned]:
    """The first such warning of each table, by its name, and of the database, by its place."""
    found: dict[str, Warned] = {}
    for table in tables:
        if not table.error_code and not table.position and not table.pending_files:
            for each in filter(_is_in_the_way, table.warnings):
                found.setdefault(table.name, each)
    for warned in warnings:
        if warned.code in _OF_DATABASES or warned.code in CODES:
            found.setdefault(warned.file, warned)
    return found


def hint_for(code: str) -> str:
    """The edit that helps; empty if none is known."""
    if code in CODES:
        return CODES[code].hint
    return REPORTED[code][1] if code in REPORTED else ""


def _is_in_the_way(warned: Warned) -> bool:
    """True for a file that its publisher meant to be applied: names with a dot in front are temporary."""
    return warned.code in _OF_FOLDERS and not warned.file.rpartition("/")[2].startswith(".")
