"""Data files: their names on disk and in the log, the attempt that a name tells, the `remove` action.

    {"region": "eu/north"} ─▶ on disk region=eu%2Fnorth/part-….parquet, in the log region=eu%252Fnorth/part-….parquet
    attempt_id(17) ─▶ part-00000-00000000-0011-8a3c-….parquet ─▶ version_in ─▶ 17

An attempt is committed as the version after its snapshot or never (`delta/commit.py`). Once that version exists, a file
for it that the commit does not name is in no version, and never will be. The ids are UUIDs of version 8, whose content
is up to the writer (RFC 9562): 48 bits version of the table, 12 bits mark, 62 random bits. Ids of other writers are
random UUIDs of version 4, or lack the mark.

Source: Delta protocol, "Partition Value Serialization" and "Add File". The path in an action is a percent-encoded URI.
"""

from __future__ import annotations

import datetime
import re
import secrets
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from lakemirror.storage.place import Place, place

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
CHANGE_FOLDER = "_change_data"
"""The folder of the change data feed's files, within the table's folder."""

_OF_A_REMOVE = ("path", "partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")
_LONGEST_NAME = 255  # bytes of a file name on most file systems
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(number) for number in range(32)}
_KIND, _MARK = 8, 0xA3C
_VARIANT = 0b10
_MOST_VERSIONS = 1 << 48
_ATTEMPT_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8a3c-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def data_file(table: str | Place, path: str) -> Place:
    """The file that the `path` of an `add`, `remove` or `cdc` action names.

    `path`: a URI, absolute or relative to the table's folder.
    """
    if path.startswith("file:"):
        return place(path)
    if urlsplit(path).scheme and "/" in path:
        return place(unquote(path))
    return place(table) / unquote(path)


def logged_path(below: str) -> str:
    """The `path` of an action for a file in the table's folder. `below`: the file's path relative to that folder."""
    return quote(below, safe="/=-_.~!$&'()*+,;@")


def new_name(
    values: Mapping[str, str | None], *, feed: bool = False, codec: str = "snappy", version: int | None = None
) -> str:
    """A new, unique path for a data file, relative to the table's folder.

    `version`: of the table, the only one that may name the file; None: any (`data_files.py`). `values`: the file's
    partition values by physical column name. `feed`: the file is one of the change data feed. `codec`: becomes part of
    the name; empty if unknown. A value that is too long for a folder name gets no folders: readers take partition
    values from the log, never from the path (Delta protocol, "Data Files").
    """
    ending = f"c000{'.' if codec else ''}{codec}.parquet"
    name = f"{'cdc' if feed else 'part'}-00000-{attempt_id(version)}{'.' if feed else '-'}{ending}"
    folders = [f"{_escaped(column)}={_escaped(value or HIVE_NULL)}" for column, value in values.items()]
    if any(len(folder.encode()) > _LONGEST_NAME for folder in folders):
        folders = []
    return "/".join([*([CHANGE_FOLDER] if feed else []), *folders, name])


def removed(add: Mapping[str, Any], now: int, *, data_change: bool) -> dict[str, Any]:
    """The `remove` action of a data file. `now`: milliseconds since the epoch."""
    kept = {key: add[key] for key in _OF_A_REMOVE if key in add}
    return {**kept, "deletionTimestamp": now, "dataChange": data_change, "extendedFileMetadata": True}


def partition_value(value: Any) -> str | None:
    """A value as the text that `partitionValues` holds; None for NULL. The empty string becomes NULL (protocol)."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime):
        zone = "" if value.tzinfo is None else "Z"
        return value.strftime("%Y-%m-%d" + ("T" if zone else " ") + "%H:%M:%S.%f") + zone
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def _escaped(text: str) -> str:
    return "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in text)


def attempt_id(version: int | None) -> uuid.UUID:
    """A new id for a file that only this version of the table can name; None: a file of any version."""
    if version is None or not 0 <= version < _MOST_VERSIONS:
        return uuid.uuid4()
    head = (version << 16) | (_KIND << 12) | _MARK
    return uuid.UUID(int=(((head << 2) | _VARIANT) << 62) | secrets.randbits(62))


def version_in(name: str) -> int | None:
    """The only version that can name the file of this name; None where the name does not say."""
    found = _ATTEMPT_ID.search(name)
    return uuid.UUID(found[0]).int >> 80 if found is not None else None
