"""Columns of change files that say what a row does, and are never columns of a table (contract sections 3 and 3a);
and columns that lakemirror adds to tables with options for deletes, order or history."""

from __future__ import annotations

ROW_MARKER = "__rowMarker__"
UNCHANGED = "__unchangedColumns__"
SOURCE_TIME = "__sourceTimestamp__"
"""When the change was made in the source: the time of a soft delete, the begin of a version."""

NEVER_COLUMNS = frozenset({ROW_MARKER, UNCHANGED, SOURCE_TIME})

OPERATION, CHANGE_FILE, CHANGE_ROW, APPLIED_AT, LEFT_OUT = (
    "__operation", "__file", "__row", "__applied_at", "__unchanged",
)  # fmt: skip
"""What a table of changes has beside the columns of the source."""

DELETED, DELETED_AT = "__deleted", "__deleted_at"
"""What a table with soft deletes has: is the row deleted (never NULL), and since when (NULL for living rows)."""

START_AT, END_AT = "__START_AT", "__END_AT"
NEEDED_COLUMNS = (DELETED, DELETED_AT, START_AT, END_AT)
"""Those without whose values no later change could be applied."""

ADDED_COLUMNS = frozenset(
    {OPERATION, CHANGE_FILE, CHANGE_ROW, APPLIED_AT, LEFT_OUT, DELETED, DELETED_AT, START_AT, END_AT}
)
"""The columns that lakemirror adds to such tables; a source cannot have them there."""
