"""A disk that forgets what was not synced: what programs do to a folder is recorded, and every state that a power cut
may leave is built from the record.

    with Recorder(folder) as recorder: ...     every sync, link, rename, removal within is a moment
    recorder.build(moment, kind, target)       the folder as a disk may hold it when the power fails right after it

Kinds: `least`: only names and contents that were synced; `empty`: all names, contents that were not synced are empty;
`torn`: the same, cut in half; `back`: like `empty`, and removed names that were not synced away are there again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

KINDS = ("least", "empty", "torn", "back")

Names = dict[str, dict[str, int]]
"""By folder (relative, '' is the root): its entries with their inode numbers, folders with 0."""


@dataclass
class Moment:
    """The state right after one event: what is there, and what of it is certainly on the disk."""

    event: str
    now: Names
    synced_names: Names
    synced_contents: dict[int, bytes]
    contents: dict[int, bytes]
    times: dict[int, int]


@dataclass
class Recorder:
    """Records what happens below a folder. What is there when it begins is on the disk."""

    root: Path
    moments: list[Moment] = field(default_factory=list)

    def __enter__(self) -> Recorder:
        self._lock = threading.Lock()
        self._open: dict[int, int] = {}  # while a file is open, no new file gets its inode number
        self._names = self._listed()
        self._contents = {inode: path.read_bytes() for inode, path in self._files().items()}
        self._patches = [mock.patch.object(os, "fsync", self._fsync(os.fsync))]
        for name in ("link", "replace", "rename", "unlink", "mkdir"):
            self._patches.append(mock.patch.object(os, name, self._then(name, getattr(os, name))))
        for patch in self._patches:
            patch.start()
        self._note("begin")
        return self

    def __exit__(self, *_: object) -> None:
        for patch in self._patches:
            patch.stop()
        self._note("end")
        for descriptor in self._open.values():
            os.close(descriptor)

    def build(self, moment: int, kind: str, target: Path) -> None:
        """Makes `target` the folder as a disk may hold it after that moment."""
        at = self.moments[moment]
        names = at.synced_names if kind == "least" else at.now
        if kind == "back":
            names = {folder: {**at.synced_names.get(folder, {}), **entries} for folder, entries in at.now.items()}
        waiting = [""]
        target.mkdir(parents=True)
        while waiting:
            folder = waiting.pop()
            for name, inode in names.get(folder, {}).items():
                below = f"{folder}/{name}" if folder else name
                if inode == 0:
                    (target / below).mkdir()
                    waiting.append(below)
                else:
                    (target / below).write_bytes(self._kept(at, inode, kind))
                    os.utime(target / below, ns=(self._time(moment, inode), self._time(moment, inode)))

    def _kept(self, at: Moment, inode: int, kind: str) -> bytes:
        synced = at.synced_contents.get(inode)
        now = at.contents.get(inode, b"")
        if synced is not None and (synced == now or kind == "least" or inode not in at.contents):
            return synced
        return now[: len(now) // 2] if kind == "torn" else b""

    def _time(self, moment: int, inode: int) -> int:
        """The modified time that the file had last."""
        return next(each.times[inode] for each in reversed(self.moments[: moment + 1]) if inode in each.times)

    def _fsync(self, true: Callable[[Any], None]) -> Callable[[Any], None]:
        def fsync(handle: Any) -> None:
            true(handle)
            number = handle if isinstance(handle, int) else handle.fileno()
            path = Path(f"/proc/self/fd/{number}").readlink()
            if path != self.root and self.root not in path.parents:
                return
            with self._lock:
                if path.is_dir():
                    relative = path.relative_to(self.root).as_posix()
                    below = "" if relative == "." else relative
                    self._names[below] = dict(self._listed().get(below, {}))
                else:
                    self._contents[os.fstat(number).st_ino] = path.read_bytes()
            self._note(f"fsync {path.name}")

        return fsync

    def _then(self, name: str, true: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **named: Any) -> Any:
            result = true(*given, **named)
            one = name in ("unlink", "mkdir")
            target = Path(os.fsdecode(given[0] if one else given[1]))
            inside = named.get("dir_fd" if one else "dst_dir_fd")
            if inside is not None:
                target = Path(f"/proc/self/fd/{inside}").readlink() / target
            if self.root in target.parents:
                self._note(f"{name} {target.name}")
            return result

        return act

    def _note(self, event: str) -> None:
        with self._lock:
            files = self._files()
            for inode, path in files.items():
                if inode not in self._open:
                    with contextlib.suppress(FileNotFoundError):
                        self._open[inode] = os.open(path, os.O_RDONLY)
            self.moments.append(
                Moment(
                    event,
                    self._listed(),
                    {folder: dict(entries) for folder, entries in self._names.items()},
                    {inode: self._contents[inode] for inode in files if inode in self._contents}
                    | {i: self._contents[i] for e in self._names.values() for i in e.values() if i in self._contents},
                    {inode: _read(path) for inode, path in files.items()},
                    {inode: _modified(path) for inode, path in files.items()},
                )
            )

    def _listed(self) -> Names:
        found: Names = {}
        for folder, folders, files in os.walk(self.root):
            below = Path(folder).relative_to(self.root).as_posix()
            entries = found["" if below == "." else below] = dict.fromkeys(folders, 0)
            for name in files:
                entries[name] = _inode(Path(folder, name))
        return found

    def _files(self) -> dict[int, Path]:
        return {
            _inode(path): path for folder, _, files in os.walk(self.root) for path in (Path(folder, n) for n in files)
        }


def _inode(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return -1


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
