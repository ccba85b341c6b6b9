"""Which remembered deletes still say something, by the options that a table's properties tell of earlier files."""

from __future__ import annotations

import json

import pytest

from lakemirror.mirror.history.row_options import EARLIER_PROPERTY, OPTIONS_PROPERTY, ordered_since


def test_deletes_of_another_sequence_say_nothing() -> None:
    earlier = json.dumps([{"last": 3, "options": {"sequence": ["m"]}}])
    before = {EARLIER_PROPERTY: earlier, OPTIONS_PROPERTY: json.dumps({"sequence": ["n"]})}
    assert ordered_since(before, ["n"], 7) == 3
    assert ordered_since(before, ["m"], 7) == 7


@pytest.mark.parametrize("text", ["", "x", "1", "[1]", '[{"last": 3}]', '[{"last": "x", "options": {"sequence": 1}}]'])
def test_what_another_writer_has_put_there_says_nothing_of_any_file(text: str) -> None:
    assert ordered_since({EARLIER_PROPERTY: text, OPTIONS_PROPERTY: '{"sequence": ["n"]}'}, ["n"], 7) == 7
