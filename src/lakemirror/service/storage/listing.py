"""Listings in byte order, one page at a time.

    folder, first name ─▶ walk: a stack of open folders, names sorted ─▶ entries ─▶ page + the name that comes next

The content of folder `x` comes where `x/` sorts: after `x-y`, before `x0`. Links, other kinds of file and names that no
address can hold are left out.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from lakemirror.service.request_address import MOST_PATH_BYTES
from lakemirror.service.storage.database_files import DatabaseFiles
from lakemirror.service.storage.numbers import number_of
from lakemirror.service.storage.storage_answers import invalid_parameter
from lakemirror.storage.served_files import Found, ServedNames

MOST_ENTRIES = 5000

_HIDDEN = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")


@dataclass(frozen=True)
class Entry:
    """A name, beginning with the database as the request wrote it, and what it holds.

    `is_prefix`: the start of several names, under a delimiter; such a name ends with the delimiter.
    """

    name: str
    found: Found
    is_prefix: bool = False


@dataclass(frozen=True)
class Page:
    """`following`: the name that the next page begins with, "" for the last page."""

    entries: list[Entry]
    following: str


class Tree:
    """Several databases under the names that they are listed with."""

    def __init__(self, files_of: Mapping[str, Callable[[], DatabaseFiles]]) -> None:
        self._files_of = files_of

    def find(self, name: str) -> Found | None:
        """What a name holds."""
        database, _, path = name.partition("/")
        return self._files_of[database]().find(path) if database in self._files_of else None

    def walk(self, folder: str, first: str, *, recursive: bool, slashed: bool = False) -> Iterator[Entry]:
        """What is in a folder ("": the databases), from the name `first` on, in byte order.

        `slashed`: folders are prefixes, with a slash at their end. FileNotFoundError for no folder.
        """
        start = first.encode("utf-8", "surrogateescape")
        stack = [self._frame(folder, start, recursive, slashed)]
        try:
            while stack:
                step = next(stack[-1].steps, None)
                if step is None:
                    stack.pop().close()
                    continue
                name, enters = step
                if enters:
                    with suppress(FileNotFoundError):
                        stack.append(self._frame(name, start, recursive, slashed))
                else:
                    found = stack[-1].find(name)
                    if found is not None and slashed and found.is_folder:
                        yield Entry(f"{name}/", found, is_prefix=True)
                    elif found is not None:
                        yield Entry(name, found)
        finally:
            for frame in stack:
                frame.close()

    def _frame(self, folder: str, start: bytes, recursive: bool, slashed: bool) -> _Frame:
        if not folder:
            return _Frame(None, None, "", [(name, True) for name in self._files_of], start, recursive, slashed)
        database, _, path = folder.partition("/")
        if database not in self._files_of:
            raise FileNotFoundError(folder)
        files = self._files_of[database]()
        listed = files.published.listed(path)
        return _Frame(listed, files, folder, _names(listed, files, path), start, recursive, slashed)


class _Frame:
    """An open folder in the middle of a walk."""

    def __init__(
        self,
        listed: ServedNames | None,
        files: DatabaseFiles | None,
        folder: str,
        names: list[tuple[str, bool]],
        start: bytes,
        recursive: bool,
        slashed: bool,
    ) -> None:
        self._listed = listed
        self._files = files
        self._folder = folder
        below = f"{folder}/" if folder else ""
        keys: list[tuple[bytes, str, bool]] = []
        for name, is_folder in names:
            full = below + name
            key = full.encode()
            own = key + b"/" if slashed and is_folder else key
            if own >= start:
                keys.append((own, full, False))
            if recursive and is_folder and key + b"0" > start:
                keys.append((key + b"/", full, True))
        keys.sort()
        self.steps = iter([(full, enters) for _, full, enters in keys])

    def find(self, name: str) -> Found | None:
        if self._files is None or self._listed is None:
            return Found(True, 0, "0x0", 0)
        return self._files.staged(name.partition("/")[2]) or self._listed.find(name.rpartition("/")[2])

    def close(self) -> None:
        if self._listed is not None:
            self._listed.close()
            self._listed = None


def page_of(entries: Iterator[Entry], most: int) -> Page:
    """The next `most` entries."""
    taken: list[Entry] = []
    for entry in entries:
        if len(taken) == most:
            return Page(taken, entry.name)
        taken.append(entry)
    return Page(taken, "")


def rolled_up(entries: Iterator[Entry], prefix: str, delimiter: str) -> Iterator[Entry]:
    """The entries, those with the delimiter after the prefix as one entry each time."""
    if delimiter in ("", "/"):
        yield from entries
        return
    last = ""
    for entry in entries:
        at = entry.name.find(delimiter, len(prefix))
        if at < 0:
            yield entry
        elif entry.name[: at + len(delimiter)] != last:
            last = entry.name[: at + len(delimiter)]
            yield Entry(last, entry.found, is_prefix=True)


def marker_of(name: str) -> str:
    """A name as an opaque marker, "" for none."""
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=") if name else ""


def name_of(marker: str, parameter: str) -> str:
    """The name that a marker stands for. Refused 400 for one that this service did not make."""
    try:
        padded = marker + "=" * (-len(marker) % 4)
        name = base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise invalid_parameter(parameter) from None
    if _HIDDEN.search(name) or len(name) > 2 * MOST_PATH_BYTES or {".", ".."} & set(name.split("/")):
        raise invalid_parameter(parameter)
    return name


def page_size(text: str | None, parameter: str) -> int:
    """How many entries a page may have. Refused 400 for no positive number."""
    if text is None or text == "":
        return MOST_ENTRIES
    number = number_of(text, parameter)
    if number == 0:
        raise invalid_parameter(parameter)
    return min(number, MOST_ENTRIES)


def _names(listed: ServedNames, files: DatabaseFiles, path: str) -> list[tuple[str, bool]]:
    """The names in a folder, each with whether it is a folder."""
    found = {
        name: is_folder
        for name, is_folder in listed.names.items()
        if not _HIDDEN.search(name) and (path or not name.startswith("."))
    }
    below = f"{path}/" if path else ""
    with files.lock:
        staged = [upload.path for upload in files.uploads.values() if upload.is_create]
    for each in staged:
        folder, _, name = each.rpartition("/")
        if each.startswith(below) and folder == path:
            found[name] = False
    return list(found.items())
