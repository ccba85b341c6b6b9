"""Files of lines on this machine's disk that survive a killed process, each held by one process at a time.

    take ─▶ append, append … ─▶ lines ─▶ drop_first: what was carried away is cut off, what came meanwhile stays
    killed: the lock ends with the process, and the next one takes the file with its lines

The first line is a head: `{"spool": <id>, "from": <number of the next line>}`. So every line has a number that is never
used again, and whoever carries lines away can record the last one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lakemirror.errors import LakemirrorError
from lakemirror.storage.local import folder_of, open_file, open_folder

MOST_BYTES = 64 << 20
"""Of one file; lines beyond it are refused."""

_MOST_FILES = 64  # processes at once with a spool of one database
_OPENED = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class SpoolFile:
    """One file of lines that this process holds, until the object is gone."""

    def __init__(self, folder: SpoolFolder, name: str, file: int) -> None:
        self._folder, self._name, self._file = folder, name, file
        data = self._content()
        self.id, self.first, begin = head_of(data)
        if not begin:
            self._rewrite(b"")
        elif not data.endswith(b"\n"):
            os.write(file, b"\n")  # a torn line stays a line of its own

    def let_go(self) -> None:
        """Lets another process take the file, until `hold`."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def hold(self) -> bool:
        """Takes the file again; False if another process has it, or has put another one in its place."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return os.fstat(self._file).st_nlink > 0

    def append(self, line: bytes) -> bool:
        """Adds a line without its end; False if the file is full. FileNotFoundError if somebody deleted it."""
        found = os.fstat(self._file)
        if not found.st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._name)
        if found.st_size > MOST_BYTES:
            return False
        os.write(self._file, line + b"\n")
        return True

    def lines(self) -> list[bytes]:
        """The lines. The number of the first one is `first`."""
        data = self._content()
        return complete_lines(data, head_of(data)[2])

    def drop_first(self, count: int) -> None:
        """Cuts off so many lines, atomically."""
        left = self.lines()[count:]
        self.first += count
        self._rewrite(b"".join(line + b"\n" for line in left))

    def __del__(self) -> None:
        """Lets another process take the file."""
        with suppress(OSError, AttributeError):
            os.close(self._file)

    def _content(self) -> bytes:
        size = os.fstat(self._file).st_size
        return os.pread(self._file, size, 0)

    def _rewrite(self, rest: bytes) -> None:
        """Puts another file in place of this one, which is locked before it has the name."""
        head = head_line(self.id, self.first)
        with folder_of(self._folder.root, self._folder.path(self._name)) as (folder, name):
            temporary = f"{name}.tmp"
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            new = os.open(temporary, _OPENED | os.O_EXCL, 0o644, dir_fd=folder)
            try:
                fcntl.flock(new, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.write(new, head + rest)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.close(new)
                raise
        os.close(self._file)
        self._file = new


class SpoolFolder:
    """The spool files of one database: in the database, or below a folder of this machine."""

    def __init__(self, root: Path, below: str, make_below: str) -> None:
        """`below`: the folder, relative to `root`; its missing parts are made below `make_below`."""
        self.root, self._below, self._make_below = root, below, make_below

    def path(self, name: str) -> str:
        """The path of a file, relative to `root`."""
        return f"{self._below}/{name}"

    def take(self) -> SpoolFile:
        """The first file that no process holds, with the lines that are in it; a new one if there is none.

        FileNotFoundError if the folder above is gone. OSError where files cannot be locked. LakemirrorError
        `path-refused`.
        """
        for number in range(_MOST_FILES):
            if (taken := self._taken(f"{number}.jsonl")) is not None:
                return taken
        raise LakemirrorError("storage-unavailable", f"{self.root / self._below}: {_MOST_FILES} files are all taken")

    def left(self) -> Iterator[SpoolFile]:
        """Files with lines that no process holds; each is held as long as the caller has it."""
        for name in self._names():
            taken = self._taken(name)
            if taken is not None and taken.lines():
                yield taken

    def read_all(self) -> list[tuple[str, int, list[bytes]]]:
        """Of each file, whoever holds it: its id, the number of its first line, its lines."""
        found = []
        for name in self._names():
            with suppress(OSError, LakemirrorError), folder_of(self.root, self.path(name)) as (folder, last):
                with os.fdopen(open_file(folder, last, name), "rb") as file:
                    data = file.read(2 * MOST_BYTES)
                spool, first, begin = head_of(data)
                found.append((spool, first, complete_lines(data, begin)))
        return found

    def _names(self) -> list[str]:
        try:
            with folder_of(self.root, self._below) as (above, name):
                folder = open_folder(above, name, self._below)
            try:
                names = os.listdir(folder)  # noqa: PTH208, a descriptor
            finally:
                os.close(folder)
        except (OSError, LakemirrorError):
            return []
        return sorted(name for name in names if name.endswith(".jsonl"))

    def _taken(self, name: str) -> SpoolFile | None:
        """The file, locked; None if another process holds it, or has just replaced it."""
        with folder_of(self.root, self.path(name), self._make_below, coded=False) as (folder, last):
            file = os.open(last, _OPENED, 0o644, dir_fd=folder)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found, named = os.fstat(file), os.stat(last, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISREG(found.st_mode) or (named.st_ino, named.st_dev) != (found.st_ino, found.st_dev):
                    os.close(file)
                    return None
            except BlockingIOError:
                os.close(file)
                return None
        return SpoolFile(self, name, file)


def head_line(spool: str, first: int) -> bytes:
    """The head of a file with this id, whose next line has this number."""
    return json.dumps({"spool": spool, "from": first}).encode() + b"\n"


def head_of(data: bytes) -> tuple[str, int, int]:
    """The id, the number of the first line, and where the lines begin; a new id and 0 where there is no head."""
    line, end, _ = data.partition(b"\n")
    with suppress(ValueError, KeyError, TypeError):
        head = json.loads(line)
        if end:
            return str(head["spool"]), int(head["from"]), len(line) + 1
    return uuid.uuid4().hex, 1, 0


def complete_lines(data: bytes, begin: int) -> list[bytes]:
    """The lines from `begin` on, without one that is not written to its end."""
    return data[begin:].split(b"\n")[:-1]
