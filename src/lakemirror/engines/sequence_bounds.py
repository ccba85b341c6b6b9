"""What statistics say about the sequences in data files, so that an apply reads only those that its changes reach.

least sequence of the changes ─▶ `reaches`: the highest one that a file has, or the highest end of its versions
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.statistics import parse_statistics
from lakemirror.engines.row_work import Action, Target, TargetColumn
from lakemirror.keys.wanted_keys import bound, numbers_of

_REMEMBERED = 16 * 1024  # values of the statistics of data files


def files_reached(files: Sequence[Action], target: Target, sequence: Sequence[str], least: Any) -> list[int]:
    """The numbers of the data files that may have a row with a sequence of `least`, in the form of `bound`, or higher.

    `sequence`: the names of its columns. None as `least`: no such value is known.
    """
    column = next((each for each in target.columns if [each.name] == list(sequence)), None)
    return [number for number, add in enumerate(files) if column is None or reaches(add, column, least)]


def reaches(add: Action, column: TargetColumn, least: Any) -> bool:
    """False if the statistics say that all values that a file has in this column, of a sequence or of ends, are lower
    than `least`, in the form of `bound`; None: no such value is known."""
    value, kind = value_of(add, "maxValues", column.physical_name), column.type
    if isinstance(value, dict) or least is None:
        return True  # a sequence of several columns
    high = bound(value, kind, up=True) if value is not None else None
    if high is None:
        return True
    return bool(high >= least or (isinstance(least, bytes) and least.startswith(high)))


def value_of(add: Action, what: str, column: str) -> Any:
    """What the statistics of a file say of one column: `what` is `maxValues` or `nullCount`. None if they say nothing.

    Unlike `parse_statistics`, quick for thousands of files that are asked one after the other.
    """
    stats = add.get("stats")
    return _value(stats, what, column) if isinstance(stats, str) else None


@lru_cache(_REMEMBERED)
def _value(stats: str, what: str, column: str) -> Any:
    values = parse_statistics({"stats": stats}).get(what)
    return values.get(column) if isinstance(values, dict) else None


def least_bound(values: pa.ChunkedArray) -> Any:
    """The least of these values of a sequence in the form of `bound`; None if it has none, as where one is NULL."""
    kind = values.type
    if not len(values) or values.null_count:
        return None
    if pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return int(numbers_of(values).min())
    if pa.types.is_string(kind):
        least = pc.min(values).as_py()
        return None if least is None else least.encode()
    return pc.min(values).as_py() if pa.types.is_decimal(kind) else None


def least_of(sequences: pa.ChunkedArray) -> Any:
    """The same for sequences as structs; None for those of several columns."""
    return least_bound(pc.struct_field(sequences, [0])) if sequences.type.num_fields == 1 else None
