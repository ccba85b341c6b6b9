"""Arrays as JSON, the same text from a load and from an event.

The database writes them by `to_json`; an event's lists are written here in the same way. Elements that have a text of
their own are strings; numbers, booleans and JSON stay what they are.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.delimited.values import BadValue
from lakemirror.publisher.capture.postgresql.float_texts import double_text, single_text
from lakemirror.publisher.capture.postgresql.value_conversions import DAYS, MICROSECONDS, TOO_FAR

SEVERAL = "-dimensional"
_WHY = "arrays of several dimensions cannot be kept: the stream does not give their values"
_JAVA_ARRAY = re.compile(r"\[L[\w.$]+;@[0-9a-f]+")


@dataclass(frozen=True)
class Element:
    """How one element that is not NULL is written. `by_text`: the load writes its text, not its own JSON.
    `marks_unsent`: an event says if the array was not sent, because it is large and did not change.
    """

    write: Callable[[Any], str]
    by_text: bool = False
    marks_unsent: bool = False


def checked(values: pa.Array) -> pa.Array:
    """The texts of a load; `BadValue` at the first array of several dimensions."""
    texts = values.storage if isinstance(values.type, pa.BaseExtensionType) else values
    several = pc.fill_null(pc.equal(texts, f"true{SEVERAL}"), False)
    if pc.any(several).as_py():
        raise BadValue(several.index(True).as_py(), "", _WHY)
    return texts.cast(pa.string())


def of_event(element: Element) -> Callable[[pa.Array], pa.Array]:
    """Lists of an event as JSON texts. `BadValue` for what may be an array of several dimensions."""

    def convert(values: pa.Array) -> pa.Array:
        found: list[str | None] = []
        for place, listed in enumerate(values.to_pylist()):
            if listed is not None and listed and all(_is_no_value(each) for each in listed):
                why = f"{_WHY}, and of one that holds NULL alone it says the same"
                raise BadValue(place, "", why)
            try:
                found.append(None if listed is None else _written(listed, element))
            except ValueError as error:
                raise BadValue(place, str(listed), str(error)) from error
        return pa.array(found, pa.string())

    return convert


def _is_no_value(value: Any) -> bool:
    return value is None or (isinstance(value, str) and _JAVA_ARRAY.fullmatch(value) is not None)


def _written(listed: list[Any], element: Element) -> str:
    return f"[{','.join('null' if each is None else element.write(each) for each in listed)}]"


def _string(text: Any) -> str:
    return json.dumps(str(text), ensure_ascii=False)


def _number(text: str) -> Callable[[Any], str]:
    write = single_text if text == "float4" else double_text

    def convert(value: Any) -> str:
        found = write(float(value))
        return found if found[-1].isdigit() else _string(found)

    return convert


def _date(days: int) -> str:
    if not DAYS[0] <= days <= DAYS[1]:
        raise ValueError(TOO_FAR)
    return _string((dt.date(1970, 1, 1) + dt.timedelta(days)).isoformat())


def _moment(microseconds: int) -> str:
    if not MICROSECONDS[0] <= microseconds <= MICROSECONDS[1]:
        raise ValueError(TOO_FAR)
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=microseconds)
    return _string(_short(moment.isoformat()))


def _instant(text: str) -> str:
    if text[0] in "+-" or text.endswith("infinity"):
        raise ValueError(TOO_FAR)
    return _string(_short(text.removesuffix("Z")) + "+00:00")


def _short(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _bytes(text: str) -> str:
    return _string("\\x" + base64.b64decode(text).hex())


def _unpadded(text: str) -> str:
    return _string(text.rstrip(" "))


ENUM = Element(_string, by_text=True)
ELEMENTS: dict[str, Element] = {
    **{name: Element(str, marks_unsent=True) for name in ("int4", "int8", "json", "jsonb")},
    **{name: Element(str) for name in ("int2", "numeric")},
    **{name: Element(_number(name)) for name in ("float4", "float8")},
    **{name: Element(_string, by_text=True, marks_unsent=True) for name in ("text", "varchar", "uuid")},
    **{name: Element(_string, by_text=True) for name in ("citext", "oid", "char", "ltree")},
    **{name: Element(_string) for name in (
        "inet", "cidr", "macaddr", "int4range", "numrange", "tsrange", "tstzrange", "daterange", "tsvector")},
    "bool": Element(lambda value: "true" if value else "false"),
    "bpchar": Element(_unpadded, by_text=True, marks_unsent=True),
    "date": Element(_date, marks_unsent=True),
    "timestamp": Element(_moment),
    "timestamptz": Element(_instant),
    "bytea": Element(_bytes, marks_unsent=True),
}  # fmt: skip
"""The element types whose arrays Debezium gives completely. Not `time`: it gives 24:00 as 00:00."""
