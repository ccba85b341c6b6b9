"""What a table's properties tell of the options of earlier files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from lakemirror.errors import LakemirrorError
from lakemirror.mirror.history.row_options import (
    EARLIER_PROPERTY,
    OPTIONS_PROPERTY,
    ordered_since,
    upserts_recorded,
    with_earlier,
)
from lakemirror.verify.option_phases import fewest_late_days


def test_deletes_of_another_sequence_say_nothing() -> None:
    earlier = json.dumps([{"last": 3, "options": {"sequence": ["m"]}}])
    before = {EARLIER_PROPERTY: earlier, OPTIONS_PROPERTY: json.dumps({"sequence": ["n"]})}
    assert ordered_since(before, ["n"], 7) == 3
    assert ordered_since(before, ["m"], 7) == 7


SPOILT = ["", "x", "1", "[1]", '[{"last": 3}]', '[{"last": "x", "options": {"sequence": 1}}]']


@pytest.mark.parametrize("text", SPOILT)
def test_what_another_writer_has_put_there_says_nothing_of_any_file(text: str) -> None:
    assert ordered_since({EARLIER_PROPERTY: text, OPTIONS_PROPERTY: '{"sequence": ["n"]}'}, ["n"], 7) == 7


@pytest.mark.parametrize(
    "read", [lambda its: with_earlier(its, 7), lambda its: upserts_recorded(its, 7), fewest_late_days]
)
@pytest.mark.parametrize("text", SPOILT)
def test_a_spoilt_record_has_an_error_with_a_way_out(text: str, read: Callable[[Mapping[str, str]], object]) -> None:
    with pytest.raises(LakemirrorError, match=EARLIER_PROPERTY) as raised:
        read({EARLIER_PROPERTY: text})
    assert raised.value.code == "table-unreadable" and "Unset it" in raised.value.hint
    read({})
