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


def slot_view(options: CaptureOptions, name: str) -> SlotView:
    """What the source says of a slot. `capture-source-failed`."""
    from lakemirror.publisher.capture.capture_status import SlotView
    from lakemirror.publisher.capture.postgresql.slot import read_slot
    from lakemirror.publisher.capture.postgresql.source_sessions import connected, failing

    with connected(options) as connection, failing(options):
        found = read_slot(connection, name)
        row = connection.execute("select (pg_current_wal_lsn() - '0/0')::bigint").fetchone()
    now = int(row[0]) if row else 0
    if found is None:
        return SlotView("gone", 0, now, False)
    return SlotView(found.wal_status, found.kept_back, now, found.active)


def _status(landing: Landing, options: CaptureOptions) -> dict[str, Any]:
    """The report; empty before the capture has said anything. Null is what the source does not answer."""
    from lakemirror.publisher.capture.capture_status import capture_status

    slot = None
    with suppress(LakemirrorError):
        slot = slot_view(options, options.slot)
    with suppress(LakemirrorError, OSError):
        return capture_status(landing, slot) or {}
    return {}


__all__ = ["reported", "slot_view"]
