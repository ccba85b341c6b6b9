"""JSON whose numbers keep every digit. The statistics in a Delta log need that.

read("{"a": 9007199254740992.99}")  ─▶ Decimal, never a Python float
text({"a": Decimal("0.10")})        ─▶ {"a":0.10}
replaced(text, "tightBounds", False) ─▶ the same text with another value of that field
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")


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
    if isinstance(value, dict):
        return "{" + ",".join(f"{_string(name)}:{text(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(text, value)) + "]"
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is no JSON number")
        return f"{value:f}"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no JSON number")
        return repr(value)
    return _string(value) if isinstance(value, str) else json.dumps(value)


def replaced(given: str, name: str, value: Any) -> str:
    """The JSON object `given` with a new value of one field; a missing field is added at the end.

    All other characters stay the same. ValueError if `given` is no JSON object.
    """
    spans = _spans(given)
    if name in spans:
        begin, end = spans[name]
        return given[:begin] + text(value) + given[end:]
    end = given.rindex("}")
    return f"{given[:end]}{',' if spans else ''}{_string(name)}:{text(value)}{given[end:]}"


def _spans(given: str) -> dict[str, tuple[int, int]]:
    """The begin and end of each field's value in the text of a JSON object."""
    read(given)  # ValueError if it is no JSON object
    place = _after_space(given, given.index("{") + 1)
    spans = {}
    while given[place] != "}":
        name, place = scanstring(given, place + 1, True)
        begin = _after_space(given, _after_space(given, place) + 1)
        _, place = _DECODER.raw_decode(given, begin)
        spans[name] = (begin, place)
        place = _after_space(given, place)
        if given[place] == ",":
            place = _after_space(given, place + 1)
    return spans


def _after_space(given: str, place: int) -> int:
    match = _SPACE.match(given, place)
    return match.end() if match else place


def _string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _no_json(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_float=Decimal, parse_int=int, parse_constant=_no_json)
