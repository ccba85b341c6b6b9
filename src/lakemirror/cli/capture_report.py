"""How far a capture is and what its source keeps back, as lines of JSON on stdout while it runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.publisher import Landing
    from lakemirror.publisher.capture.capture_options import CaptureOptions
    from lakemirror.publisher.capture.capture_status import SlotView


@contextmanager
def reported(landing: Landing, options: CaptureOptions, every: float, stop: Callable[[], None]) -> Iterator[None]:
    """Prints a report every so many seconds while the block runs; 0: none. `stop` is called once nobody reads them."""
    ended = threading.Event()

    def report() -> None:
        while not ended.wait(every):
            try:
                print(json.dumps(_status(landing, options)), flush=True)
            except (OSError, ValueError):
                stop()
                return

    if every:
        threading.Thread(target=report, name="capture-report", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def source_view(landing: Landing, options: CaptureOptions) -> SlotView:
    """What the source says of the log that a capture needs. `capture-source-failed`."""
    from lakemirror.landing_zone.zone import LANDING_ZONE
    from lakemirror.publisher.capture import source_kinds
    from lakemirror.publisher.capture.capture_position import read_zone_state

    said = read_zone_state(landing.folder(LANDING_ZONE)) or {}
    return source_kinds.view(options, str(said.get("slot") or options.slot), int(said.get("position") or 0))


def _status(landing: Landing, options: CaptureOptions) -> dict[str, Any]:
    """The report; empty before the capture has said anything. Null is what the source does not answer."""
    from lakemirror.publisher.capture.capture_status import capture_status

    slot = None
    with suppress(LakemirrorError):
        slot = source_view(landing, options)
    with suppress(LakemirrorError, OSError):
        return capture_status(landing, slot) or {}
    return {}
