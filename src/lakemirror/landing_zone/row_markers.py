"""The row markers of the contract (section 3)."""

from __future__ import annotations

ROW_MARKER = "__rowMarker__"
INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4
