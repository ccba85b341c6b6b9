"""What the statistics of many files say of one column, as each apply asks them."""

from __future__ import annotations

import json

import pytest

from lakemirror.delta import exact_json
from lakemirror.engines.versions import value_of


def test_thousands_of_files_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read, parsed = exact_json.read, []
    monkeypatch.setattr(exact_json, "read", lambda text: parsed.append(text) or read(text))
    adds = [{"stats": json.dumps({"nullCount": {"ends": number}, "of": "this test"})} for number in range(3_000)]
    for _ in range(3):
        assert [value_of(add, "nullCount", "ends") for add in adds] == list(range(3_000))
    assert len(parsed) == 3_000


@pytest.mark.parametrize(
    "stats", [None, "", "{", "[]", '{"nullCount": 1}', '{"nullCount": {}}', '{"maxValues": {"c": 1}}']
)
def test_statistics_that_say_nothing(stats: str | None) -> None:
    assert value_of({"stats": stats}, "nullCount", "c") is None
