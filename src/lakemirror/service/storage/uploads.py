"""Uploads that are not published: created files and appended bytes, in files that outlive the process.

    create ─▶ up-<id>/journal + data;  append ─▶ bytes into data (or a part file), then one line in the journal

An append counts once its line is in the journal. Bytes of an append that overlaps others, or whose length is not known
before, go into a file of their own, so that bytes which count are never overwritten before the flush.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import stat
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from lakemirror.storage.own_files import entries, is_folder

DATA = "data"
JOURNAL = "journal"
UPLOAD = re.compile("up-[0-9a-f]{32}")
BLOCKS = re.compile("[0-9a-f]{64}")
BLOCK = re.compile("[A-Za-z0-9_-]+=*")
_OF_UPLOAD = re.compile(f"{DATA}|{JOURNAL}|part-[0-9a-f]+")
_LEFT = re.compile("(put|trash)-[0-9a-f]{32}")


@dataclass(frozen=True)
class Part:
    """Appended bytes. `file`: `data`, where they are at their position, or a file with these bytes alone."""

    position: int
    length: int
    file: str

    @property
    def end(self) -> int:
        return self.position + self.length


@dataclass
class Upload:
    """What is appended to one path and not flushed.

    `base`: flushed bytes before the first append. `base_etag`: the published file they are in, "" for a create.
    `claims`: ranges of `data` that are being written. `sealed`: a flush is under way, nothing more counts.
    `is_copied`: the store knows of it, too (`StagedCopies`).
    """

    path: str
    etag: str
    time_ns: int
    base: int
    base_etag: str
    folder: Path
    parts: list[Part] = field(default_factory=list)
    claims: list[tuple[int, int]] = field(default_factory=list)
    sealed: bool = False
    is_copied: bool = False
    flushing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_create(self) -> bool:
        """True for a created file, which clients see with length 0; False for appends to a published file."""
        return not self.base_etag

    @property
    def data(self) -> Path:
        return self.folder / DATA

    def claim(self, position: int, length: int | None) -> str:
        """The file that bytes of an append are to be written to: `data` at their position, or a new part file."""
        if length is not None:
            end = position + length
            taken = [*((part.position, part.end) for part in self.parts), *self.claims]
            if all(end <= first or last <= position for first, last in taken):
                self.claims.append((position, end))
                return DATA
        return f"part-{secrets.token_hex(8)}"

    def release(self, position: int, length: int | None, file: str) -> None:
        """Ends a claim."""
        if file == DATA and length is not None:
            self.claims.remove((position, position + length))

    def count(self, part: Part) -> None:
        """Makes a written part count. FileNotFoundError where the upload is discarded."""
        line = json.dumps([part.position, part.length, part.file]) + "\n"
        journal = os.open(self.folder / JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(journal, line.encode())
        finally:
            os.close(journal)
        self.parts.append(part)

    @property
    def end(self) -> int:
        """The flushed length after a flush of all that is appended without a gap."""
        end = self.base
        for part in sorted(self.parts, key=lambda part: part.position):
            if part.position > end:
                break
            end = max(end, part.end)
        return end


def begin_upload(folder: Path, path: str, etag: str, time_ns: int, base: int, base_etag: str) -> Upload:
    """A new upload, on disk in `folder`, which does not exist yet."""
    folder.mkdir()
    (folder / DATA).touch()
    header = {"path": path, "etag": etag, "time_ns": time_ns, "base": base, "base_etag": base_etag}
    (folder / JOURNAL).write_text(json.dumps(header) + "\n", encoding="utf-8")
    return Upload(path, etag, time_ns, base, base_etag, folder)


def load_uploads(staging: Path) -> dict[str, Upload]:
    """The uploads that an earlier process left in a staging folder, by path. Leftovers of other kinds are removed."""
    found: dict[str, Upload] = {}
    with suppress(FileNotFoundError):
        for folder in sorted(staging.iterdir()):
            if not UPLOAD.fullmatch(folder.name) or not is_folder(folder):
                _remove(folder)
                continue
            upload = _load(folder)
            other = found.get(upload.path) if upload else None
            if upload is None or (other is not None and other.time_ns > upload.time_ns):
                _remove(folder)  # published, replaced, or never begun
                continue
            if other is not None:
                _remove(other.folder)
            found[upload.path] = upload
    return found


def forget_staged(staging: Path) -> None:
    """Removes what an earlier process has staged on this disk: the store has it, too."""
    for each in entries(staging):
        _remove(each)
    for folder in entries(staging / "blocks"):
        if BLOCKS.fullmatch(folder.name):
            remove_files(folder, BLOCK)


def last_touched(upload: Upload) -> float:
    """When something last came to an upload, in Unix seconds; 0 where it is gone."""
    times = [0.0]
    with suppress(OSError):
        times += [each.stat().st_mtime for each in (upload.folder, *upload.folder.iterdir())]
    return max(times)


def chain(parts: Sequence[Part], start: int, end: int) -> list[Part]:
    """The parts that make up `start` to `end`, in the order in which they are to be written.

    Of overlapping parts, those are taken that fit end to end, later ones first: of two writers one counts completely.
    Where none fit so, all are taken, later ones over earlier ones.
    """
    by_start: dict[int, list[Part]] = {}
    for part in parts:
        if part.length:
            by_start.setdefault(part.position, []).append(part)
    taken: list[Part] = []
    options = [list(by_start.get(start, []))]
    dead: set[int] = set()
    while options:
        at = taken[-1].end if taken else start
        if at == end:
            return taken
        if options[-1] and at not in dead:
            taken.append(options[-1].pop())
            options.append(list(by_start.get(taken[-1].end, [])))
        else:
            dead.add(at)
            options.pop()
            if taken:
                taken.pop()
    return [part for part in parts if part.length]


def _load(folder: Path) -> Upload | None:
    try:
        lines = (folder / JOURNAL).read_text(encoding="utf-8").split("\n")[:-1]
        header = json.loads(lines[0])
        parts = [Part(*json.loads(line)) for line in lines[1:]]
        parts = [  # a flush that ended here made a part file the data
            part if (folder / part.file).exists() else replace(part, file=DATA) for part in parts
        ]
        (folder / DATA).stat()
        return Upload(folder=folder, parts=parts, **header)
    except (OSError, ValueError, TypeError, IndexError):
        return None


def _remove(path: Path) -> None:
    """Removes what an earlier process left under a name of ours; anything else stays.

    What is in `put-…` and `trash-…` came from clients: their names alone tell them.
    """
    if UPLOAD.fullmatch(path.name):
        remove_files(path, _OF_UPLOAD)
    elif _LEFT.fullmatch(path.name) and is_folder(path):
        shutil.rmtree(path, ignore_errors=True)
    elif _LEFT.fullmatch(path.name) and path.is_file() and not path.is_symlink():
        with suppress(OSError):
            path.unlink()


def remove_files(folder: Path, names: re.Pattern[str]) -> None:
    """Removes the files of such names in a folder, and the folder if nothing else is in it."""
    with suppress(OSError):
        for path in entries(folder):
            if names.fullmatch(path.name) and stat.S_ISREG(path.lstat().st_mode):
                path.unlink()
        if is_folder(folder):
            folder.rmdir()
