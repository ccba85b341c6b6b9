"""`_partnerEvents.json`: who publishes (contract section 1). Only shown to people; a bad file is never an error of a
table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.metadata import Warned
from lakemirror.landing_zone.zone import Zone
from lakemirror.storage import Storage

MAX_SIZE = 1024 * 1024  # bytes


@dataclass(frozen=True)
class Partner:
    """The publisher as it describes itself; empty where it says nothing."""

    name: str = ""
    source_type: str = ""
    source_version: str = ""
    additional: Mapping[str, str] = field(default_factory=dict)


def read_partner(storage: Storage, zone: Zone) -> tuple[Partner | None, Warned | None]:
    """Who publishes into this landing zone, or None; and a warning where the file is there and cannot be used."""
    entry = zone.partner_events
    if entry is None:
        return None, None
    try:
        partner = parse_partner(storage.read(entry.path, MAX_SIZE))
    except FileNotFoundError:
        return None, None
    except LakemirrorError:
        partner = None
    if partner is not None:
        return partner, None
    return None, Warned("partner-events-invalid", f"{entry.name} does not say who publishes", entry.path)


def parse_partner(data: bytes) -> Partner | None:
    """What the file says, in any spelling of its property names; None where it is no JSON object."""
    try:
        content = json.loads(data.decode(json.detect_encoding(data)))
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    top = _lower(content)
    source = _lower(top.get("sourceinfo"))
    additional = source.get("additionalinformation")
    return Partner(
        name=_text(top.get("partnername")),
        source_type=_text(source.get("sourcetype")),
        source_version=_text(source.get("sourceversion")),
        additional={str(key): _text(value) for key, value in additional.items()}
        if isinstance(additional, dict)
        else {},
    )


def _lower(value: Any) -> dict[str, Any]:
    return {str(name).lower(): each for name, each in value.items()} if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    """A scalar as text: publishers write versions as numbers, too."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, (int, float, bool)) else ""
