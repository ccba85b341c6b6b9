"""Which files may have rows that a client asks for, by partition values and statistics.

    ["id >= 5", "region = 'eu'"], or a tree of JSON ─▶ Predicate ─▶ may_match(file)

Hints are best effort: what is not understood matches every file. A file is left out only if no row of it can match;
bounds may be loose, since rows may have been deleted since. Source: Delta Sharing protocol, "SQL Expressions for
Filtering" and "JSON predicates for Filtering".
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping, Sequence
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


class _File:
    """The bounds of one file's columns."""

    def __init__(self, columns: Mapping[str, tuple[str, str]], partitions: frozenset[str], add: Action) -> None:
        """`columns`: lower-case name to physical name and type; `partitions`: physical names of partition columns."""
        self._columns, self._partitions, self._add = columns, partitions, add
        self._statistics = parse_statistics(add)

    def bounds(self, column: str) -> Bounds | None:
        """None if nothing is known of the column."""
        physical, kind = self._columns.get(column.lower(), ("", ""))
        if kind not in _KNOWN_TYPES:
            return None
        if physical in self._partitions:
            text = (self._add.get("partitionValues") or {}).get(physical)
            if text in (None, ""):
                return Bounds(may_be_value=False)
            value = _value(text, kind)
            return None if value is None else Bounds(value, value, may_be_null=False)
        told = self._statistics
        nulls, rows = _at(told, "nullCount", physical), told.get("numRecords")
        return Bounds(
            _value(_at(told, "minValues", physical), kind),
            _after(_value(_at(told, "maxValues", physical), kind)),
            may_be_null=not (type(nulls) is int and nulls == 0),
            may_be_value=not (type(nulls) is int and nulls == rows),
        )

    def kind(self, column: str) -> str:
        """The type of a column; empty if there is none."""
        return self._columns.get(column.lower(), ("", ""))[1]


Predicate: TypeAlias = Callable[[_File], bool]
"""True if a row of the file may fulfil it."""


def files_that_may_match(snapshot: Snapshot, hints: Sequence[Any], json_hint: Any) -> Callable[[Action], bool] | None:
    """Tells of an `add` action whether rows of the file may fulfil all hints; None without usable hints."""
    found = [
        each for each in (_from_sql(hint) for hint in hints[:_MOST_HINTS] if isinstance(hint, str)) if each is not None
    ]
    tree = _from_json(json_hint)
    if tree is not None:
        found.append(tree)
    if not found:
        return None
    columns = {
        str(each["name"]).lower(): (
            str((each.get("metadata") or {}).get(_PHYSICAL, each["name"])),
            each["type"] if isinstance(each["type"], str) else "",
        )
        for each in snapshot.metadata.schema["fields"]
    }
    partitions = frozenset(columns.get(name.lower(), (name, ""))[0] for name in snapshot.metadata.partition_columns)

    def may_match(add: Action) -> bool:
        file = _File(columns, partitions, add)
        return all(predicate(file) for predicate in found)

    return may_match


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
            return (lambda file: all(part(file) for part in known)) if known else None
        return (lambda file: any(part(file) for part in known)) if known and len(known) == len(parts) else None
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


def _comparison(column: str, operator: str, literal: str | int) -> Predicate:
    def may_match(file: _File) -> bool:
        bounds, value = file.bounds(column), _value(literal, file.kind(column))
        if bounds is None or value is None:
            return True
        if not bounds.may_be_value:
            return False
        if operator in ("=", ">", ">=") and bounds.high is not None and _less(bounds.high, value):
            return False
        if operator in ("=", "<", "<=") and bounds.low is not None and _less(value, bounds.low):
            return False
        return not ((operator == ">" and bounds.high == value) or (operator == "<" and bounds.low == value))

    return may_match


def _null_check(column: str, *, is_null: bool) -> Predicate:
    def may_match(file: _File) -> bool:
        bounds = file.bounds(column)
        return bounds is None or (bounds.may_be_null if is_null else bounds.may_be_value)

    return may_match


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
