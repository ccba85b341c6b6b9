"""Values that Spark hands over in its own inner form, as text: VARIANT as JSON, intervals in ISO 8601.

frame ─▶ arrow_ready: year-month intervals as text ─▶ Arrow batches ─▶ as_text: all others

Arrow shows a VARIANT as a struct of two byte strings, and a day-time interval as microseconds.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.declared_types import json_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUOTE = '"'
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def as_text(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows; a column that is or holds a VARIANT or an interval is a string."""
    for batch in batches:
        fields, arrays = list(batch.schema), list(batch.columns)
        for place, field in enumerate(fields):
            if _is_inner(field.type):
                texts = [None if each is None else _text(each, field.type) for each in arrays[place].to_pylist()]
                fields[place], arrays[place] = pa.field(field.name, pa.string()), pa.array(texts, pa.string())
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def arrow_ready(frame: DataFrame) -> DataFrame:
    """The frame, with ISO 8601 text for year-month intervals, which Spark cannot give to Arrow.

    `type-unsupported` as `year_months`.
    """
    from pyspark.sql import functions as F

    for name, kind in year_months(frame.schema).items():
        column = f"`{name.replace('`', '``')}`"
        parts = [F.lit("P")]
        for unit in ("year", "month"):
            if unit in kind:
                parts += [F.expr(f"extract({unit} from {column})").cast("string"), F.lit(unit[0].upper())]
        frame = frame.withColumn(name, F.concat(*parts))
    return frame


def year_months(schema: Any) -> dict[str, str]:
    """The columns of a Spark schema that are year-month intervals, with their types.

    `type-unsupported` where one is within another value, and for a calendar interval anywhere.
    """
    found = {}
    for field in schema:
        kind = field.dataType.simpleString()
        if re.fullmatch(r"interval (year|month)( to month)?", kind):
            found[field.name] = kind
        elif re.search(r"\binterval(?! (day|hour|minute|second)\b)", re.sub(r"\w+:", "", kind)):
            raise unsupported(field.name)
    return found


def unsupported(column: str) -> LakemirrorError:
    """The error of an interval that Spark cannot hand over."""
    return LakemirrorError(
        "type-unsupported",
        f"column {column} is or holds an interval of years or months, which Spark cannot hand to Python",
        column=column,
        hint=f'Cast it before: frame.withColumn("{column}", col("{column}").cast("string")).',
    )


def _is_inner(kind: pa.DataType) -> bool:
    if pa.types.is_duration(kind) or _is_variant(kind):
        return True
    if pa.types.is_map(kind):
        return _is_inner(kind.key_type) or _is_inner(kind.item_type)
    if pa.types.is_struct(kind):
        return any(_is_inner(field.type) for field in kind)
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_inner(kind.value_type)


def _is_variant(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind) or {field.name for field in kind} != {"value", "metadata"}:
        return False
    return (kind.field("metadata").metadata or {}).get(b"variant") == b"true"


def _json(value: Any, kind: pa.DataType) -> str:
    """The JSON text of a value; a VARIANT's own text stands in it as it is."""
    if value is None:
        return "null"
    if _is_variant(kind):
        from pyspark.sql.types import VariantVal

        text = VariantVal(value["value"], value["metadata"]).toJson()
        return _STRING.sub(lambda found: json_text(json.loads(found[0])), text) if "\\u" in text else text
    if pa.types.is_duration(kind):
        return json.dumps(_iso(value))
    if pa.types.is_struct(kind) and _is_inner(kind):
        members = (f"{json_text(each.name)}:{_json(value[each.name], each.type)}" for each in kind)
        return "{" + ",".join(members) + "}"
    if pa.types.is_map(kind) and _is_inner(kind):
        return "{" + ",".join(_entry(key, item, kind) for key, item in value) + "}"
    if isinstance(value, list) and _is_inner(kind):
        return "[" + ",".join(_json(each, kind.value_type) for each in value) + "]"
    return json_text(value, kind)


def _entry(key: Any, item: Any, kind: pa.DataType) -> str:
    name = _json(key, kind.key_type)
    return f"{name if name.startswith(_QUOTE) else json_text(name)}:{_json(item, kind.item_type)}"


def _text(value: Any, kind: pa.DataType) -> str:
    return _json(value, kind) if pa.types.is_nested(kind) else _iso(value)


def _iso(value: dt.timedelta) -> str:
    """An interval as `P3DT4H5M6.7S`; each part has its own sign."""
    days, micros = _divided(value // dt.timedelta(microseconds=1), 86_400_000_000)
    hours, micros = _divided(micros, 3_600_000_000)
    minutes, micros = _divided(micros, 60_000_000)
    seconds, fraction = divmod(abs(micros), 1_000_000)
    time = "".join(f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M")) if count)
    if micros or not (days or time):
        time += f"{'-' if micros < 0 else ''}{seconds}" + (f".{fraction:06}".rstrip("0") if fraction else "") + "S"
    return f"P{f'{days}D' if days else ''}" + (f"T{time}" if time else "")


def _divided(count: int, by: int) -> tuple[int, int]:
    """How many times, and the rest, both with the sign of the count."""
    times, rest = divmod(abs(count), by)
    return (-times, -rest) if count < 0 else (times, rest)
