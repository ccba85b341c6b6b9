"""Where a capture of PostgreSQL begins: at what its slot has confirmed, unless changes are missing behind that."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import pytest

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture import source_interface
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.postgresql.slot import LOST, SlotReport
from lakemirror.publisher.capture.postgresql.source import PostgresSource
from lakemirror.publisher.capture.source_interface import Reached

SLOT = SlotReport(False, "reserved", 0, 500)
NOTHING = Reached(0, 0, 0, "", None)
REACHED = Reached(2, 700, 300, "", {"position": 600})


@dataclass
class FakeLog:
    """A log that ends at 1000; a slot that is made now is confirmed up to there."""

    found: SlotReport | None = SLOT
    published: bool = True
    busy: int = 0
    dropped: bool = False

    def slot(self) -> SlotReport | None:
        self.busy -= 1
        return replace(self.found, active=self.busy >= 0) if self.found else None

    def has_publication(self) -> bool:
        return self.published

    def now(self) -> int:
        return 1000

    def drop_slot(self) -> None:
        self.found, self.dropped = None, True

    def make(self) -> SlotReport:
        assert self.found is None
        return replace(SLOT, confirmed=self.now())


def begin(log: FakeLog, reached: Reached, stop: threading.Event | None = None) -> int:
    source = PostgresSource(CaptureOptions("postgresql://me@127.0.0.1/shop"))
    source.log = log  # type: ignore[assignment]
    return source.begin(reached, stop or threading.Event())


@pytest.mark.parametrize(
    "reached",
    [
        NOTHING,
        REACHED,
        replace(REACHED, newest=400, said=None),
        replace(REACHED, newest=1000),
        replace(REACHED, newest=500, said={"position": 400}),
        replace(REACHED, newest=400, said={"position": 500}),
    ],
)
def test_it_begins_where_the_slot_is_confirmed(reached: Reached) -> None:
    """Not where the tables are: what they have already is left out, and the slot gives no less."""
    log = FakeLog()
    assert begin(log, reached) == 500 and not log.dropped


@pytest.mark.parametrize(
    ("log", "dropped"),
    [
        (FakeLog(None), False),
        (FakeLog(None, published=False), False),
        (FakeLog(replace(SLOT, wal_status=LOST)), True),
        (FakeLog(published=False), True),
    ],
)
def test_a_slot_is_made_where_none_can_be_read(log: FakeLog, dropped: bool) -> None:
    assert begin(log, NOTHING) == 1000 and log.dropped == dropped


@pytest.mark.parametrize(
    ("log", "reached", "why"),
    [
        (FakeLog(None), REACHED, "the slot is gone"),
        (FakeLog(replace(SLOT, wal_status=LOST)), REACHED, "has deleted its log"),
        (FakeLog(published=False), REACHED, "has deleted its log"),
        (FakeLog(replace(SLOT, confirmed=701)), REACHED, "another program has read the slot"),
        (FakeLog(replace(SLOT, confirmed=601)), replace(REACHED, newest=600), "another program has read the slot"),
        (FakeLog(), replace(REACHED, newest=1001), "as after a restore"),
    ],
)
def test_changes_that_are_missing_are_an_error(log: FakeLog, reached: Reached, why: str) -> None:
    with pytest.raises(LakemirrorError, match=f"the changes of 2 tables cannot .* {why}") as raised:
        begin(log, reached)
    assert raised.value.code == "capture-position-lost" and not log.dropped


def test_a_slot_that_another_capture_reads_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert begin(FakeLog(busy=2), NOTHING) == 500
    stopped: Any = threading.Event()
    stopped.set()
    monkeypatch.setattr(source_interface, "_WAIT", 0.3)
    for log, stop in ((FakeLog(busy=1), stopped), (FakeLog(busy=1000), None)):
        with pytest.raises(LakemirrorError, match="another capture reads the slot") as raised:
            begin(log, NOTHING, stop)
        assert raised.value.code == "capture-taken"
