"""Which files may have rows that a client asks for, by partition values and statistics.

    ["id >= 5", "region = 'eu'"], or a tree of JSON ─▶ Predicate ─▶ one bool a file

Hints are best effort: what is not understood matches every file. A file is left out only if no row of it can match;
bounds may be loose, since rows may have been deleted since. Source: Delta Sharing protocol, "SQL Expressions for
Filtering" and "JSON predicates for Filtering".
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakemirror.delta.log import Action, Snapshot
from lakemirror.delta.statistics import parse_statistics

_PHYSICAL = "delta.columnMapping.physicalName"
_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_KNOWN_TYPES = _INTEGERS | {"string", "date", "timestamp"}
_FLIPPED = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_OPERATIONS = {
    "equal": "=", "lessThan": "<", "lessThanOrEqual": "<=", "greaterThan": ">", "greaterThanOrEqual": ">=",
}  # fmt: skip
_MOST_DEPTH = 50
_MOST_COLUMNS = 16  # whose bounds are kept of a version
_MOST_HINTS, _MOST_TREE = 100, 32_768  # hints, and characters of a tree: each costs time for each file of the table

_COLUMN = r"`?([A-Za-z_]\w*)`?"
_LITERAL = r"(-?\d+|'(?:[^']|'')*')"
_COMPARED = re.compile(rf"\s*{_COLUMN}\s*(<=|>=|=|<|>)\s*{_LITERAL}\s*")
_COMPARED_FLIPPED = re.compile(rf"\s*{_LITERAL}\s*(<=|>=|=|<|>)\s*{_COLUMN}\s*")
_NULL_CHECK = re.compile(rf"\s*{_COLUMN}\s+is\s+(not\s+)?null\s*", re.IGNORECASE)

Value: TypeAlias = int | str | datetime.datetime


@dataclass(frozen=True)
class Bounds:
    """What a file tells of a column: least and greatest value, and whether it may hold NULL, or anything else.

    `low`, `high` None: not known.
    """

    low: Value | None = None
    high: Value | None = None
    may_be_null: bool = True
    may_be_value: bool = True


class FileBounds:
    """The bounds of all files of a version, column by column, in the order of `Snapshot.files`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._columns = {
            str(each["name"]).lower(): (
                str((each.get("metadata") or {}).get(_PHYSICAL, each["name"])),
                each["type"] if isinstance(each["type"], str) else "",
            )
            for each in snapshot.metadata.schema["fields"]
        }
        names = snapshot.metadata.partition_columns
        self._partitions = frozenset(self._columns.get(name.lower(), (name, ""))[0] for name in names)
        self._known: dict[str, list[Bounds | None]] = {}

    @property
    def size(self) -> int:
        """How many bounds are in memory."""
        return len(self._known) * len(self)

    def __len__(self) -> int:
        return len(self._snapshot.files)

    def of(self, column: str) -> list[Bounds | None]:
        """The bounds of a column in each file; None if nothing is known of it."""
        physical, kind = self._columns.get(column.lower(), ("", ""))
        if kind not in _KNOWN_TYPES:
            return [None] * len(self)
        found = self._known.get(physical)
        if found is None:
            bounds = _partition_bounds if physical in self._partitions else _column_bounds
            found = [bounds(add, physical, kind) for add in self._snapshot.files.values()]
            if len(self._known) >= _MOST_COLUMNS:
                self._known.clear()
            self._known[physical] = found
        return found

    def kind(self, column: str) -> str:
        """The type of a column; empty if there is none."""
        return self._columns.get(column.lower(), ("", ""))[1]


def _partition_bounds(add: Action, physical: str, kind: str) -> Bounds | None:
    text = (add.get("partitionValues") or {}).get(physical)
    if text in (None, ""):
        return Bounds(may_be_value=False)
    value = _value(text, kind)
    return None if value is None else Bounds(value, value, may_be_null=False)


def _column_bounds(add: Action, physical: str, kind: str) -> Bounds:
    told = parse_statistics(add)
    nulls, rows = _at(told, "nullCount", physical), told.get("numRecords")
    return Bounds(
        _value(_at(told, "minValues", physical), kind),
        _after(_value(_at(told, "maxValues", physical), kind)),
        may_be_null=not (type(nulls) is int and nulls == 0),
        may_be_value=not (type(nulls) is int and nulls == rows),
    )


Predicate: TypeAlias = Callable[[FileBounds], list[bool]]
"""For each file: True if one of its rows may fulfil it."""


def files_that_may_match(files: FileBounds, hints: Sequence[Any], json_hint: Any) -> list[bool] | None:
    """For each file: True if one of its rows may fulfil all hints. None without usable hints."""
    found = [
        each for each in (_from_sql(hint) for hint in hints[:_MOST_HINTS] if isinstance(hint, str)) if each is not None
    ]
    tree = _from_json(json_hint)
    if tree is not None:
        found.append(tree)
    return _combined(all, found)(files) if found else None


