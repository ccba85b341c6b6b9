"""A column of a Delta table as Unity Catalog describes it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_NAMES = {
    "boolean": ("boolean", "BOOLEAN"), "byte": ("tinyint", "BYTE"), "short": ("smallint", "SHORT"),
    "integer": ("int", "INT"), "long": ("bigint", "LONG"), "float": ("float", "FLOAT"), "double": ("double", "DOUBLE"),
    "date": ("date", "DATE"), "timestamp": ("timestamp", "TIMESTAMP"),
    "timestamp_ntz": ("timestamp_ntz", "TIMESTAMP_NTZ"), "string": ("string", "STRING"),
    "binary": ("binary", "BINARY"), "variant": ("variant", "VARIANT"),
}  # fmt: skip
"""For each primitive type of Delta its text in SQL, and its name in the interface."""

_NESTED = {"struct": "STRUCT", "array": "ARRAY", "map": "MAP"}
_DECIMAL = re.compile(r"decimal\((\d+), ?(-?\d+)\)")


def columns_of(schema: Mapping[str, Any], partition_columns: Sequence[str]) -> list[dict[str, Any]]:
    """The columns of a table, from the schema of its Delta log."""
    return [_column(field, place, partition_columns) for place, field in enumerate(schema["fields"])]


def _column(field: Mapping[str, Any], place: int, partition_columns: Sequence[str]) -> dict[str, Any]:
    kind, comment = field["type"], field.get("metadata", {}).get("comment")
    found = {
        "name": field["name"], "type_text": _text(kind), "type_json": json.dumps(field), "type_name": _name(kind),
        "position": place, "nullable": field["nullable"],
    }  # fmt: skip
    if decimal := isinstance(kind, str) and _DECIMAL.fullmatch(kind):
        found |= {"type_precision": int(decimal[1]), "type_scale": int(decimal[2])}
    if comment:
        found["comment"] = comment
    if field["name"] in partition_columns:
        found["partition_index"] = list(partition_columns).index(field["name"])
    return found


def _name(kind: Any) -> str:
    if isinstance(kind, str):
        return "DECIMAL" if kind.startswith("decimal") else _NAMES.get(kind, ("", "USER_DEFINED_TYPE"))[1]
    return _NESTED.get(kind["type"], "USER_DEFINED_TYPE")


def _text(kind: Any) -> str:
    """The type as SQL writes it: `struct<a:int,b:array<string>>`."""
    if isinstance(kind, str):
        return kind.replace(" ", "") if kind not in _NAMES else _NAMES[kind][0]
    if kind["type"] == "struct":
        inner = (f"{_quoted(each['name'])}:{_text(each['type'])}" for each in kind["fields"])
        return f"struct<{','.join(inner)}>"
    if kind["type"] == "array":
        return f"array<{_text(kind['elementType'])}>"
    return f"map<{_text(kind['keyType'])},{_text(kind['valueType'])}>"


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"
