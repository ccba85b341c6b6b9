"""Reports which folders of a local database have changed, by inotify (Linux).

folders ─▶ watch ─▶ wait ─▶ the folders in which a file or folder was created, removed or written, and new folders

It only saves looks. Writes of other machines into a shared folder are not reported, and an overflowing queue loses
events, so callers still look at every folder from time to time.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

_CREATE, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _DELETE = 0x100, 0x8, 0x40, 0x80, 0x200
_OVERFLOW, _IGNORED, _IS_FOLDER = 0x4000, 0x8000, 0x40000000
_ONLY_FOLDERS, _NO_LINKS = 0x01000000, 0x02000000
_MASK = _CREATE | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _DELETE | _ONLY_FOLDERS | _NO_LINKS
_EVENT = struct.Struct("iIII")
_SLICE = 0.2  # seconds after which a wait asks whether it is over
_LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay", "f2fs", "zfs", "bcachefs"}


class NotWatched(NamedTuple):
    """Why the folders of a database cannot be watched. `is_limit`: a limit of the system, which may be raised."""

    reason: str
    is_limit: bool = False


class Changed(NamedTuple):
    """What changed: folders relative to the root. `lost`: some events were lost."""

    folders: frozenset[str] = frozenset()
    lost: bool = False


class FolderWatch:
    """Watches folders. `wait` is for one thread, the rest for any."""

    def __init__(self, root: Path) -> None:
        """`root`: folders are named relative to it. OSError if the system has no inotify, or its limit is reached."""
        self._root = os.fsencode(root)
        self._system = ctypes.CDLL(None, use_errno=True)
        self._queue = self._system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._queue < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.refused: dict[str, str] = {}  # folders that cannot be watched, and why
        self._folders: dict[int, str] = {}
        self._watched: dict[str, int] = {}
        self._lock = threading.RLock()

    def watch(self, folders: Iterable[str]) -> set[str]:
        """Starts to watch these folders, relative to the root. A folder that is gone is skipped. If the system refuses
        one, `refused` says why.
        """
        with self._lock:
            return {folder for folder in folders if folder not in self._watched and self._begin(folder)}

    def watches(self, folder: str) -> bool:
        """True for a folder that is watched."""
        return folder in self._watched

    def unwatch(self, above: str) -> None:
        """Ends the watches of a folder and of all folders below it."""
        with self._lock:
            self._forget_below(above)
            for folder in [each for each in self.refused if _is_below(each, above)]:
                del self.refused[folder]

    def wait(self, seconds: float, is_over: Callable[[], bool]) -> Changed:
        """What changed, as soon as something does. Empty after so many seconds, or once `is_over` returns True."""
        until = time.monotonic() + seconds
        ready = select.poll()
        ready.register(self._queue, select.POLLIN)
        while not is_over():
            left = until - time.monotonic()
            if ready.poll(max(0.0, min(left, _SLICE)) * 1000):
                return self._read()
            if left <= 0:
                break
        return Changed()

    def close(self) -> None:
        """Ends all watches."""
        with self._lock:
            if self._queue >= 0:
                os.close(self._queue)
                self._queue = -1

    def _begin(self, folder: str) -> bool:
        path = os.path.join(self._root, os.fsencode(folder)) if folder else self._root  # noqa: PTH118  bytes
        handle = self._system.inotify_add_watch(self._queue, path, _MASK)
        self.refused.pop(folder, None)
        if handle >= 0:
            self._folders[handle] = folder
            self._watched[folder] = handle
        elif (number := ctypes.get_errno()) not in (errno.ENOENT, errno.ENOTDIR):
            self.refused[folder] = f"{folder}: {_reason(number)}"
        return bool(handle >= 0)

    def _read(self) -> Changed:
        try:
            data = os.read(self._queue, 1 << 20)
        except BlockingIOError:
            return Changed()
        with self._lock:  # a folder whose event is here is also in `_folders`
            return self._changed(data)

    def _changed(self, data: bytes) -> Changed:
        changed: set[str] = set()
        lost = False
        at = 0
        while at < len(data):
            handle, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            lost = lost or bool(mask & _OVERFLOW)
            folder = self._folders.get(handle)
            if folder is None:
                continue
            if mask & _IGNORED:  # the folder is gone
                self._forget(folder)
            elif mask & _IS_FOLDER:
                inner = f"{folder}/{os.fsdecode(name)}" if folder else os.fsdecode(name)
                if mask & (_MOVED_FROM | _DELETE):
                    self._forget_below(inner)
                else:
                    changed.add(inner)
            changed.add(folder)
        return Changed(frozenset(changed), lost)

    def _forget(self, folder: str) -> None:
        handle = self._watched.pop(folder, None)
        if handle is not None and self._folders.get(handle) == folder:
            del self._folders[handle]

    def _forget_below(self, gone: str) -> None:
        """Ends the watches of a renamed folder: they would report its old name."""
        for folder in [each for each in self._watched if _is_below(each, gone)]:
            handle = self._watched[folder]
            self._forget(folder)
            self._system.inotify_rm_watch(self._queue, handle)


def not_watched(folder: Path) -> NotWatched | None:
    """Why a folder cannot be watched: the system is not Linux, or other machines may write to the file system."""
    if not sys.platform.startswith("linux"):
        return NotWatched(f"{sys.platform} is not watched")
    kind = file_system_of(folder)
    return None if kind in _LOCAL else NotWatched(f"{folder} is on {kind or 'an unknown file system'}")


def open_watch(root: Path) -> FolderWatch | NotWatched:
    """A watch for folders below `root`, or why there is none."""
    try:
        return FolderWatch(root)
    except OSError as error:
        return NotWatched(_reason(error.errno or 0), is_limit=error.errno == errno.EMFILE)
    except AttributeError as error:
        return NotWatched(f"inotify: {error}")


def _is_below(folder: str, above: str) -> bool:
    return folder == above or folder.startswith(f"{above}/" if above else "")


def _reason(number: int) -> str:
    """Why the system refuses a watch, and how to raise the limit."""
    text = os.strerror(number)
    setting = {errno.ENOSPC: "max_user_watches", errno.EMFILE: "max_user_instances"}.get(number)
    if setting is None:
        return text
    try:
        limit = Path("/proc/sys/fs/inotify", setting).read_text().strip()
    except OSError:
        limit = "not known"
    return f"{text}: raise fs.inotify.{setting}, which is {limit}"


def file_system_of(path: Path) -> str:
    """The name of the file system type at `path`; empty if unknown."""
    try:
        device = path.stat().st_dev
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    number = f"{os.major(device)}:{os.minor(device)}"
    found = [line for line in lines if line.split(" ", 3)[2] == number]
    return found[-1].partition(" - ")[2].split(" ", 1)[0] if found else ""
