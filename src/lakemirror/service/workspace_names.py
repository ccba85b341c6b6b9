"""Which names a workspace and a mirrored database may have (specification of the service, sections 1, 2 and 4)."""

from __future__ import annotations

import re

RESERVED = frozenset({
    "v1", "ui", "metrics", "livez", "readyz", "openapi.json", "common", "adfs", "organizations", "onelake",
    "delta-sharing", "api",
})  # fmt: skip
"""First parts of an address that belong to the service."""

_WORKSPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_DISPLAY_NAME = re.compile(r"\w(?:[\w .-]{0,121}\w)?")
_GUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_workspace_name(name: str) -> bool:
    """True for 1 to 63 of `A-Z a-z 0-9 . _ -`, the first a letter or digit."""
    return _WORKSPACE.fullmatch(name) is not None


def is_reserved(name: str) -> bool:
    """True for a first part of an address that is no workspace."""
    return name.lower() in RESERVED


def is_display_name(name: str) -> bool:
    """True for 1 to 123 letters, digits and `_`, inside also space, `.` and `-`."""
    return _DISPLAY_NAME.fullmatch(name) is not None


def is_guid(text: str) -> bool:
    """True for a GUID in any case, without braces."""
    return _GUID.fullmatch(text.lower()) is not None
