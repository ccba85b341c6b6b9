"""What is in the folder `_delta_log` of a table: commits and checkpoints.

    list_log(table)          all of it
    RecentLog(table).read()  the end of a local log, without listing what was listed before
    list_end(table, before)  the end of a log in a store, listed from a checkpoint on that was there before

A log may hold a million commits, those of a week of two a second. To list them takes a second, and each apply needs a
few of the newest. `_last_checkpoint` may be wrong: it says only under which name to look for a new checkpoint.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

from lakemirror.errors import LakemirrorError
from lakemirror.storage import MOVING
from lakemirror.storage.place import Place, folders_in, names_in, place, written_here

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.([0-9a-fA-F-]{36}))?\.(parquet|json)")
_KEPT = 3  # checkpoints in the end of a log: the newest may be damaged
_COUNTS_FOR = 10.0  # seconds for which a listing counts,
_SHARE = 100  # and at least so many times the seconds that it took

_Identity: TypeAlias = tuple[int, int, int]


class Checkpoint(NamedTuple):
    """One complete checkpoint. `kind`: classic, multi-part or v2 (with a uuid in its name)."""

    version: int
    kind: str
    files: tuple[Place, ...]


class Commits(Mapping[int, Place]):
    """The paths of commit files, by version: `first` to `last`, which is -1 if there is none.

    `listed`: those of which a listing told more than the name. The others are made when they are asked for.
    """

    def __init__(self, folder: Place, versions: Collection[int], listed: Mapping[int, Place]) -> None:
        self._folder, self.listed = folder, listed
        if isinstance(versions, range):
            self.first, self.last = versions.start, versions.stop - 1
        else:
            self.first, self.last = min(versions, default=0), max(versions, default=-1)
        whole = range(self.first, self.last + 1)
        self._versions = whole if len(versions) == len(whole) else frozenset(versions)

    def __getitem__(self, version: int) -> Place:
        if version not in self._versions:
            raise KeyError(version)
        return self.listed.get(version) or commit_path(self._folder, version)

    def __iter__(self) -> Iterator[int]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)

    def __contains__(self, version: object) -> bool:
        return version in self._versions


@dataclass(frozen=True)
class Log:
    """The content of `_delta_log`: commits by version, complete checkpoints in order of version.

    `checksums`: versions that have a checksum file. Its content is not read. `is_whole`: False if only the end of the
    log is here. `listed`: the commits that there were when the whole log was listed, and those since. `newest`: tells
    whether the newest commit of a local log is the same file as before; None where nobody asked.
    """

    folder: Place
    commits: Commits
    checkpoints: tuple[Checkpoint, ...]
    checksums: frozenset[int] = frozenset()
    is_whole: bool = True
    listed: int = 0
    newest: _Identity | None = None

    @cached_property
    def version(self) -> int:
        """The newest version; -1 if there is none."""
        newest = self.commits.last
        return max(newest, self.checkpoints[-1].version) if self.checkpoints else newest

    def with_commits_to(self, version: int) -> Log:
        """The same log after commits up to `version`, which the caller knows to be there."""
        new = range(self.version + 1, version + 1)
        own = {number: path for number in new if (path := written_here(commit_path(self.folder, number))) is not None}
        is_whole = len(self.commits) == self.version - self.commits.first + 1
        versions = range(self.commits.first, version + 1) if is_whole else {*self.commits, *new}
        commits = Commits(self.folder, versions, {**self.commits.listed, **own})
        return replace(self, commits=commits, listed=self.listed + len(new))


def commit_path(folder: Place, version: int) -> Place:
    """The path of a commit file in the folder of a log."""
    return folder / f"{version:020}.json"


def list_log(table: str | Place, since: int = 0) -> Log | None:
    """The commits and complete checkpoints of a table; None if it has no `_delta_log`. `since`: in a store, only those
    of this version and later ones are listed."""
    folder = place(table) / "_delta_log"
    commits: dict[int, Place | None] = {}
    parts: dict[tuple[int, str, int], dict[int, Place]] = {}
    checksums: set[int] = set()
    try:
        for name, path in names_in(folder, f"{since:020}." if since else ""):
            if match := _COMMIT.fullmatch(name):
                commits[int(match[1])] = path
            elif match := _CHECKSUM.fullmatch(name):
                checksums.add(int(match[1]))
            elif match := _CHECKPOINT.fullmatch(name):
                kind = "multi-part" if match[2] else f"v2 {match[4]}.{match[5]}" if match[4] else "classic"
                group = parts.setdefault((int(match[1]), kind, int(match[3] or 1)), {})
                group[int(match[2] or 1)] = path or folder / name
            elif name == MOVING:
                raise LakemirrorError("concurrent-commit", f"{folder.parent} is being moved", table=str(folder.parent))
    except (FileNotFoundError, NotADirectoryError):
        return None
    whole = [
        Checkpoint(version, kind.split()[0], tuple(group[n] for n in sorted(group)))
        for (version, kind, count), group in parts.items()
        if len(group) == count
    ]
    in_order = tuple(sorted(whole, key=lambda c: (c.version, c.kind, c.files)))
    listed = {version: path for version, path in commits.items() if path is not None}
    return Log(folder, Commits(folder, commits, listed), in_order, frozenset(checksums), listed=len(commits))


def tables_below(top: Place) -> Iterator[Place]:
    """The tables in a folder, at any depth. A folder that cannot be listed is among them: reading it says why. Names
    that begin with `_` or `.` are left out.
    """
    try:
        folders = [folder for folder in folders_in(top) if not folder.name.startswith(("_", "."))]
    except OSError:
        yield top
        return
    for folder in folders:
        if has_log(folder):
            yield folder
        else:
            yield from tables_below(folder)


def has_log(folder: Place) -> bool:
    """True for a table's folder, also where it cannot be looked into: reading the table says why."""
    try:
        return (folder / "_delta_log").is_dir()
    except OSError:
        return True


