"""Names of data files: partition values as Delta writes them, folder names as in Hive, paths as in the log.

    {"region": "eu/north"} ─▶ on disk region=eu%2Fnorth/part-….parquet, in the log region=eu%252Fnorth/part-….parquet

Source: Delta protocol, "Partition Value Serialization" and "Add File". The path in an action is a percent-encoded URI.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from lakemirror.delta.attempt_ids import attempt_id
from lakemirror.storage.place import Place, place

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
CHANGE_FOLDER = "_change_data"
"""The folder of the change data feed's files, within the table's folder."""

_LONGEST_NAME = 255  # bytes of a file name on most file systems
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(number) for number in range(32)}


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

    `version`: of the table, the only one that may name the file; None: any (`attempt_ids.py`). `values`: the file's
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
