"""Columns of change files that say what a row does, and are never columns of a table (contract sections 3 and 3a)."""

from __future__ import annotations

ROW_MARKER = "__rowMarker__"
UNCHANGED = "__unchangedColumns__"
NEVER_COLUMNS = frozenset({ROW_MARKER, UNCHANGED})

__all__ = ["NEVER_COLUMNS", "ROW_MARKER", "UNCHANGED"]
