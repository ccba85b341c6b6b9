"""Values of one column brought into an Arrow type, all at once or one by one; what cannot be kept is a `BadValue`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.delimited.values import BadValue
from lakemirror.publisher.exact_values import first_failing

Conversion = Callable[[pa.Array], pa.Array]
"""Values of a column in another type, as many; it raises `BadValue`."""


def cast(kind: pa.DataType) -> Conversion:
    """Values that arrive as they are, or in another Arrow type of the same values."""

    def convert(values: pa.Array) -> pa.Array:
        if values.type == kind:
            return values
        storage = values.storage if isinstance(values.type, pa.BaseExtensionType) else values
        try:
            return storage.cast(kind)
        except pa.ArrowInvalid as error:
            raise BadValue(first_failing(storage, lambda value: value.cast(kind)), "", str(error)) from error

    return convert


def each(convert: Callable[[Any], Any], kind: pa.DataType | None = None) -> Conversion:
    """Values that are converted one by one, as text unless `kind` says otherwise. A ValueError is a value that cannot
    be kept."""

    def all_values(values: pa.Array) -> pa.Array:
        found: list[Any] = []
        for place, value in enumerate(values.to_pylist()):
            try:
                found.append(None if value is None else convert(value))
            except ValueError as error:
                raise BadValue(place, str(value), str(error)) from error
        return pa.array(found, kind or pa.string())

    return all_values


def refuse(values: pa.Array, wrong: pa.Array, why: str) -> None:
    """`BadValue` for the first value that is wrong; `wrong`: for each value whether it is, NULL for one that is not."""
    place = pc.index(wrong, True).as_py()
    if place >= 0:
        raise BadValue(place, str(values[place].as_py()), why)


def null_where(values: pa.Array, wrong: pa.Array) -> pa.Array:
    """The same values, NULL in place of those that are wrong."""
    return pc.if_else(pc.fill_null(wrong, False), pa.scalar(None, values.type), values)


def short_times(texts: pa.Array) -> pa.Array:
    """Times without zeros at the end of their fraction, with or without a `Z`."""
    shorter = pc.replace_substring_regex(texts, r"(\.\d*?)0+(Z|)$", r"\1\2")
    return pc.replace_substring_regex(shorter, r"\.(Z|)$", r"\1")
