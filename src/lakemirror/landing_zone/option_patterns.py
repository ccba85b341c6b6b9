"""Options for many tables: the setting `tables`, `{"sales.*": {"deletes": "soft"}}` in `mirroring.json` (history.md).

table ─▶ patterns that match it, the most exact first ─▶ for each option, the first that has it
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakemirror.landing_zone.forgiving_json import JsonError, JsonObject, Members, invalid, parse_json

OptionPatterns = tuple[tuple[str, str], ...]
"""Patterns in the order of the file, each with its options as JSON text, which nobody has checked yet."""

_FILE = "mirroring.json"


def options_for(table: str, patterns: OptionPatterns) -> Members | None:
    """The options that the patterns give a table; None where no pattern matches its name. TableError `metadata-invalid`
    for a pattern that matches and holds no object.

    The most exact pattern: one without a wildcard, then the one with most characters beside `*`, then the first.
    """
    found: Members | None = None
    for pattern, text in sorted(_matching(table, patterns), key=lambda each: _exactness(each[0]), reverse=True):
        named = f'lakemirror.tables["{pattern}"]'
        try:
            value, _ = parse_json(text)
        except JsonError as error:
            raise invalid(_FILE, f"{named} is {error.reason}") from error
        members = Members(_FILE, "", JsonObject()).wrap(named, value)
        if found is None:
            found = members
        else:
            found.fill_up(members)
    return found


def _matching(table: str, patterns: OptionPatterns) -> Iterator[tuple[str, str]]:
    for pattern, text in patterns:
        if re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), table, re.DOTALL):
            yield pattern, text


def _exactness(pattern: str) -> tuple[bool, int]:
    return "*" not in pattern, len(pattern.replace("*", ""))
