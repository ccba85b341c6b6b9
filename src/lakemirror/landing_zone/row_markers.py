"""The row markers of the contract (section 3)."""

from __future__ import annotations

ROW_MARKER = "__rowMarker__"
INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4


def is_misspelt(name: str) -> bool:
    """True for a name that is `__rowMarker__` but for case, or for underscores and spaces around it."""
    return name != ROW_MARKER and name.strip("_ ").lower() == ROW_MARKER.strip("_").lower()
