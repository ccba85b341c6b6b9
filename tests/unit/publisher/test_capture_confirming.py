"""Up to where the source is confirmed, and what the landing zone says of it."""

from __future__ import annotations

import threading
from pathlib import Path

from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.publisher import Landing
from lakemirror.publisher.capture.capture_position import CaptureState, read_zone_state
from lakemirror.publisher.capture.change_handler import ChangeHandler
from lakemirror.publisher.capture.debezium import Group


def test_nothing_is_confirmed_before_a_transaction_has_ended(tmp_path: Path) -> None:
    """Else the slot is ahead of every file after a kill, and what was said before must not be taken back."""
    zone = Landing(tmp_path).folder(LANDING_ZONE)
    state = CaptureState(zone, {"slot": "s"}, lambda _: None)
    state.said = 5
    handler = ChangeHandler({}, lambda *_: None, lambda _: None, state, threading.Event())  # type: ignore[arg-type,return-value]
    assert not handler.handle([])
    said = read_zone_state(zone)
    assert said is not None and said["position"] == 5
    ended = Group("TransactionMetadataValue", None, b'{"status": "END", "id": "7:9", "ts_ms": 1}')
    assert not handler.handle([ended])  # 9 is said nowhere yet
    state._written = -100.0
    assert handler.handle([])
    said = read_zone_state(zone)
    assert said is not None and said["position"] == 9
