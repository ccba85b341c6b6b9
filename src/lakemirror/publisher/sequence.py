"""The numbers of one table folder: which comes next, and how one file takes it (contract section 4).

A file is written under a `_…` name, flushed to the disk, and gets its number by a hard link, which fails where the
name is taken. So nobody ever sees a part of a file, and no number is taken twice. Publishers of ours also hold a lock
from counting to linking; without it a publisher that was stopped in between for long could take a number that was
meanwhile published, applied and moved away by the engine.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system: the exclusive link alone keeps writers apart
    fcntl = None  # type: ignore[assignment]

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.landing_zone.zone import MARKER, PROCESSED

SEQUENCE = "_sequence"
TEMPORARY_PREFIX = "_publishing-"
DROPPED_PREFIX = f"{TEMPORARY_PREFIX}dropped-"
ABANDONED_SECONDS = 86_400.0
RESTING = (PROCESSED, "_FilesReadyToDelete", "_QuarantinedFiles")
NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


class Sequence:
    """The number sequence of one table folder. `extension` without its dot."""

    def __init__(self, folder: Path, extension: str = "parquet") -> None:
        self.folder = folder
        self.extension = extension
        self._pattern = re.compile(rf"^(\d{{20}})\.{re.escape(extension)}$")

    def name(self, number: int) -> str:
        return f"{number:020d}.{self.extension}"

    def newest(self) -> int:
        """The highest number that was ever taken, as far as the folder tells; 0 for none.

        The table folder is listed before the folders where applied files rest, because files move that way. With no
        file left at all, the engine's marker tells whether the table lives on: then the last number taken counts,
        as `_sequence` keeps it. Without the marker the engine awaits number 1, and so does this.
        """
        highest = max(self._numbers(self.folder), default=0)
        for resting in RESTING:
            highest = max(highest, max(self._numbers(self.folder / resting), default=0))
        if highest == 0 and (self.folder / MARKER).exists():
            return self._remembered()
        return highest

    def find(self, number: int) -> Path | None:
        """The file with this number, in the table folder or where applied files rest; None where it is gone."""
        for place in (self.folder, *(self.folder / resting for resting in RESTING)):
            if (place / self.name(number)).exists():
                return place / self.name(number)
        # it may have moved from the first place to the second between the two looks
        path = self.folder / PROCESSED / self.name(number)
        return path if path.exists() else None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps every other publisher of ours out of this folder. `publish-conflict` where the folder is gone."""
        path = self.folder / SEQUENCE
        while True:
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            except FileNotFoundError as error:
                raise self._gone() from error
            try:
                if fcntl is not None:
                    fcntl.flock(handle, fcntl.LOCK_EX)
                if _same_file(handle, path):
                    yield
                    return
                # the folder was deleted, and perhaps made again, while this waited for the lock
            finally:
                os.close(handle)

    def take(self, temporary: Path, number: int | None = None) -> int:
        """Publishes a written file under the next number, or under the given one; the caller holds the lock.

        `publish-conflict` where the given number is taken or the folder was deleted meanwhile.
        """
        while True:
            chosen = self.newest() + 1 if number is None else number
            if number is not None and self.find(number) is not None:
                raise LakemirrorError("publish-conflict", f"{self.folder.name}: number {number} is taken already")
            try:
                _link(temporary, self.folder / self.name(chosen))
                break
            except FileExistsError:
                continue  # a publisher that knows no lock was faster: count again
            except FileNotFoundError as error:
                raise self._gone() from error
        reach("publish.after-link")
        temporary.unlink(missing_ok=True)
        sync_folder(self.folder)
        self._remember(max(chosen, self._remembered()))
        return chosen

    def temporary(self, suffix: str = "tmp") -> Path:
        """A name for a file in the making, which neither the engine nor another publisher looks at."""
        return self.folder / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}.{suffix}"

    def sweep(self) -> None:
        """Deletes what publishers that crashed left: dropped folders, and what is half written for more than a day."""
        for path in self.folder.parent.glob(f"{DROPPED_PREFIX}*"):
            shutil.rmtree(path, ignore_errors=True)
        for path in self.folder.glob(f"{TEMPORARY_PREFIX}*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED_SECONDS:
                    path.unlink()

    def _numbers(self, folder: Path) -> Iterator[int]:
        try:
            names = [path.name for path in folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            match = self._pattern.match(name)
            if match:
                yield int(match[1])

    def _remembered(self) -> int:
        try:
            return int((self.folder / SEQUENCE).read_text("ascii"))
        except (FileNotFoundError, ValueError):
            return 0

    def _remember(self, number: int) -> None:
        # In place, because the file is also the lock. It is read only when every numbered file is gone.
        with contextlib.suppress(FileNotFoundError), (self.folder / SEQUENCE).open("r+b") as file:
            file.write(b"%020d\n" % number)

    def _gone(self) -> LakemirrorError:
        return LakemirrorError("publish-conflict", f"{self.folder.name}: the table folder was deleted meanwhile")


def write_whole(path: Path, data: bytes) -> None:
    """Writes `path` atomically, over an older file."""
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        reach("publish.metadata-written")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a loss of power."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # deleted meanwhile, or a system that cannot open folders
        return
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def _link(temporary: Path, target: Path) -> None:
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        if target.exists():
            raise FileExistsError(errno.EEXIST, "taken", str(target)) from error
        temporary.rename(target)


def _same_file(handle: int, path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(handle)
    return (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino)


__all__ = ["Sequence", "sync_folder", "write_whole"]
