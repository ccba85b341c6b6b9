"""JSON whose numbers keep every digit. The statistics in a Delta log need that.

read("{"a": 9007199254740992.99}")  ─▶ Decimal, never a Python float
text({"a": Decimal("0.10")})        ─▶ {"a":0.10}
replaced(text, "tightBounds", False) ─▶ the same text with another value of that field
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

_FIELD = re.compile(r'[ \t\n\r]*[{,][ \t\n\r]*("(?:[^"\\]|\\.)*")[ \t\n\r]*:[ \t\n\r]*')
"""The text before the value of a field in valid JSON; its group is the name."""


def read(text: str) -> dict[str, Any]:
    """The JSON object in `text`: integers as int, other numbers as Decimal.

    ValueError if `text` is no JSON object, or holds a bare `NaN` or `Infinity`.
    """
    value = _DECODER.decode(text)
    if not isinstance(value, dict):
        raise ValueError(f"{text[:40]!r} is no JSON object")
    return value


def text(value: Any) -> str:
    """The JSON text of a value: decimals in plain digits, floats with every digit. ValueError for NaN and infinity."""
    try:
        return _ENCODER.encode(value)
    except TypeError:  # it is a decimal, or holds one
        pass
    if isinstance(value, dict):
        return "{" + ",".join(f"{text(name)}:{text(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(text, value)) + "]"
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is no JSON number")
        return f"{value:f}"
    raise TypeError(f"{type(value)} is no type of JSON")


def replaced(given: str, name: str, value: Any) -> str:
    """The JSON object `given` with a new value of one field; a missing field is added at the end.

    All other characters stay the same. ValueError if `given` is no JSON object.
    """
    read(given)  # ValueError if it is no JSON object
    spans: dict[str, tuple[int, int]] = {}  # of each field's value
    field = _FIELD.match(given)
    while field is not None:
        begin = field.end()
        _, end = _DECODER.raw_decode(given, begin)
        spans[json.loads(field[1])] = (begin, end)
        field = _FIELD.match(given, end)
    if name in spans:
        begin, end = spans[name]
        return given[:begin] + text(value) + given[end:]
    end = given.rindex("}")
    return f"{given[:end]}{',' if spans else ''}{text(name)}:{text(value)}{given[end:]}"


def _no_json(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_float=Decimal, parse_int=int, parse_constant=_no_json)
