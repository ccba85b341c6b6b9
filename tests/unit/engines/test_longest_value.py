"""The longest value of a dictionary page, told without a reader."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakemirror.engines.kernels.decode import longest_stored

_VALUES = st.lists(st.binary(max_size=300) | st.sampled_from([b"", b"\0", b"\0\0\0", b"\x01\0\0\0"]), max_size=8)


def stored(values: list[bytes]) -> bytes:
    return b"".join(len(value).to_bytes(4, "little") + value for value in values)


@given(_VALUES)
def test_it_is_never_too_short(values: list[bytes]) -> None:
    found = longest_stored(stored(values), len(values))
    assert found is None or found == max(map(len, values))


@given(st.lists(st.text("abcdefgh ", max_size=60), min_size=1, max_size=50))
def test_plain_text_is_told(texts: list[str]) -> None:
    values = [text.encode() for text in texts if text] or [b"x"]
    assert longest_stored(stored(values), len(values)) == max(map(len, values))


@given(st.binary(max_size=60), st.integers(0, 8))
def test_nonsense_is_no_answer_or_a_bound(data: bytes, values: int) -> None:
    found = longest_stored(data, values)
    assert found is None or (values and found <= len(data) - 4 * values)
