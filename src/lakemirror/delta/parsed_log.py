"""The actions of log files that this process has parsed lately: each look and each apply read the same commits again.

    path ─▶ its bytes are read ─▶ equal to those parsed before ─▶ the same actions
                                └ other bytes, or none kept    ─▶ parsed, checked, kept

A file is always read, and kept actions are used only where every byte is the same. So they are what parsing gives,
whoever wrote the file. Actions are shared by all callers: nobody may change them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lakemirror.storage.place import Place

MOST_BYTES = 48 << 20
"""Memory of all kept actions, by the estimate of `_size`."""

_OF_AN_ACTION = 1024  # bytes of the Python objects of an action beside its text: measured


class _Kept(NamedTuple):
    data: bytes
    actions: Sequence[dict[str, Any]]

    @property
    def size(self) -> int:
        return 3 * len(self.data) + _OF_AN_ACTION * len(self.actions)


class ParsedLog:
    """The actions of the files that were read last, at most `most_bytes`. Safe for several threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._left = self._most = most_bytes
        self._held: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def actions(
        self, path: Place, what: str, data: bytes, parse: Callable[[], Sequence[dict[str, Any]]]
    ) -> Sequence[dict[str, Any]]:
        """The actions of a file with these bytes, from memory or by `parse`. `what`: which of its actions.

        Errors of `parse` are raised, and nothing is kept.
        """
        name = (str(path), what)
        with self._lock:
            kept = self._held.get(name)
            if kept is not None:
                self._held.move_to_end(name)
        if kept is not None and kept.data == data:
            return kept.actions
        made = _Kept(data, parse())
        with self._lock:
            before = self._held.pop(name, None)
            self._left += before.size if before is not None else 0
            if made.size <= self._most // 4:
                self._held[name] = made
                self._left -= made.size
            while self._left < 0:
                self._left += self._held.popitem(last=False)[1].size
        return made.actions


LATELY_PARSED = ParsedLog()
"""What all tables of the process share."""

__all__ = ["LATELY_PARSED", "MOST_BYTES", "ParsedLog"]
