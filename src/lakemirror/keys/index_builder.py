"""The thread that builds the key index and copies of rows, one file at a time, while no apply runs.

request: by the path of what is made ─▶ built when no apply runs, or given up
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from lakemirror.errors import LakemirrorError
from lakemirror.keys.index_folder import MOST_REMEMBERED

log = logging.getLogger("lakemirror")

AFTER_FAILURE = 600.0
"""Seconds without a new attempt after there was no room for an index or a copy."""

_SLICE = 0.2  # seconds after which a wait asks whether it is over
_YIELD = 0.2  # seconds that the builder waits for a running apply, at each check


class Builder:
    """Builds what is requested, in one thread. Safe for several threads. `folder`: for messages.
    `applies`: those that run, which it waits for; changed under `lock`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.lock = threading.Lock()
        self._wanted: OrderedDict[str, Callable[[], bool]] = OrderedDict()
        self._not_worth_it: OrderedDict[str, None] = OrderedDict()
        self._builder: threading.Thread | None = None
        self.applies = 0
        self._not_before = 0.0
        self._saying = threading.Lock()
        self._warned = False

    def request(self, name: str, build: Callable[[], bool]) -> None:
        """Has a thread build what this path names, unless it was not worth it."""
        with self.lock:
            if name in self._not_worth_it or name in self._wanted or time.monotonic() < self._not_before:
                return
            self._wanted[name] = build
            if self._builder is None:
                self._builder = threading.Thread(target=self._build_wanted, name="key-index")
                self._builder.start()

    def forget(self, name: str) -> None:
        """What was requested for this path is not built."""
        with self.lock:
            self._wanted.pop(name, None)

    def rest(self) -> None:
        """Nothing is built for a while: there was no room."""
        self._not_before = time.monotonic() + AFTER_FAILURE

    def wait(self, most: float = math.inf, is_over: Callable[[], bool] = lambda: False) -> None:
        """Waits until every requested index is built or given up; at most so many seconds, or until `is_over`."""
        end, builder = time.monotonic() + most, self._builder
        while builder is not None and builder.is_alive() and time.monotonic() < end and not is_over():
            builder.join(min(_SLICE, end - time.monotonic()))

    def remember_not_worth_it(self, path: Path) -> None:
        """What this path names is not requested again."""
        with self.lock:
            self._not_worth_it[str(path)] = None
            while len(self._not_worth_it) > MOST_REMEMBERED:
                self._not_worth_it.popitem(last=False)

    def _build_wanted(self) -> None:
        """Builds the requested indexes one by one, until none is left or the process ends."""
        while True:
            with self.lock:
                is_over = not self._wanted or not threading.main_thread().is_alive()
                if is_over:
                    self._builder = None
                    return
                name, build = self._wanted.popitem(last=False)
            try:
                self.yield_to_applies()
                if time.monotonic() >= self._not_before and not Path(name).exists():
                    build()
            except _Ended:
                pass
            except FileNotFoundError:
                log.debug("%s is not built: the data file does not exist any more", name)
            except OSError as error:
                self._failed(error)
            except Exception as error:  # the apply that reads the data file reports what is wrong with it
                log.debug("%s is not built: %s", name, error)
                if not isinstance(error, LakemirrorError):  # else a store does not answer now
                    self.remember_not_worth_it(Path(name))

    def _failed(self, error: OSError) -> None:
        self.rest()
        with self._saying:  # the builder's thread, and those of applies, may come here at once
            said, self._warned = self._warned, True
        (log.info if said else log.warning)(
            "the key index in %s cannot be written, look-ups of keys are slower: %s",
            self._folder, error.strerror or error,
        )  # fmt: skip

    def yield_to_applies(self) -> None:
        """Waits a while for running applies. Raises an exception of its own when the process ends."""
        deadline = time.monotonic() + _YIELD
        while self.applies and time.monotonic() < deadline:
            time.sleep(0.005)
        if not threading.main_thread().is_alive():
            raise _Ended


class _Ended(Exception):
    """The process ends: building stops."""
