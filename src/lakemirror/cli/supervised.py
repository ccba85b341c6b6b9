"""Runs long work in a separate thread, so that the main thread can answer a signal at any time.

signal ─▶ the work gets a stop event ─▶ it ends within PATIENCE, or the process ends without it second signal ─▶ the
process ends at once

Python runs signal handlers in the main thread only, and not while that thread is inside a library. Ending the process
while threads work is safe: it may be killed at any time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, TypeVar

from lakemirror.cli.printable import say

PATIENCE = 10.0  # seconds that the work gets to end by itself after a signal
_LAST_WORDS = 2.0  # seconds that writing the status may take
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Result = TypeVar("Result")


def supervised(
    work: Callable[[threading.Event], Result],
    abandon: Callable[[], None] = lambda: None,
    announce: Callable[[str], None] = say,
) -> tuple[Result | None, int]:
    """The result of the work, and the signal that ended it (0: none). `work` gets the event that stops it.

    Errors of the work are raised here. `announce` is called after Ctrl-C. If the work does not end in time after a
    signal, `abandon` is called and the process ends: exit code 0 after SIGTERM or SIGHUP, 130 after SIGINT.
    """
    stop, ended, received = threading.Event(), threading.Event(), [0]
    outcome: list[Result] = []
    raised: list[BaseException] = []

    def carry_out() -> None:
        try:
            outcome.append(work(stop))
        except BaseException as failure:
            raised.append(failure)
        finally:
            ended.set()

    def on_signal(number: int, _: FrameType | None) -> None:
        if received[0]:
            os._exit(128 + number)
        received[0] = number
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        threading.Thread(target=carry_out, name="work", daemon=True).start()
        while not ended.wait(0.2):
            if received[0]:
                break
        if received[0] and not ended.is_set():
            if received[0] == signal.SIGINT:
                announce("stopping; again to stop at once")
            if not ended.wait(PATIENCE):
                _leave(abandon, received[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if raised:
        raise raised[0]
    return (outcome[0] if outcome else None), received[0]


def leave(code: int) -> NoReturn:
    """Ends the process with this exit code, without waiting for threads that still work."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _leave(abandon: Callable[[], None], number: int) -> None:
    last_words = threading.Thread(target=_quietly, args=(abandon,), daemon=True)
    last_words.start()
    last_words.join(_LAST_WORDS)
    leave(130 if number == signal.SIGINT else 0)


def _quietly(act: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        act()
