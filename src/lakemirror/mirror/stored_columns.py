"""Whether a table still has the columns that its rows were written with (contract section 10); pure.

    apply ─▶ property: name of each key column ─▶ its name in the data files
    look  ─▶ does the table have a column of that name, with that name in the data files? ─▶ else the table stops

Another writer can rename and drop columns once the table has column mapping. A column that was dropped and added again
has another name in the data files, and is NULL in all older rows. A key column that no change file has typed yet is not
in the property: it is NULL in all rows, and nobody has dropped it.

Other columns may go: a change file that still has one adds a new column, with a warning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lakemirror.delta.protocol import MAPPING
from lakemirror.delta.schema import PHYSICAL_NAME, Column
from lakemirror.errors import TableError
from lakemirror.landing_zone.metadata import Warned

KEYS_PROPERTY = "lakemirror.keyColumns"
STORED_PROPERTY = "lakemirror.storedKeyColumns"


def key_properties(metadata: Mapping[str, Any], key_columns: Sequence[str]) -> dict[str, str]:
    """The properties of a table that name its key columns; `metadata` with the columns after the apply."""
    held = stored_names(metadata)
    names = {name.lower(): name for name in held}
    stored = {names[key.lower()]: held[names[key.lower()]] for key in key_columns if key.lower() in names}
    return {KEYS_PROPERTY: json.dumps(list(key_columns)), STORED_PROPERTY: json.dumps(stored)}


def stored_names(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The name of each column in the data files, by its name in the table."""
    mapped = (metadata.get("configuration") or {}).get(MAPPING, "none") != "none"
    fields = json.loads(metadata["schemaString"])["fields"]
    return {
        field["name"]: (field.get("metadata") or {}).get(PHYSICAL_NAME, field["name"]) if mapped else field["name"]
        for field in fields
    }


def missing_key_columns(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The key columns that another writer renamed or dropped, each with the name that it has now; '' for none."""
    configuration = metadata.get("configuration") or {}
    held = stored_names(metadata)
    wanted = {key.lower(): (key, stored) for key, stored in _recorded(configuration, held).items()}
    for name, stored in held.items():
        if name.lower() in wanted and wanted[name.lower()][1] == stored:
            del wanted[name.lower()]
    now = {stored: name for name, stored in held.items()}
    return {key: now.get(stored, "") for key, stored in wanted.values()}


def check_key_columns(missing: Mapping[str, str], table: str) -> None:
    """TableError `key-columns-missing-in-table` if a key column is missing."""
    if not missing:
        return
    told = [f"{key!r} ({f'its values are in {now!r}' if now else 'dropped'})" for key, now in missing.items()]
    raise TableError(
        "key-columns-missing-in-table",
        f"{table}: another writer renamed or dropped key columns that rows were written with: {', '.join(told)}",
        table=table,
        column=next(iter(missing)),
    )


def replaced_columns(
    before: Mapping[str, Any], now: Mapping[str, Any], after: Sequence[Column], file: str
) -> tuple[Warned, ...]:
    """A warning for each column that another writer renamed or dropped, and that an apply adds again.

    `before`: the table's metadata after our last apply, `now`: before this one; `after`: the columns after this one.
    `file`: a change file of this apply.
    """
    stored, held = stored_names(before), stored_names(now)
    lower, names = {name.lower() for name in held}, {stored: name for name, stored in held.items()}
    again = {column.name.lower() for column in after} - lower
    warnings = []
    for name, in_files in stored.items():
        if name.lower() in again:
            what = (
                f"renamed column {name!r} to {names[in_files]!r}" if in_files in names else f"dropped column {name!r}"
            )
            message = f"another writer {what}: a change file that still has it adds a new column, NULL in older rows"
            warnings.append(Warned("column-added-again", message, file))
    return tuple(warnings)


def _recorded(configuration: Mapping[str, str], held: Mapping[str, str]) -> dict[str, str]:
    """The key columns and their names in data files as the last apply recorded them.

    Without that record, all declared key columns of a table with column mapping count as recorded, as they are now if
    they are there: without column mapping, nobody can rename or drop a column.
    """
    try:
        return dict(json.loads(configuration[STORED_PROPERTY]))
    except (KeyError, ValueError, TypeError):
        if configuration.get(MAPPING, "none") == "none":
            return {}
    spelled = {name.lower(): stored for name, stored in held.items()}
    return {key: spelled.get(key.lower(), key) for key in json.loads(configuration.get(KEYS_PROPERTY, "[]"))}


__all__ = [
    "KEYS_PROPERTY", "check_key_columns", "key_properties", "missing_key_columns", "replaced_columns", "stored_names",
]  # fmt: skip
