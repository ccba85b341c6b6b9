"""Whether an action of a Delta log has the form that the protocol gives it: any program may have written the log. Pure.

Only what the code relies on is checked. Fields that are unknown here, or that a writer left out, are no error.
Source: Delta protocol, "Actions" and "Schema Serialization Format".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_REMEMBERED = 1024  # schemas: most commits of a table repeat the last one
_TEXT, _WHOLE, _OBJECT, _LIST = (str,), (int,), (dict,), (list,)
_FIELDS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "add": {"path": _TEXT, "size": _WHOLE, "partitionValues": _OBJECT, "stats": _TEXT, "deletionVector": _OBJECT},
    "remove": {"path": _TEXT, "partitionValues": _OBJECT, "deletionVector": _OBJECT},
    "metaData": {"id": _TEXT, "schemaString": _TEXT, "partitionColumns": _LIST, "configuration": _OBJECT},
    "protocol": {
        "minReaderVersion": _WHOLE, "minWriterVersion": _WHOLE, "readerFeatures": _LIST, "writerFeatures": _LIST,
    },
    "txn": {"appId": _TEXT, "version": _WHOLE},
    "domainMetadata": {"domain": _TEXT},
    "sidecar": {"path": _TEXT},
    "commitInfo": {},
}  # fmt: skip
_REQUIRED = {
    "add": ("path", "size"), "remove": ("path",), "protocol": ("minReaderVersion", "minWriterVersion"),
    "txn": ("appId", "version"), "domainMetadata": ("domain",), "sidecar": ("path",),
}  # fmt: skip
_NAMES: Mapping[tuple[type, ...], str] = {
    _TEXT: "a string",
    _WHOLE: "an integer",
    _OBJECT: "an object",
    _LIST: "a list",
}


def wrong_form(action: Mapping[str, Any]) -> str | None:
    """What is wrong with one line of a commit, `{"add": {…}}`; None if nothing is."""
    for kind, value in action.items():
        fields = _FIELDS.get(kind)
        if fields is None:
            continue
        if not isinstance(value, dict):
            return f"{kind} is not an object"
        for name in _REQUIRED.get(kind, ()):
            if value.get(name) is None:
                return f"{kind} has no {name}"
        for name, types in fields.items():
            held = value.get(name)
            if held is not None and (not isinstance(held, types) or isinstance(held, bool)):
                return f"{name} of {kind} is not {_NAMES[types]}"
        vector = value.get("deletionVector") if kind in ("add", "remove") else None
        if vector is not None and not (_has_text(vector, "storageType") and _has_text(vector, "pathOrInlineDv")):
            return f"the deletion vector of {value['path']!r} has no storageType or no pathOrInlineDv"
        if kind == "metaData" and value.get("schemaString"):
            reason = _wrong_schema(value["schemaString"])
            if reason is not None:
                return f"schemaString of metaData {reason}"
    return None


@lru_cache(_REMEMBERED)
def _wrong_schema(text: str) -> str | None:
    try:
        return _wrong_type(json.loads(text), top=True)
    except ValueError as error:
        return f"is not JSON: {error}"
    except RecursionError:
        return "is nested too deeply"


def _wrong_type(kind: Any, *, top: bool = False) -> str | None:
    """What is wrong with a type of a schema; None if nothing is. Unknown names of types are no error."""
    if isinstance(kind, str) and not top:
        return None
    which = kind.get("type") if isinstance(kind, dict) else None
    if which == "struct":
        fields = kind.get("fields")
        if not isinstance(fields, list):
            return "has a struct without fields"
        for field in fields:
            if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
                return "has a field without name or type"
            if not isinstance(field.get("metadata", {}), dict):
                return f"has a field {field['name']!r} whose metadata is not an object"
            if (reason := _wrong_type(field["type"])) is not None:
                return reason
        return None
    if top:
        return "is not a struct"
    parts = {"array": ("elementType",), "map": ("keyType", "valueType")}.get(str(which))
    if parts is None or not isinstance(kind, dict) or not all(part in kind for part in parts):
        return f"has the unknown type {str(kind)[:80]}"
    return next((reason for part in parts if (reason := _wrong_type(kind[part])) is not None), None)


def _has_text(value: Mapping[str, Any], name: str) -> bool:
    return isinstance(value.get(name), str)


__all__ = ["wrong_form"]
