"""Statistics of dictionary-encoded rows are those of the same rows written out, although not every row is looked at."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemirror.delta.schema import Column
from lakemirror.delta.statistics import Tally

COLUMNS = [Column("t", "string")]
LETTERS = pa.array(list("abcdef"))


def encoded(places: list[int | None], dictionary: pa.Array = LETTERS) -> pa.RecordBatch:
    values = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), dictionary, safe=False)
    return pa.record_batch({"t": values})


def written_out(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"t": batch.column(0).dictionary_decode()})


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6), st.integers(0, 400), st.booleans()), max_size=4))
def test_as_written_out(batches: list[tuple[int, int, int, bool]]) -> None:
    """Of each batch: values in its dictionary, of which so many occur, rows, whether the last row has another value."""
    random, found, expected = Random(5), Tally(COLUMNS), Tally(COLUMNS)
    for size, occurring, rows, is_odd in batches:
        places: list[int | None] = [random.randrange(min(size, occurring)) if occurring else None for _ in range(rows)]
        batch = encoded([*places, size - 1 if is_odd else None], LETTERS.slice(0, size))
        found.add(batch)
        expected.add(written_out(batch))
    assert found.stats() == expected.stats()


@pytest.mark.parametrize("wrong", [-1, 6, 1000])
@pytest.mark.parametrize("again", [False, True])
def test_a_row_that_points_beside_the_dictionary_is_noticed_wherever_it_is(wrong: int, again: bool) -> None:
    places = [int(place) for place in np.arange(1000) % 6]
    tally = Tally(COLUMNS)
    if again:  # nothing of this dictionary is new in the rows after these
        tally.add(encoded(places))
    with pytest.raises(ValueError, match=r"dictionary|negative"):
        tally.add(encoded([*places, wrong]))


def test_a_dictionary_that_looks_like_the_last_one_but_has_more_values() -> None:
    tally = Tally(COLUMNS)
    tally.add(encoded([0, 1] * 100, LETTERS.slice(1, 2)))
    tally.add(encoded([0, 1] * 100, LETTERS.slice(0, 3)))
    tally.add(encoded([2] * 100, LETTERS.slice(0, 3)))
    assert tally.stats()["minValues"] == {"t": "a"} and tally.stats()["maxValues"] == {"t": "c"}
