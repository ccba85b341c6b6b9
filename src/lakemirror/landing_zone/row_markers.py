"""The columns of change files that say what a row does: markers (contract section 3), partial rows (section 3a)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakemirror.bounded_json import parsed
from lakemirror.landing_zone.reserved_columns import NEVER_COLUMNS, ROW_MARKER, UNCHANGED

INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4


def can_mark(arrow_type: Any) -> bool:
    """True for an integer of any width and a string; the null type is that of a column of NULLs."""
    kind = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    return bool(pa.types.is_integer(kind) or is_text or pa.types.is_null(kind))


def can_name_columns(arrow_type: Any) -> bool:
    """True for a list of strings, and for a string with a JSON array (section 3a)."""
    kind = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    if pa.types.is_nested(kind) and not pa.types.is_struct(kind) and not pa.types.is_map(kind):
        kind = getattr(kind, "value_type", kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    return bool(is_text or pa.types.is_null(kind))


def column_names(text: str) -> list[str] | None:
    """The names in a JSON array of strings; None where the text is none."""
    try:
        names = parsed(text)
    except (ValueError, RecursionError):
        return None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def marker_number(text: str) -> int | None:
    """The whole number that a text marker stands for, with a sign or blanks around it; None where it is none."""
    stripped = text.strip(_BLANK)
    return int(stripped) if _WHOLE.fullmatch(stripped) else None


def misspelt_marker(names: Sequence[str]) -> str | None:
    """The column that is almost the row marker, in a file without one; None where there is none."""
    return None if ROW_MARKER in names else next((name for name in names if is_misspelt(name)), None)


def is_misspelt(name: str) -> bool:
    """True for a name that is `__rowMarker__` but for case, underscores, spaces and hyphens anywhere."""
    return name != ROW_MARKER and _essence(name) == _essence(ROW_MARKER)


def is_misspelt_names(name: str) -> bool:
    """True for a name with two underscores in front that is `__unchangedColumns__` but for case and filling."""
    return name.startswith("__") and name != UNCHANGED and _essence(name) == _essence(UNCHANGED)


def _essence(name: str) -> str:
    return _FILLING.sub("", name).lower()


_FILLING = re.compile(r"[_\s-]")
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_BLANK = " \t\n\v\f\r"


__all__ = [
    "DELETE", "INSERT", "NEVER_COLUMNS", "ROW_MARKER", "UNCHANGED", "UPDATE", "UPSERT", "can_mark",
    "can_name_columns", "column_names", "is_misspelt", "is_misspelt_names", "marker_number", "misspelt_marker",
]  # fmt: skip
