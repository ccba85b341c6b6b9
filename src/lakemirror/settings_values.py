"""Values of settings that have a form of their own: clients, a time zone, the name of a folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakemirror.errors import LakemirrorError

_MOST_READERS = 1000  # looked up in each pass


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


__all__ = ["is_folder_name", "readers_of", "zoneless"]