def _from_sql(text: str) -> Predicate | None:
    """A predicate of one comparison or NULL check; None for what is not understood."""
    if match := _COMPARED.fullmatch(text):
        return _comparison(match[1], match[2], _unquoted(match[3]))
    if match := _COMPARED_FLIPPED.fullmatch(text):
        return _comparison(match[3], _FLIPPED[match[2]], _unquoted(match[1]))
    if match := _NULL_CHECK.fullmatch(text):
        return _null_check(match[1], is_null=not match[2])
    return None


def _from_json(hint: Any) -> Predicate | None:
    """The predicate of a tree, given as text or parsed; None if no part of it is understood."""
    try:
        text = hint if isinstance(hint, str) else json.dumps(hint)
        return _node(json.loads(text), 0) if len(text) <= _MOST_TREE else None
    except (ValueError, RecursionError):
        return None


def _node(node: Any, depth: int) -> Predicate | None:
    if not isinstance(node, dict) or depth > _MOST_DEPTH:
        return None
    operation, children = node.get("op"), node.get("children")
    if not isinstance(children, list):
        return None
    if operation in ("and", "or"):
        parts = [_node(child, depth + 1) for child in children]
        known = [part for part in parts if part is not None]
        if operation == "and":
            return _combined(all, known) if known else None
        return _combined(any, known) if known and len(known) == len(parts) else None
    if operation == "isNull":
        name = _column_of(children[:1])
        return None if name is None else _null_check(name, is_null=True)
    if operation == "not" and len(children) == 1 and isinstance(children[0], dict):
        inner = children[0]  # only NULL checks are turned round: `not (a = 1)` rules out few files
        name = _column_of(inner.get("children")) if inner.get("op") == "isNull" else None
        return None if name is None else _null_check(name, is_null=False)
    if operation in _OPERATIONS and len(children) == 2:
        return _json_comparison(_OPERATIONS[operation], *children)
    return None


def _json_comparison(operator: str, left: Any, right: Any) -> Predicate | None:
    name = _column_of([left])
    if name is None:
        left, right, operator = right, left, _FLIPPED[operator]
        name = _column_of([left])
    if name is None or not isinstance(right, dict) or right.get("op") != "literal":
        return None
    value = right.get("value")
    return _comparison(name, operator, value) if isinstance(value, str | int) else None


def _column_of(children: Any) -> str | None:
    if not isinstance(children, list) or not children or not isinstance(children[0], dict):
        return None
    name = children[0].get("name")
    return name if children[0].get("op") == "column" and isinstance(name, str) else None


def _combined(how: Callable[[Iterable[bool]], bool], parts: Sequence[Predicate]) -> Predicate:
    return lambda files: [how(each) for each in zip(*(part(files) for part in parts), strict=True)]


def _comparison(column: str, operator: str, literal: str | int) -> Predicate:
    def may_match(bounds: Bounds | None, value: Value) -> bool:
        if bounds is None:
            return True
        if not bounds.may_be_value:
            return False
        if operator in ("=", ">", ">=") and bounds.high is not None and _less(bounds.high, value):
            return False
        if operator in ("=", "<", "<=") and bounds.low is not None and _less(value, bounds.low):
            return False
        return not ((operator == ">" and bounds.high == value) or (operator == "<" and bounds.low == value))

    def predicate(files: FileBounds) -> list[bool]:
        value = _value(literal, files.kind(column))
        return [value is None or may_match(bounds, value) for bounds in files.of(column)]

    return predicate


def _null_check(column: str, *, is_null: bool) -> Predicate:
    def may_match(bounds: Bounds | None) -> bool:
        return bounds is None or (bounds.may_be_null if is_null else bounds.may_be_value)

    return lambda files: list(map(may_match, files.of(column)))


def _less(left: Value, right: Value) -> bool:
    return type(left) is type(right) and left < right  # type: ignore[operator]


def _value(given: Any, kind: str) -> Value | None:
    """A literal, bound or partition value as a value of the column's type; None if it is none."""
    if given is None or isinstance(given, bool):
        return None
    if kind in _INTEGERS:
        text = str(given)
        return int(text) if re.fullmatch(r"-?\d{1,19}", text) else None
    if kind == "string":
        return given if isinstance(given, str) else None
    if kind == "date":
        return given if isinstance(given, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", given) else None
    if kind == "timestamp" and isinstance(given, str):
        try:
            found = datetime.datetime.fromisoformat(given.replace("Z", "+00:00"))
        except ValueError:
            return None
        return found if found.tzinfo is not None else None
    return None


def _after(high: Value | None) -> Value | None:
    """The greatest value that a bound allows: Delta cuts times to milliseconds."""
    if not isinstance(high, datetime.datetime):
        return high
    try:
        return high + datetime.timedelta(milliseconds=1)
    except OverflowError:
        return None


def _at(statistics: Mapping[str, Any], kind: str, column: str) -> Any:
    found = statistics.get(kind)
    return found.get(column) if isinstance(found, Mapping) else None


def _unquoted(literal: str) -> str | int:
    return literal[1:-1].replace("''", "'") if literal.startswith("'") else int(literal)
