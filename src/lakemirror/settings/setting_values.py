"""Values of settings that have a form of their own: clients, a time zone, the name of a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lakemirror.bounded_json import parsed
from lakemirror.errors import LakemirrorError

_MOST_READERS = 1000  # looked up in each pass
_MOST_PATTERNS = 1000  # compared with each table


def readers_of(value: Any) -> tuple[str, ...]:
    """The clients as given; `TABLE=CLIENT` for clients of one table. In an object, the clients under `*` are those of
    all tables.
    """
    if isinstance(value, Mapping):
        listed = {name: [each] if isinstance(each, str) else each for name, each in value.items()}
        value = [each if name == "*" else f"{name}={each}" for name, clients in listed.items() for each in clients]
    if not all(isinstance(item, str) for item in value):
        raise TypeError(value)
    if len(value) > _MOST_READERS:
        raise LakemirrorError("setting-invalid", f"readers has more than {_MOST_READERS:,} clients")
    return tuple(value)


def options_of(value: Any) -> tuple[tuple[str, str], ...]:
    """Patterns of tables, each with its options as JSON text. From an object, from its JSON text, or made before.

    The options are not checked: a wrong one stops the tables that it concerns, not the database.
    """
    if isinstance(value, tuple):
        value = {pattern: parsed(text) for pattern, text in value}
    elif isinstance(value, str):
        value = parsed(value)
    if not isinstance(value, Mapping) or not all(isinstance(pattern, str) and pattern for pattern in value):
        raise TypeError(value)
    if len(value) > _MOST_PATTERNS:
        raise LakemirrorError("setting-invalid", f"tables has more than {_MOST_PATTERNS:,} patterns")
    try:
        return tuple((pattern, json.dumps(options)) for pattern, options in value.items())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def zoneless(value: str, where: str) -> str:
    """`utc`, `ntz`, or the name of a time zone that this machine knows."""
    import zoneinfo  # few databases name a zone

    if value.lower() in ("utc", "ntz"):
        return value.lower()
    try:
        zoneinfo.ZoneInfo(value)
    except (OSError, ValueError, LookupError) as error:
        raise LakemirrorError(
            "setting-invalid",
            f"{where}: {value!r} is not utc, ntz or a time zone that this machine knows",
            hint="Name a zone such as Europe/Berlin. A machine without time zones gets them by: pip install tzdata",
        ) from error
    return value


def is_folder_name(name: str) -> bool:
    """True for the name of one folder, and for an empty name. Delta readers skip names that begin with _ or a dot."""
    return not name.startswith(("_", ".")) and name.isprintable() and not set(name) & {"/", "\\"}
