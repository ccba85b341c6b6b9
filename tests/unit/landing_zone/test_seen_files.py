"""What is remembered of waiting files: read once while they wait, and forgotten with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from folders import ORDERS, file_name, storage_with

from lakemirror.landing_zone.pending import SeenFiles
from lakemirror.landing_zone.zone import scan
from lakemirror.storage import LocalStorage


class Counting(LocalStorage):
    """Counts the files that are opened."""

    opened = 0

    def open(self, *given: Any, **more: Any) -> Any:
        self.opened += 1
        return super().open(*given, **more)


def test_a_footer_is_read_once_while_its_file_is_listed(tmp_path: Path) -> None:
    storage_with(tmp_path, *(f"orders/{file_name(number)}" for number in (1, 2)))
    storage = Counting(tmp_path)
    first, second = scan(storage).tables[ORDERS].files
    seen = SeenFiles(storage, 30.0)
    for _ in range(2):
        for entry in (first, second):
            assert seen.readiness(0.0).read_footer(entry).num_rows == 1
        seen.keep([first, second])
    assert storage.opened == 2
    seen.keep([second])
    seen.readiness(0.0).read_footer(second)
    assert storage.opened == 2
    seen.readiness(0.0).read_footer(first)
    assert storage.opened == 3, "it was forgotten with its file"


def test_text_that_does_not_change_for_a_second_is_complete(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, "orders/x.csv")
    (entry,) = scan(storage).tables[ORDERS].files
    written = entry.modified / 1e9
    seen = SeenFiles(storage, 30.0)

    def steady_at(now: float) -> float:
        steady = seen.readiness(now).steady_at
        assert steady is not None
        return steady(entry) - written

    assert round(steady_at(written + 5), 3) == 6
    assert round(steady_at(written + 5.5), 3) == 6, "the first look counts"
    assert round(steady_at(written + 40), 3) == 30
    seen.keep([])
    assert round(steady_at(written + 7), 3) == 8
