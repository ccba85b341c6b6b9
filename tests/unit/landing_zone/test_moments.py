"""Text as moments: a whole column at once gives what each text gives by itself."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from lakemirror.landing_zone.delimited import values
from lakemirror.landing_zone.delimited.values import BadValue, converted

TEXTS = [
    None, "", "2024-01-02", "2024-01-02 03:04", "2024-01-02T03:04:05", "2024-01-02T03:04:05Z", "2024-01-02T03:04:05z",
    "2024-01-02T03:04:05 Z", "2024-01-02 03:04:05 +01:00", "2024-01-02 03:04:05+0130", "2024-01-02 03:04:05-07",
    "2024-01-02T03:04Z", "2024-01-02T03:04:05.1234567", "2024-01-02T03:04:05.123456789Z",
    "2024-01-02T03:04:05.1234567890+01:00", " 2024-01-02T03:04:05Z", "2024-01-02T03:04:05Z ", "2024-01-02T03:04:05\n",
    "2024-01-02T24:00:00", "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00", "0001-01-01", "9999-12-31",
    "2024-01-02T03:04:05+19:00", "2024-01-02T03:04+18:00", "2024-01-02T03:04:05-18:59", "1500-02-29", "2024-01-02Z",
    "2024-01-02T03:04:05.", "2024-01-02T03:04:60Z", "2024-01-02T03", "2024-01-02T03Z", "x", "2024-01-02T03:04:05+99:00",
]  # fmt: skip


def outcome(texts: tuple[str | None, ...]) -> Any:
    try:
        return converted(pa.array(texts, pa.string()), "timestamp").cast(pa.int64()).to_pylist()
    except BadValue as error:
        return error.place


@pytest.mark.parametrize("count", [1, 2])
def test_a_column_gives_what_each_of_its_texts_gives(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = list(itertools.product(TEXTS, repeat=count))
    at_once = [outcome(texts) for texts in columns]
    monkeypatch.setitem(values._FAST, "timestamp", lambda *_: None)
    one_by_one = [outcome(texts) for texts in columns]
    different = [each for each in zip(columns, at_once, one_by_one, strict=True) if each[1] != each[2]]
    assert different == []
    assert sum(isinstance(found, list) for found in at_once) > len(columns) / 3
