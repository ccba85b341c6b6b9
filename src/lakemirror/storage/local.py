"""What the engine does to files outside Spark: list, read, write whole or not at all, move, delete.

One small class per kind of store; `LocalStorage` is the only one so far. All paths are relative to the root of the
mirrored database, with `/` between their parts, so that nothing above this module knows where a database lies.
An object store can follow as a second class with the same methods (`etag`, `write_new` as a conditional put).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from lakemirror.errors import LakemirrorError


@dataclass(frozen=True)
class Entry:
    """One file as a listing shows it. `size` in bytes, `modified` in nanoseconds since the epoch."""

    path: str
    size: int
    modified: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def etag(self) -> str:
        """Differs whenever the content may differ: size and modified time of a local file."""
        return f"{self.size:x}-{self.modified:x}"


@dataclass
class Listing:
    """A folder and all below it: files and folders, each as paths relative to the root."""

    files: list[Entry] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)


class Storage(Protocol):
    """The store that holds one mirrored database. Errors: `storage-unavailable`, or FileNotFoundError for one path."""

    def uri(self, path: str = "") -> str:
        """The path as Spark reads it."""

    def list(self, path: str, enter: Callable[[str], bool] = ...) -> Listing:
        """All files and folders below a folder; `enter(path)` False leaves a folder's content out (it is still named).

        FileNotFoundError where the folder itself is missing.
        """

    def stat(self, path: str) -> Entry | None:
        """The file, or None."""

    def exists(self, path: str) -> bool:
        """True for a file or a folder."""

    def open(self, path: str) -> BinaryIO:
        """The file, opened for reading bytes with seek; FileNotFoundError."""

    def read(self, path: str) -> bytes:
        """The whole file; FileNotFoundError."""

    def write(self, path: str, data: bytes) -> None:
        """Puts the file there whole or not at all, over an older one, with folders as needed."""

    def write_new(self, path: str, data: bytes) -> bool:
        """The same only where no file is; False where one is. The folder must exist: FileNotFoundError."""

    def move(self, source: str, target: str) -> None:
        """Moves a file or a folder, over an older file, with folders as needed; FileNotFoundError."""

    def create(self, path: str) -> BinaryIO:
        """A new file, opened for writing, with folders as needed; over an older one."""

    def link(self, source: str, target: str) -> None:
        """The file under a second name, with folders as needed, without copying where the store can; FileNotFoundError.

        Over an older file. What becomes of the first name does not touch the second.
        """

    def touch(self, path: str) -> None:
        """Sets a file's modified time to now; FileNotFoundError."""

    def delete(self, path: str) -> None:
        """Deletes a file or a whole folder; nothing where none is."""


class LocalStorage:
    """A mirrored database in a local folder."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).absolute()

    def uri(self, path: str = "") -> str:
        return str(self.root / path) if path else str(self.root)

    def list(self, path: str, enter: Callable[[str], bool] = lambda _: True) -> Listing:
        listing = Listing()
        top = str(self.root / path)
        prefix = f"{path}/" if path else ""
        pending = [(top, prefix)]
        while pending:
            folder, below = pending.pop()
            try:
                scan = os.scandir(folder)
            except FileNotFoundError:
                if folder == top:
                    raise
                continue  # deleted by its publisher between two listings
            except OSError as error:
                raise _unavailable(folder, error) from error
            with scan:
                for item in scan:
                    name = below + item.name
                    try:
                        if item.is_dir():
                            listing.folders.append(name)
                            if enter(name):
                                pending.append((item.path, name + "/"))
                        else:
                            found = item.stat()
                            listing.files.append(Entry(name, found.st_size, found.st_mtime_ns))
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        raise _unavailable(item.path, error) from error
        return listing

    def stat(self, path: str) -> Entry | None:
        try:
            found = (self.root / path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unavailable(path, error) from error
        return Entry(path, found.st_size, found.st_mtime_ns)

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def open(self, path: str) -> BinaryIO:
        try:
            return (self.root / path).open("rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unavailable(path, error) from error

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            return file.read()

    def write(self, path: str, data: bytes) -> None:
        target = self.root / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = _write_temporary(target, data)
            Path(temporary).replace(target)
        except OSError as error:
            raise _unavailable(path, error) from error

    def write_new(self, path: str, data: bytes) -> bool:
        target = self.root / path
        temporary = _write_temporary(target, data)
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            Path(temporary).unlink(missing_ok=True)
        return True

    def move(self, source: str, target: str) -> None:
        origin, destination = self.root / source, self.root / target
        try:
            origin.replace(destination)
        except FileNotFoundError:
            # Folders are made one by one below what both paths share: a table folder that its publisher deletes at
            # this moment must not come back as an empty one.
            shared = Path(os.path.commonpath([origin.parent, destination.parent]))
            missing = [destination.parent, *destination.parent.parents]
            for folder in reversed(missing[: missing.index(shared)]):
                with contextlib.suppress(FileExistsError):
                    folder.mkdir()
            origin.replace(destination)

    def create(self, path: str) -> BinaryIO:
        target = self.root / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            return target.open("wb")
        except OSError as error:
            raise _unavailable(path, error) from error

    def link(self, source: str, target: str) -> None:
        origin, destination = self.root / source, self.root / target
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.unlink(missing_ok=True)
        try:
            os.link(origin, destination)
        except FileNotFoundError:
            raise
        except OSError:  # another owner's file, or a file system without links
            copy_file(origin, destination)

    def touch(self, path: str) -> None:
        os.utime(self.root / path)

    def delete(self, path: str) -> None:
        target = self.root / path
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)


def copy_file(source: str | os.PathLike[str], target: Path) -> None:
    """Copies the bytes of a local file within the kernel; where the file system can, both share their blocks."""
    with Path(source).open("rb") as read, target.open("wb") as write:
        copied, size = 0, os.fstat(read.fileno()).st_size
        with contextlib.suppress(AttributeError, OSError):  # another system than Linux, two file systems
            while some := os.copy_file_range(read.fileno(), write.fileno(), 1 << 30):
                copied += some
        if copied == size:
            return
        read.seek(0)  # some file systems answer that there is nothing to copy
        write.seek(0)
        write.truncate()
        shutil.copyfileobj(read, write, 1 << 20)


def _write_temporary(target: Path, data: bytes) -> str:
    handle, temporary = tempfile.mkstemp(prefix="_lakemirror-", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return temporary


def _unavailable(path: object, error: OSError) -> LakemirrorError:
    return LakemirrorError("storage-unavailable", f"{path}: {error.strerror or error}")


def seconds_since(modified: int, now: float | None = None) -> float:
    """The age in seconds of a modified time in nanoseconds."""
    return (time.time() if now is None else now) - modified / 1e9


__all__ = ["Entry", "Listing", "LocalStorage", "Storage", "seconds_since"]
