"""Keys of rows as one comparable column, and where the rows of one table are in another; vectorised.

Keys compare as everywhere (`keys.key_values`).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.keys.key_values import combined, comparable, comparable_column, key_codes, whole_numbers

MANY = 1000  # rows
SPREAD = 8  # times as many values as rows


def positions(wanted: pa.Table, known: pa.Table, keys: Sequence[str]) -> pa.Array:
    """For each row of `wanted` the row of `known` with the same key, as int32; NULL where there is none.

    Both tables have the key columns in the same types. Where `known` repeats a key it is one of its rows.
    """
    # Contents mostly keep their order and grow at the end: what is in front need not be looked up.
    front = _equal_front(wanted, known, keys)
    at = _looked_up(wanted.slice(front), known.slice(front), keys)
    if front == 0:
        return at
    strange = wanted.slice(front).filter(pc.is_null(at))
    if strange.num_rows and _looked_up(known.slice(0, front), strange, keys).null_count < front:
        return _looked_up(wanted, known, keys)  # a key of the front appears again
    return pa.concat_arrays([arange(front), pc.add(at, pa.scalar(front, pa.int32()))])


def distinct(table: pa.Table, keys: Sequence[str]) -> int:
    """How many different keys the rows have."""
    codes, _ = _codes(table, table.slice(0, 0), keys)
    return int(pc.count_distinct(codes, mode="all").as_py())


def last_places(table: pa.Table, keys: Sequence[str]) -> pa.Array:
    """The place of the last row of each key, ascending."""
    if not table.num_rows:
        return arange(0)
    codes, _ = _codes(table, table.slice(0, 0), keys)
    numbers = pc.dictionary_encode(codes, null_encoding="encode").indices
    last = pa.table({"code": numbers, "at": arange(table.num_rows)}).group_by("code").aggregate([("at", "max")])
    return whole(last["at_max"].take(pc.sort_indices(last["at_max"])))


def named(at: pa.Array, rows: int) -> pa.Array:
    """For each of so many rows whether a position names it."""
    if rows == 0:
        return pa.array([], pa.bool_())
    if hasattr(pc, "InversePermutationOptions"):  # not in every pyarrow
        options = pc.InversePermutationOptions(max_index=rows - 1)
        return pc.is_valid(pc.call_function("inverse_permutation", [at], options))
    return pc.is_in(arange(rows), value_set=at.drop_null())


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    return column if isinstance(column, pa.Array) else combined(column)


def arange(count: int) -> pa.Array:
    """0 … count-1 as int32, without a Python loop."""
    if count == 0:
        return pa.array([], pa.int32())
    one = pa.scalar(1, pa.int32())
    return pc.subtract(pc.cumulative_sum(pa.repeat(one, count)), one)


def _looked_up(wanted: pa.Table, known: pa.Table, keys: Sequence[str]) -> pa.Array:
    at = _by_one_of(wanted, known, keys) if len(keys) > 1 else None
    if at is None:
        codes, known_codes = _codes(wanted, known, keys)
        at = _by_place(codes, known_codes)
        if at is None:
            at = whole(pc.index_in(codes, value_set=known_codes))
    return at


def _by_one_of(wanted: pa.Table, known: pa.Table, keys: Sequence[str]) -> pa.Array | None:
    """The same by one key column alone, where one is found whose values are close together and different in each row.

    Then a row can only be the one that has this value, if the other key columns agree.
    """
    for key in keys:
        at = _by_place(whole(wanted[key]), whole(known[key]), unique=True)
        if at is None:
            continue
        for other in keys:
            if other == key:
                continue
            one, another = _comparable(wanted[other]), _comparable(known[other]).take(at)
            equal = pc.fill_null(pc.equal(one, another), False)
            at = pc.if_else(pc.or_(equal, pc.and_(pc.is_null(one), pc.is_null(another))), at, None)
        return at
    return None


def _by_place(wanted: pa.Array, known: pa.Array, unique: bool = False) -> pa.Array | None:
    """The same as `index_in`, many times faster, where the known values are whole numbers that are close together.

    An array from value to row answers then, instead of a hash table. None where it would not, and, if `unique` is
    asked for, where two rows have the same value.
    """
    kind = _whole_number_type(known.type)
    if kind is None or known.null_count or len(known) < max(MANY, 1) or not hasattr(pc, "InversePermutationOptions"):
        return None
    wanted, known = (column if column.type == kind else column.view(kind) for column in (wanted, known))
    lowest, highest = pc.min_max(known).as_py().values()
    if highest - lowest > SPREAD * len(known):
        return None
    options = pc.InversePermutationOptions(max_index=highest - lowest, output_type=pa.int32())
    rows = pc.call_function("inverse_permutation", [pc.subtract(known.cast(pa.int64()), lowest)], options)
    if unique and len(rows) - rows.null_count < len(known):
        return None
    inside = pc.and_(pc.greater_equal(wanted, lowest), pc.less_equal(wanted, highest))
    return rows.take(pc.if_else(inside, pc.subtract(wanted.cast(pa.int64()), lowest), None))


def _equal_front(wanted: pa.Table, known: pa.Table, keys: Sequence[str]) -> int:
    """How many rows from the first on have the same keys in both tables, as far as that is cheap to tell."""
    length: int = min(wanted.num_rows, known.num_rows)
    for key in keys:
        one, other = wanted[key].slice(0, length), known[key].slice(0, length)
        if one.null_count or other.null_count or pa.types.is_floating(one.type):
            return 0
        differs: int = pc.index(pc.not_equal(one, other), True).as_py()
        length = length if differs < 0 else differs
    return length


def _codes(wanted: pa.Table, known: pa.Table, keys: Sequence[str]) -> tuple[pa.Array, pa.Array]:
    """One column for each table; two rows have the same key exactly where they hold the same value."""
    if len(keys) == 1:
        return _comparable(wanted[keys[0]]), _comparable(known[keys[0]])
    both = {key: pa.chunked_array([*wanted[key].chunks, *known[key].chunks], wanted[key].type) for key in keys}
    codes = whole_numbers(key_codes(comparable(pa.table(both))))
    return codes.slice(0, wanted.num_rows), codes.slice(wanted.num_rows)


def _whole_number_type(kind: pa.DataType) -> pa.DataType | None:
    """The integer type that holds the same values, None where there is none below 64 unsigned bits."""
    if pa.types.is_integer(kind):
        return None if kind == pa.uint64() else kind
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else None


def _comparable(column: pa.ChunkedArray) -> pa.Array:
    return combined(comparable_column(column) if pa.types.is_floating(column.type) else column)
