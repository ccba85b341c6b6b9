"""One process at a time for an address of a store: an object that its holder puts again every few seconds.

    nobody's, ours, or the same for `LAPSES` seconds ─▶ take, on condition that nobody was faster ─▶ renew … ─▶ give up

A holder that was killed has no say in it: another one takes its place once the object has not changed for so long. The
conditions are the store's, so of two that take at one time one succeeds. No clock is compared with another's.

A holder that was halted learns at its next renewal that it has no say any more. What it does before that is safe all
the same: publishes have conditions, and applies have positions (contract section 9).
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
import uuid
from pathlib import Path

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.storage.durable import put_over
from lakemirror.storage.place import Place
from lakemirror.storage.store_path import StorePath

LAPSES = 15.0  # seconds without a renewal after which another one may take it
RENEWED = 5.0  # seconds between two renewals
_LOOK = 1.0
_NAME = "serve.json"


class Lease:
    """The right to serve an address. `held` is False once another process has it."""

    def __init__(self, folder: Place, own: Path) -> None:
        """`own`: a folder on a disk that remembers who asks: a restart there does not wait."""
        self._at = folder / _NAME
        self._own = own
        self._holder = self._tag = ""
        self.held = True
        self._renewed = 0.0

    def take(self) -> None:
        """Waits until nobody else has it. LakemirrorError `root-in-use` where another process renews it, `store-unsafe`
        where the store keeps no conditions, or what a request raises. Nothing on a disk, which has locks.
        """
        if not isinstance(self._at, StorePath):
            return
        self._holder = _holder_of(self._own)
        self._at.store.probe(f"{self._at.parent.key}/")
        deadline = time.monotonic() + LAPSES
        first = seen = self._at.store.head(self._at.key)
        while not self._is_free(seen) and time.monotonic() < deadline:
            if (seen.tag if seen else "") != (first.tag if first else ""):
                raise LakemirrorError("root-in-use", f"another lakemirror serves {self._at.parent.parent}")
            time.sleep(_LOOK)
            seen = self._at.store.head(self._at.key)
        put = self._at.store.put_over(self._at.key, self._content(), seen.tag) if seen else None
        if seen is None:
            put = self._at.store.create(self._at.key, self._content())
        if put is None:
            raise LakemirrorError("root-in-use", f"another lakemirror begins to serve {self._at.parent.parent}")
        self._renewed, self._tag = time.monotonic(), put.tag
        if self._at.store.put_over(self._at.key, self._content(), "another") is not None:
            raise SetupError("store-unsafe", f"{self._at.store.root} ignores the condition of a put over an object")

    def renew(self) -> bool:
        """False once another process has it. A store that does not answer is asked again at the next call."""
        if not isinstance(self._at, StorePath) or time.monotonic() - self._renewed < RENEWED:
            return self.held
        with contextlib.suppress(LakemirrorError):
            put = self._at.store.put_over(self._at.key, self._content(), self._tag)
            if put is None and not self._is_ours():
                self.held = False
            self._tag = put.tag if put is not None else self._tag
            self._renewed = time.monotonic()
        return self.held

    def give_up(self) -> None:
        """Lets another process take it at once."""
        if isinstance(self._at, StorePath) and self.held:
            with contextlib.suppress(LakemirrorError, FileNotFoundError):
                if self._is_ours():
                    self._at.store.delete([self._at.key])

    def _is_free(self, seen: object) -> bool:
        return seen is None or self._is_ours()

    def _is_ours(self) -> bool:
        assert isinstance(self._at, StorePath)
        try:
            if json.loads(self._at.store.read(self._at.key))["holder"] != self._holder:
                return False
            entry = self._at.store.head(self._at.key)
            self._tag = entry.tag if entry else ""
        except (FileNotFoundError, ValueError, LookupError, TypeError):
            return False
        return True

    def _content(self) -> bytes:
        return json.dumps({"holder": self._holder, "host": socket.gethostname(), "beat": uuid.uuid4().hex}).encode()


def _holder_of(folder: Path) -> str:
    """Who a process with this folder is: the same after a restart."""
    name = folder / "holder"
    with contextlib.suppress(FileNotFoundError):
        return name.read_text(encoding="ascii")
    made = uuid.uuid4().hex
    put_over(name, made.encode(), durable=True)  # whole or not there: two empty names would be one holder
    return made
