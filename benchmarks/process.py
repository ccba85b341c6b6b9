"""A process and all below it, as /proc shows them: memory, processor time, bytes written; how to end them all."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


class _NoPandas:
    hides_pandas = True  # lakemirror takes it away where PySpark needs pandas

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def hide_pandas() -> None:
    """In this process, as lakemirror's command does: nothing that is measured needs it, but pyarrow imports it at the
    first array, a second or two for whoever is measured at that moment.
    """
    sys.meta_path.insert(0, _NoPandas)


@dataclass(frozen=True)
class Seen:
    """One process at one moment: its parent, when it began (in ticks), resident bytes, seconds of processor."""

    parent: int
    began: int
    memory: int
    cpu: float


def processes() -> dict[int, Seen]:
    """Every process of the machine, by its id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                cpu = (int(fields[11]) + int(fields[12])) / _TICK
                found[int(entry.name)] = Seen(int(fields[1]), int(fields[19]), int(fields[21]) * _PAGE, cpu)
    return found


def family(root: int, seen: dict[int, Seen]) -> set[int]:
    """A process and all below it."""
    members, grown = {root}, True
    while grown:
        children = {pid for pid, one in seen.items() if one.parent in members and pid not in members}
        members |= children
        grown = bool(children)
    return members & set(seen)


def written(members: Iterable[int]) -> int:
    """Bytes that these processes have handed to write calls so far."""
    total = 0
    for pid in members:
        with contextlib.suppress(OSError):
            lines = (line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
            total += int(dict(lines)["wchar"])  # type: ignore[arg-type]
    return total


def end(root: int) -> None:
    """Kills a process and all below it."""
    for pid in family(root, processes()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def settle(members: Mapping[int, int], patience: float = 10.0) -> None:
    """Waits until these processes, by id and beginning, are gone; kills those that stay."""
    deadline = time.monotonic() + patience
    while left := _alive(members):
        if time.monotonic() > deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.05)


def _alive(members: Mapping[int, int]) -> list[int]:
    seen = processes()
    return [pid for pid, began in members.items() if pid in seen and seen[pid].began == began]


class Peak:
    """The largest resident memory of a process and all below it while the block runs, in bytes.

    `apart`: processes that do not count, with all below them. `members`: every process that was seen, by id, with when
    it began.
    """

    def __init__(self, root: int, pause: float = 0.2, *, apart: Iterable[int] = ()) -> None:
        self.bytes = 0
        self.members: dict[int, int] = {}
        self._root, self._pause, self._apart = root, pause, tuple(apart)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(self._pause):
            seen = processes()
            now = family(self._root, seen)
            for other in self._apart:
                now -= family(other, seen)
            self.bytes = max(self.bytes, sum(seen[pid].memory for pid in now))
            self.members |= {pid: seen[pid].began for pid in now}


class Meter:
    """What a block costs this process and all below it that live on: seconds, processor seconds, bytes written."""

    def __init__(self) -> None:
        self.seconds = self.cpu = 0.0
        self.written = 0

    def __enter__(self) -> Meter:
        self._cpu, self._written = self._now()
        self._begun = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.seconds = time.perf_counter() - self._begun
        cpu, written_now = self._now()
        self.cpu, self.written = cpu - self._cpu, written_now - self._written

    @staticmethod
    def _now() -> tuple[float, int]:
        seen = processes()
        members = family(os.getpid(), seen)
        return sum(seen[pid].cpu for pid in members), written(members)
