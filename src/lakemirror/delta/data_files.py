"""Names of data files: partition values as Delta writes them, folders as Hive names them, paths as the log has them.

    {"region": "eu/north"} ─▶ on disk region=eu%2Fnorth/part-….parquet, in the log region=eu%252Fnorth/part-….parquet

Delta protocol, "Partition Value Serialization" and "Add File": the path in an action is a URI, percent-encoded.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from lakemirror.storage.place import Place, place

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
CHANGE_FOLDER = "_change_data"
"""Where the files of the change data feed are, below the table's folder."""

_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(number) for number in range(32)}


def data_file(table: str | Place, path: str) -> Place:
    """The file that the `path` of an `add`, `remove` or `cdc` action names: a URI, relative to the table's folder or
    absolute."""
    if path.startswith("file:"):
        return place(path)
    if urlsplit(path).scheme and "/" in path:
        return place(unquote(path))
    return place(table) / unquote(path)


def logged_path(below: str) -> str:
    """The `path` of an action for a file below the table's folder."""
    return quote(below, safe="/=-_.~!$&'()*+,;@")


def new_name(values: Mapping[str, str | None], *, feed: bool = False, codec: str = "snappy") -> str:
    """The path below the table's folder of a new data file with these partition values, by physical name.

    `feed`: a file of the change data feed. `codec`: goes into the name; empty where it is not known.
    """
    ending = f"c000{'.' if codec else ''}{codec}.parquet"
    name = f"{'cdc' if feed else 'part'}-00000-{uuid.uuid4()}{'.' if feed else '-'}{ending}"
    folders = [f"{_escaped(column)}={_escaped(value or HIVE_NULL)}" for column, value in values.items()]
    return "/".join([*([CHANGE_FOLDER] if feed else []), *folders, name])


def partition_value(value: Any) -> str | None:
    """A value as `partitionValues` holds it. The empty string is NULL there, as the protocol says."""
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
