"""What statistics say about the sequences in data files, so that an apply reads only those that its changes reach.

least sequence of the changes ─▶ `reaches`: the highest one that a file has, or the highest end of its versions
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.statistics import parse_statistics
from lakemirror.engines.row_work import Action, Target, TargetColumn
from lakemirror.keys.key_values import numbers_of, whole_numbers
from lakemirror.keys.wanted_keys import bound

_REMEMBERED = 16 * 1024  # values of the statistics of data files


def files_reached(files: Sequence[Action], target: Target, sequence: Sequence[str], least: Any) -> list[int]:
    """The numbers of the data files that may have a row with a sequence of `least`, in the form of `bound`, or higher.

    `sequence`: the names of its columns. None as `least`: no such value is known.
    """
    column = sequence_column(target, sequence)
    return [number for number, add in enumerate(files) if column is None or reaches(add, column, least)]


def sequence_column(target: Target, sequence: Sequence[str]) -> TargetColumn | None:
    """The column of a sequence; None if it has several, or the table lacks it."""
    return next((each for each in target.columns if [each.name] == list(sequence)), None)


def reaches(add: Action, column: TargetColumn, least: Any, most: Any = None) -> bool:
    """False if the statistics say that all values that a file has in this column, of a sequence or of ends, are lower
    than `least` or higher than `most`, in the form of `bound`; None: no such value is known."""
    high = _limit(add, "maxValues", column) if least is not None else None
    if high is not None and high < least and not (isinstance(least, bytes) and least.startswith(high)):
        return False
    low = _limit(add, "minValues", column) if most is not None else None
    return low is None or bool(low <= most)


def _limit(add: Action, what: str, column: TargetColumn) -> Any:
    """What the statistics of a file say of a column, in the form of `bound`; None if nothing, or of several columns."""
    value = value_of(add, what, column.physical_name)
    if value is None or isinstance(value, dict):
        return None
    return bound(value, column.type, up=what == "maxValues")


class Span(NamedTuple):
    """From which value on, and up to which, each of some keys is looked up in a column. NULL in `highs`, or None: there
    is no limit."""

    lows: pa.Array
    highs: pa.Array | None = None

    def chosen(self, which: np.ndarray) -> Span:
        """The spans of the keys with these numbers."""
        highs = None if self.highs is None else self.highs.take(whole_numbers(which))
        return Span(self.lows.take(whole_numbers(which)), highs)

    @property
    def limits(self) -> tuple[Any, Any]:
        """The lowest and the highest value of all keys in the form of `bound`; None: no such value is known."""
        return least_bound(self.lows), None if self.highs is None else least_bound(self.highs, up=True)


def files_of_keys(
    files: Sequence[Action], column: TargetColumn | None, span: Span | None, keys: int
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Which of so many keys are looked up in which files, by the statistics of a column: numbers of files and of keys.

    No file comes twice. A few keys with low values do not make all others be looked up in as many files: keys are
    divided into a few groups. `span`: of the keys; None, also as `column`: all keys are looked up in all files.
    """
    if column is None or span is None:
        if files and keys:
            yield list(range(len(files))), np.arange(keys)
        return
    groups = _groups(span, keys)
    limits = [
        (least_bound(each.lows), each.highs and least_bound(each.highs, up=True)) for each in map(span.chosen, groups)
    ]
    together: dict[tuple[int, ...], list[int]] = {}
    for number, add in enumerate(files):
        its = tuple(place for place, (least, most) in enumerate(limits) if reaches(add, column, least, most))
        if its:
            together.setdefault(its, []).append(number)
    for which, numbers in together.items():
        yield numbers, np.sort(np.concatenate([groups[place] for place in which]))


def _groups(span: Span, keys: int) -> list[np.ndarray]:
    """The keys without a highest value, and the others; of each the sixteenth with the lowest values, three times as
    many, and the rest."""
    is_open = np.ones(keys, bool) if span.highs is None else np.asarray(span.highs.is_null())
    order = np.asarray(pc.sort_indices(span.lows)).astype(np.int64)
    groups = [order[which[order]] for which in (is_open, ~is_open)]
    return [part for its in groups for part in np.split(its, [-(-len(its) // 16), -(-len(its) // 4)]) if len(part)]


def value_of(add: Action, what: str, column: str) -> Any:
    """What the statistics of a file say of one column; None if they say nothing. `what`: `minValues`, `maxValues` or
    `nullCount`.

    Unlike `parse_statistics`, quick for thousands of files that are asked one after the other.
    """
    stats = add.get("stats")
    return _value(stats, what, column) if isinstance(stats, str) else None


@lru_cache(_REMEMBERED)
def _value(stats: str, what: str, column: str) -> Any:
    values = parse_statistics({"stats": stats}).get(what)
    return values.get(column) if isinstance(values, dict) else None


def least_bound(values: pa.Array | pa.ChunkedArray, *, up: bool = False) -> Any:
    """The least of these values of a sequence (`up`: the highest) in the form of `bound`; None if it has none, as where
    one is NULL."""
    kind, chosen = values.type, pc.max if up else pc.min
    if not len(values) or values.null_count:
        return None
    if pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        numbers = numbers_of(pa.chunked_array([values]) if isinstance(values, pa.Array) else values)
        return int(numbers.max() if up else numbers.min())
    if pa.types.is_string(kind):
        found = chosen(values).as_py()
        return None if found is None else found.encode()
    return chosen(values).as_py() if pa.types.is_decimal(kind) else None


def least_of(sequences: pa.ChunkedArray) -> Any:
    """The same for sequences as structs; None for those of several columns."""
    return least_bound(pc.struct_field(sequences, [0])) if sequences.type.num_fields == 1 else None