def list_end(table: str, before: Log | None) -> Log | None:
    """The end of a log in a store, or all of it if that is short; None if there is no log. A request for each 1,000
    files.

    `before`: what was listed before. The log is listed from its third newest checkpoint on, and as a whole if it
    does not reach the version that was the newest.
    """
    short = _end(before) if before is not None else None
    if short is not None and not short.is_whole:
        found = list_log(table, min(short.commits))
        if found is not None and short.version in found.commits:
            return _end(replace(found, is_whole=False, listed=short.listed + found.version - short.version))
    whole = list_log(table)
    return _end(whole) if whole is not None else None


class RecentLog:
    """The end of a local table's log, from its third newest checkpoint on, for one thread at a time.

    A new commit has the next version, so it is found by its name. The log is listed again if the newest known commit is
    not the same file any more, if there is a checkpoint whose name `_last_checkpoint` does not tell, and from time to
    time.
    """

    def __init__(self, table: str | Place, counts_for: float = _COUNTS_FOR) -> None:
        """`counts_for`: seconds after which the log is listed again, at least."""
        self._table = place(table)
        self._in_log = (self._table / "_delta_log").__truediv__
        self._pointer_path = self._in_log("_last_checkpoint")
        self._counts_for = counts_for
        self._log: Log | None = None
        self._newest: _Identity | None = None
        self._paths: tuple[Place, Place] = self._table, self._table  # of the newest commit and of the one after it
        self._pointer: _Identity | None = None
        self._counts_until = 0.0

    def read(self) -> Log | None:
        """The end of the log, or all of it if that is short (`is_whole`); None if there is no log."""
        log = self._continued(self._log) if self._log is not None and time.monotonic() < self._counts_until else None
        self._log = log if log is not None else self._listed()
        return self._log

    def forget(self) -> None:
        """The next read lists the log."""
        self._log = None

    def _listed(self) -> Log | None:
        begun, self._newest = time.monotonic(), None
        pointer = _identity(self._pointer_path)
        log = list_log(self._table)
        if log is None or log.version not in log.commits:
            return log
        version = log.version
        self._paths = self._in_log(f"{version:020}.json"), self._in_log(f"{version + 1:020}.json")
        self._pointer, self._newest = pointer, _identity(self._paths[0])
        now = time.monotonic()
        self._counts_until = now + max(self._counts_for, _SHARE * (now - begun))
        return _end(replace(log, newest=self._newest))

    def _continued(self, log: Log) -> Log | None:
        """The known log with what came since; None if it must be listed."""
        version, (newest, following) = log.version, self._paths
        pointer = _identity(self._pointer_path)  # before the commits: a checkpoint is newer than its commit
        if self._newest is None or _identity(newest) != self._newest:
            return None
        while (found := _identity(following)) is not None:
            version, self._newest = version + 1, found
            newest, following = following, self._in_log(f"{version + 1:020}.json")
        if version > log.version:
            log = replace(log.with_commits_to(version), newest=self._newest)
            self._paths = newest, following
        if pointer != self._pointer:
            checkpoint = self._pointed(log)
            if checkpoint is None:
                return None
            known = [each for each in log.checkpoints if each != checkpoint]
            log = _end(replace(log, checkpoints=tuple(sorted([*known, checkpoint], key=lambda each: each.version))))
            self._pointer = pointer
        return log

    def _pointed(self, log: Log) -> Checkpoint | None:
        """The classic checkpoint that `_last_checkpoint` names, if it is there."""
        try:
            version = json.loads(self._pointer_path.read_bytes())["version"]
        except (OSError, ValueError, TypeError, KeyError):
            return None
        if type(version) is not int or version not in log.commits:
            return None
        path = log.folder / f"{version:020}.checkpoint.parquet"
        return Checkpoint(version, "classic", (path,)) if path.is_file() else None


def _end(log: Log) -> Log:
    """The log from its third newest checkpoint on; all of it if there are fewer, or commits are missing."""
    versions = sorted({each.version for each in log.checkpoints if each.version in log.commits})
    if len(versions) <= _KEPT:
        return log
    first = versions[-_KEPT]
    kept = range(first, log.version + 1)
    if any(version not in log.commits for version in kept):
        return log
    checkpoints = tuple(each for each in log.checkpoints if each.version >= first)
    commits = Commits(log.folder, kept, {each: path for each, path in log.commits.listed.items() if each in kept})
    return replace(log, commits=commits, checkpoints=checkpoints, checksums=frozenset(), is_whole=False)


def _identity(path: Place) -> _Identity | None:
    """Tells whether a file is the same as before; None if there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return getattr(found, "st_ino", 0), found.st_mtime_ns, found.st_size
