"""Columns of change files that say what a row does, and are never columns of a table (contract sections 3 and 3a).

Beside them the columns that lakemirror adds to tables with options, which no source may have.
"""

from __future__ import annotations

ROW_MARKER = "__rowMarker__"
UNCHANGED = "__unchangedColumns__"
SOURCE_TIME = "__sourceTimestamp__"
"""When the change was made in the source: the time of a soft delete, the begin of a version."""

NEVER_COLUMNS = frozenset({ROW_MARKER, UNCHANGED, SOURCE_TIME})

DELETED, DELETED_AT = "__deleted", "__deleted_at"
"""Columns of tables with soft deletes: is the row deleted (never NULL), and since when (NULL for living rows)."""

__all__ = ["DELETED", "DELETED_AT", "NEVER_COLUMNS", "ROW_MARKER", "SOURCE_TIME", "UNCHANGED"]
