"""The actions of log files: their form is checked, and those that were parsed lately are kept.

    path ─▶ its bytes are read ─▶ equal to those parsed before ─▶ the same actions
                                └ other bytes, or none kept    ─▶ parsed, checked, kept

Each look and each apply read the same commits again. A file is always read, and kept actions are used only where every
byte is the same. So they are what parsing gives, whoever wrote the file. Actions are shared by all callers: nobody may
change them.

Any program may have written the log. Only what the code relies on is checked: fields that are unknown here, or that a
writer left out, are no error. Source: Delta protocol, "Actions" and "Schema Serialization Format".
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from lakemirror.storage.place import Place

MOST_BYTES = 48 << 20
"""Memory of all kept actions, by the estimate of `_size`."""

_OF_AN_ACTION = 1024  # bytes of the Python objects of an action beside its text: measured


class _Kept(NamedTuple):
    data: bytes
    actions: Sequence[dict[str, Any]]

    @property
    def size(self) -> int:
        return 3 * len(self.data) + _OF_AN_ACTION * len(self.actions)


class ParsedLog:
    """The actions of the files that were read last, at most `most_bytes`. Safe for several threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._left = self._most = most_bytes
        self._held: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def actions(
        self, path: Place, what: str, data: bytes, parse: Callable[[], Sequence[dict[str, Any]]]
    ) -> Sequence[dict[str, Any]]:
        """The actions of a file with these bytes, from memory or by `parse`. `what`: which of its actions.

        Errors of `parse` are raised, and nothing is kept.
        """
        name = (str(path), what)
        with self._lock:
            kept = self._held.get(name)
            if kept is not None:
                self._held.move_to_end(name)
        if kept is not None and kept.data == data:
            return kept.actions
        made = _Kept(data, parse())
        with self._lock:
            before = self._held.pop(name, None)
            self._left += before.size if before is not None else 0
            if made.size <= self._most // 4:
                self._held[name] = made
                self._left -= made.size
            while self._left < 0:
                self._left += self._held.popitem(last=False)[1].size
        return made.actions


LATELY_PARSED = ParsedLog()
"""What all tables of the process share."""


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


class WrongLine(ValueError):
    """A line of a commit file that is no action. `number`: from 1. `reason` follows the name of the file."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number, self.reason = number, reason


def actions_of(data: bytes) -> list[dict[str, Any]]:
    """The actions of a commit file, without fields that are null. WrongLine."""
    actions: list[dict[str, Any]] = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            action = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise WrongLine(number, f" is not JSON: {error}") from error
        if not isinstance(action, dict):
            raise WrongLine(number, " is not an action")
        action = {kind: value for kind, value in action.items() if value is not None}
        if (reason := wrong_form(action)) is not None:
            raise WrongLine(number, f": {reason}")
        actions.append(action)
    return actions


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
