"""Row numbers of deletion vectors by numpy, held against the library that writes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap64

from lakemirror.delta.roaring import are_in, row_numbers

RANGES = st.tuples(
    st.sampled_from([0, 65_530, 1 << 20, (1 << 32) - 3, 5 << 33]), st.integers(0, 9000), st.integers(1, 20)
)


@given(st.lists(RANGES, max_size=5), st.booleans())
@example([(0, 9000, 1)], True)
@example([(0, 9000, 2), (1 << 20, 9000, 3), (1 << 32, 5, 1), (5 << 33, 9000, 1)], True)
def test_every_container(ranges: list[tuple[int, int, int]], runs: bool) -> None:
    made = BitMap64()
    for begin, count, step in ranges:
        made |= BitMap64(range(begin, begin + count * step, step))
    if runs:
        made.run_optimize()
    found = row_numbers(made.serialize())
    assert found.dtype == "int64"
    assert found.tolist() == list(made)
    assert are_in(made.serialize(), found)[0].all()
    asked = sorted({number + add for number in [0, *made] for add in (-1, 0, 1) if number + add >= 0})
    held, count = are_in(made.serialize(), np.array(asked, np.int64))
    assert held.tolist() == [number in made for number in asked]
    assert count == len(made)


@pytest.mark.parametrize("size", [0, 7, 9, 13, 20, 100])
def test_what_is_cut_or_none_at_all_is_refused(size: int) -> None:
    data = BitMap64(range(0, 9000, 2)).serialize()[:size]
    with pytest.raises(ValueError):
        row_numbers(data)
    with pytest.raises(ValueError):
        are_in(data, np.arange(3))
    with pytest.raises(ValueError, match="is not the first number"):
        row_numbers(b"\x01" + bytes(7) + bytes(40))


@pytest.mark.parametrize("count", [5_000, 9_000])
def test_a_head_that_says_another_count(count: int) -> None:
    """The count is that of the head, which the log must say too; which rows are deleted is told by the values alone."""
    data = bytearray(BitMap64(range(0, 16_000, 2)).serialize())
    head = data.index((7_999).to_bytes(2, "little"))
    data[head : head + 2] = (count - 1).to_bytes(2, "little")
    held, said = are_in(bytes(data), np.arange(16_000))
    assert said == count and held.tolist() == [True, False] * 8_000
    assert row_numbers(bytes(data)).tolist() == list(range(0, 16_000, 2))
