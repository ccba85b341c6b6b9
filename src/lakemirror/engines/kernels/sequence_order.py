"""The order of a sequence as whole numbers, and which changes come too late for their key (history.md, section 2)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.keys.key_values import order_of

_MOST = 1 << 40
"""Numbers below it are used as they are; larger ones are ranked, so that a key's code fits beside them."""

_LARGEST = 1 << 60

_WHOLE = {pa.timestamp("us").id: pa.int64(), pa.date32().id: pa.int32()}
"""As which numbers times and days are written, because not every year has a text that can be read."""


def sequence_of(rows: pa.Table, names: Sequence[str]) -> pa.ChunkedArray:
    """The values of the sequence's columns as structs."""
    columns = [rows[name].combine_chunks() for name in names]
    arrays = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in columns]
    return pa.chunked_array([pa.StructArray.from_arrays(arrays, names=list(names))])


def sequence_ranks(parts: Sequence[pa.ChunkedArray], keys: int) -> list[np.ndarray]:
    """Numbers (int64) that compare as the sequences do, for each part. `parts`: structs of the sequence's columns.
    `keys`: how many keys they belong to.

    Equal sequences have equal numbers. NULL, which only rows of the table can have, is 0 and below every value. Text
    compares by bytes; NaN is above every number, and -0.0 equals 0.0.
    """
    values = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type).combine_chunks()
    ranks = np.zeros(len(values), np.int64)
    for number, field in enumerate(values.flatten()):
        its = _ranks(field)
        most = int(its.max(initial=0)) + 1
        if number and (int(ranks.max(initial=0)) + 1) * most > _MOST:
            ranks = np.unique(ranks, return_inverse=True)[1].astype(np.int64)
        ranks = ranks * most + its
    if (int(ranks.max(initial=0)) + 1) * (keys + 1) > _LARGEST:
        found, ranks = np.unique(ranks, return_inverse=True)
        ranks = ranks.astype(np.int64) + (0 if len(found) and found[0] == 0 else 1)
    ends = np.cumsum([len(part) for part in parts])
    return np.split(ranks, ends[:-1])


def _ranks(values: pa.Array) -> np.ndarray:
    """Numbers from 1 on in the order of the values; 0 for NULL."""
    kind = values.type
    is_valid = np.asarray(values.is_valid())
    ranks = np.zeros(len(values), np.int64)
    if pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        whole = values.cast(pa.int32()) if pa.types.is_date32(kind) else values
        numbers = np.asarray(whole.cast(pa.int64()).drop_null())
        if not len(numbers):
            return ranks
        low, high = int(numbers.min()), int(numbers.max())
        places = numbers - low if high - low < _MOST else np.unique(numbers, return_inverse=True)[1]
    elif pa.types.is_floating(kind):
        places = np.unique(np.asarray(values.drop_null()), return_inverse=True)[1]
    else:
        encoded = values.drop_null().dictionary_encode()
        order = np.asarray(pc.sort_indices(encoded.dictionary))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        places = rank[np.asarray(encoded.indices)]
    ranks[is_valid] = places + 1
    return ranks


def highest_before(code: np.ndarray, rank: np.ndarray, counts: np.ndarray, first: np.ndarray) -> np.ndarray:
    """For each change, the highest rank that its key has when the change comes. Changes are in the order of arrival.

    `code`: of the keys. `counts`: the changes whose rank counts for later ones. `first`: the rank that each key has
    before all of them, by its code; 0 for none.
    """
    order = order_of(code)
    its = code[order]
    step = max(int(rank.max(initial=0)), int(first.max(initial=0))) + 1
    base = its * step
    own = base + np.where(counts[order], rank[order], 0)
    before = np.empty(len(own), np.int64)
    before[:1] = -1
    np.maximum.accumulate(own[:-1], out=before[1:])
    before = np.maximum(before, base + first[its])  # what other keys have is below the base
    result = np.empty(len(own), np.int64)
    result[order] = before - base
    return result


def in_order(code: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """The order by key and rank; of equal ones the first stays the first.

    Most keys have their ranks in order as they come: only those of the others are sorted by rank, too.
    """
    order = order_of(code)
    its, ranks = code[order], rank[order]
    falls = np.flatnonzero((its[1:] == its[:-1]) & (ranks[1:] < ranks[:-1]))
    if len(falls):
        wrong = np.flatnonzero(np.isin(its, its[falls]))
        order[wrong] = order[wrong][np.lexsort((ranks[wrong], its[wrong]))]
    return order


def as_texts(value: pa.StructScalar) -> list[str]:
    """A value of a sequence as texts, one a column, for a property of a table."""
    parts = [value[name] for name in value.type.names]
    return [
        str((each.cast(_WHOLE[each.type.id]) if each.type.id in _WHOLE else each).cast(pa.string())) for each in parts
    ]


def from_texts(texts: Sequence[str], kind: pa.StructType) -> pa.ChunkedArray:
    """One value of a sequence of this type from its texts; none without texts."""
    if not texts:
        return pa.chunked_array([], kind)
    parts = []
    for text, field in zip(texts, kind, strict=True):
        part = pa.array([text])
        if field.type.id in _WHOLE and text.lstrip("-").isdigit():
            part = part.cast(_WHOLE[field.type.id])
        parts.append(part.cast(field.type))
    return pa.chunked_array([pa.StructArray.from_arrays(parts, names=kind.names)])


def next_value(value: pa.Scalar) -> pa.Scalar:
    """The least value of a sequence's type that is higher; the value itself where there is none."""
    try:
        return pa.scalar(_next(value), value.type)
    except (pa.ArrowException, OverflowError, ValueError):
        return value


def _next(value: pa.Scalar) -> Any:
    kind, found = value.type, value.as_py()
    if isinstance(found, str):
        return found + "\0"
    if isinstance(found, float):
        return float(np.nextafter(kind.to_pandas_dtype()(found), kind.to_pandas_dtype()(np.inf)))
    if isinstance(found, Decimal):
        return found + Decimal(1).scaleb(-kind.scale)
    if isinstance(found, date):
        return found + found.resolution  # a day; of a time, a microsecond
    return found + 1
