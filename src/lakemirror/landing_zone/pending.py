"""Which files of a table folder come next, and why no more (contract section 4).

    listing ─▶ lines: one sequence · one per partition · all by time ─▶ contiguous ─▶ complete ones, with their footers

`SeenFiles` remembers the waiting files from look to look: a footer is read once, as long as the file does not change;
delimited text that did not change for a second is complete.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import pyarrow.parquet as pq

from lakemirror.errors import Rejected
from lakemirror.landing_zone.change_file import (
    AppliedFiles,
    ChangeFile,
    Readiness,
    TableFiles,
    Waiting,
    ambiguous,
    complete,
    partition_values,
)
from lakemirror.landing_zone.metadata import SEQUENTIAL, Warned, capped
from lakemirror.landing_zone.zone import TableFolder
from lakemirror.parquet.footer import read_footer
from lakemirror.storage import Entry, Storage


@dataclass(frozen=True)
class Pending:
    """The files to apply next, in order, and why no more.

    `files` may be applied now. `behind`: how many others are not applied, such as a bad or incomplete file and those
    after it; `behind_since`: when the oldest of them was written, in nanoseconds, None where there is none. `waiting`:
    the gap or the incomplete file. `rejected`: the bad file that follows `files`, if any: files before it are applied.
    """

    files: tuple[ChangeFile, ...] = ()
    behind: int = 0
    behind_since: int | None = None
    waiting: Waiting | None = None
    rejected: Rejected | None = None

    @property
    def count(self) -> int:
        return len(self.files) + self.behind

    @property
    def oldest(self) -> float | None:
        """When the oldest file that is not applied was written, seconds since the epoch; None where there is none."""
        times = [file.entry.modified for file in self.files]
        if self.behind_since is not None:
            times.append(self.behind_since)
        return min(times) / 1e9 if times else None

    def after(self, applied: int) -> Pending:
        """What is left once so many of the files are applied."""
        return replace(self, files=self.files[applied:])

    def until(self, rejected: Rejected) -> Pending:
        """The files before the rejected one, which is one of them. ValueError if it is not."""
        index = [file.entry.path for file in self.files].index(rejected.file)
        late = [file.entry.modified for file in self.files[index:]]
        since = min(late if self.behind_since is None else [*late, self.behind_since])
        return Pending(self.files[:index], self.behind + len(late), since, self.waiting, rejected)


def pending(files: TableFiles, applied: AppliedFiles, readiness: Readiness, limit: int | None = None) -> Pending:
    """The complete files that come after those that are `applied`, in the order in which they are to be applied.

    `limit` bounds how many files are opened; `behind` counts the rest.
    """
    folder, is_text = files.folder, files.metadata.file_format != "Parquet"
    chosen: list[ChangeFile] = []
    left: list[Entry] = []
    waiting: Waiting | None = None
    rejected: Rejected | None = None
    for line in _lines(files, applied):
        left += line.entries
        for step in line.steps:
            if isinstance(step, Waiting):
                waiting = waiting or step
                break
            if rejected is None and len(step.entries) > 1:
                rejected = ambiguous(step.sequence, step.entries)
            if rejected is not None or (limit is not None and len(chosen) >= limit):
                break
            number = step.sequence if line.is_whole else applied.count + len(chosen) + 1
            match _complete(step, number, readiness, files):
                case ChangeFile() as file:
                    chosen.append(file)
                    continue
                case Waiting() as found:
                    waiting = waiting or found
                    if is_text and readiness.steady_at is not None:
                        for later in line.steps:  # they are seen now, too, and need not wait in turn
                            if isinstance(later, _Step):
                                readiness.steady_at(later.entries[0])
                case Rejected() as found:
                    rejected = found
            break
    taken = {file.entry.path for file in chosen}
    behind = [entry for entry in left if entry.path not in taken]
    if not left and applied.count == 0:
        waiting = Waiting("the first file", folder.metadata.modified / 1e9 if folder.metadata else readiness.now)
    return Pending(tuple(chosen), len(behind), _oldest(behind), waiting, rejected)


def not_looked_into(files: TableFiles, applied: AppliedFiles) -> Pending:
    """The same files, counted only: none of them may be applied, because something else is wrong with the table."""
    behind = [entry for line in _lines(files, applied) for entry in line.entries]
    return Pending(behind=len(behind), behind_since=_oldest(behind))


def already_applied(files: TableFiles, applied: AppliedFiles, etags: Mapping[str, str]) -> list[Warned]:
    """Files that were published again: those in the folder, and those that an earlier archiving moved aside.

    An applied file that is still there is a leftover of an unfinished archiving, unless it is in `_ProcessedFiles`
    already, or is not the applied one. `etags`: of applied files by path, as far as the table remembers them.
    """
    folder = files.folder
    home = len(folder.name.folder) + 1
    archived = {entry.path[home:].partition("/")[2] for entry in folder.processed}
    warnings: list[Warned] = []
    for file in sorted(files.changes, key=lambda file: (file.number, file.entry.path)):
        if not applied.holds(file):
            continue
        by_path = applied.paths is not None
        newest = file.below == applied.last if by_path else file.number == applied.position(file.partition)
        before = etags.get(file.below)
        if (file.below in archived and not newest) or (before is not None and before != file.entry.etag):
            what = f"number {file.number}" if file.number and not by_path else file.below
            message = f"{what} was applied before; {file.entry.name} was published again and is not applied"
            warnings.append(Warned("already-applied", message, file.entry.path))
    for entry in sorted(folder.processed, key=lambda entry: entry.path):
        double = _DOUBLE.fullmatch(entry.path[home:].partition("/")[2])
        if double and double[1] in archived:
            name = double[1].rpartition("/")[2]
            what = f"number {int(name[:20])}" if _NUMBERED.fullmatch(name) else double[1]
            message = f"{what} was published again and not applied: it is kept as {entry.name}"
            warnings.append(Warned("already-applied", message, entry.path))
    return capped(warnings) if warnings else []


def numbers_aside(aside: Sequence[Entry], folder: TableFolder, partition: str) -> set[int]:
    """The numbers of a sequence whose files were set aside. Those that are quarantined are not waited for."""
    numbers = set()
    for entry in aside:
        inside, _, name = entry.path[len(folder.name.folder) + 1 :].partition("/")[2].rpartition("/")
        if inside == partition and (match := _NUMBERED.fullmatch(name)):
            numbers.add(int(match[1]))
    return numbers


class _Step(NamedTuple):
    """What comes next in a line: one file, or several with one number. `sequence` 0 where names are no numbers."""

    entries: list[Entry]
    sequence: int
    partition: str


class _Line(NamedTuple):
    """Files that come one after another. `steps` end with what they wait for, at a gap. `is_whole`: the folder's only
    sequence.
    """

    entries: list[Entry]
    steps: Iterator[_Step | Waiting]
    is_whole: bool = False


def _lines(files: TableFiles, applied: AppliedFiles) -> Iterator[_Line]:
    """The lines in the order in which they are applied."""
    metadata = files.metadata
    if metadata.file_detection_strategy != SEQUENTIAL:
        left = sorted(
            (file for file in files.changes if not applied.holds(file)),
            key=lambda file: (file.entry.modified, file.entry.path),
        )
        yield _Line([file.entry for file in left], (_Step([file.entry], 0, file.partition) for file in left))
        return
    for partition, numbered in sorted(files.by_partition.items()):
        after = applied.position(partition)
        waits = {number: entries for number, entries in numbered.items() if number > after}
        if waits:
            rivals, skipped = files.rivals(partition), numbers_aside(files.folder.quarantined, files.folder, partition)
            steps = _contiguous(partition, after, waits, rivals, skipped, files.folder)
            yield _Line([entries[0] for entries in waits.values()], steps, is_whole=not metadata.partitioned)


def _contiguous(
    partition: str,
    after: int,
    waits: dict[int, list[Entry]],
    rivals: dict[int, list[Entry]],
    skipped: Collection[int],
    folder: TableFolder,
) -> Iterator[_Step | Waiting]:
    """The files of one sequence up to its first gap, which the table waits for."""
    number, seen = after, 0
    while seen < len(waits):
        number += 1
        if number in waits:
            seen += 1
            yield _Step([*waits[number], *rivals.get(number, ())], number, partition)
        elif number not in skipped:
            oldest = min(entry.modified for later in waits if later > number for entry in waits[later])
            where = f" in {partition}" if partition else ""
            name = f"/{number:020}."
            named = [entry for entry in folder.processed if name in entry.path]
            is_lost = number in numbers_aside(named, folder, partition)
            yield Waiting(f"number {number}{where}{LOST if is_lost else ''}", oldest / 1e9)
            return


def _complete(step: _Step, number: int, readiness: Readiness, files: TableFiles) -> ChangeFile | Waiting | Rejected:
    """As `complete`, with what the file's partition folder says of its rows."""
    found = complete(step.entries[0], number, readiness, files.metadata)
    if not step.partition or not isinstance(found, ChangeFile):
        return found
    try:
        constants = partition_values(step.partition) if files.metadata.partitioned else ()
    except UnicodeError:
        message = f"the percent-encoded bytes in the folder name {step.partition} are not UTF-8"
        hint = "Move the files into a folder whose percent-encoded name is UTF-8: é is %C3%A9."
        return Rejected("value-invalid", message, found.entry.path, hint=hint)
    return replace(found, partition=step.partition, sequence=step.sequence, constants=constants)


def _oldest(behind: Sequence[Entry]) -> int | None:
    return min((entry.modified for entry in behind), default=None)


LOST = ", which is in _ProcessedFiles"
"""Ends what a table waits for whose position is gone, with the Delta table or by a RESTORE of it; or whose folder was
renamed."""
_NUMBERED = re.compile(r"([0-9]{20})\.(?!.*\.error\.json$).+")
_DOUBLE = re.compile(r"(.+)\.([0-9]+)")


_REQUESTS_AT_ONCE = 8
_STEADY = 1.0  # seconds between two looks that make a delimited file complete


class SeenFiles:
    """The files of one table folder that wait."""

    def __init__(self, storage: Storage, settle: float) -> None:
        self._storage = storage
        self._settle = settle
        self._footers: dict[str, tuple[Entry, pq.FileMetaData]] = {}
        self._first_seen: dict[str, tuple[Entry, float]] = {}

    def readiness(self, now: float) -> Readiness:
        """When a file is complete, at a look now."""
        return Readiness(now, self._settle, self._footer, partial(self._steady_at, now))

    def fetch_footers(self, files: TableFiles, applied: AppliedFiles, most: int) -> None:
        """Reads the footers of waiting files side by side, where each is a request. What fails is read again."""
        if not self._storage.capabilities.waits or files.metadata.file_format != "Parquet":
            return
        waiting = [
            file.entry
            for file in files.changes
            if (read := self._footers.get(file.entry.path)) is None or not read[0].is_same(file.entry)
            if not applied.holds(file)
        ][:most]

        def fetch(entry: Entry) -> None:
            with suppress(Exception):
                self._footer(entry)

        if len(waiting) > 1:
            with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="footers") as pool:
                list(pool.map(fetch, waiting))

    def keep(self, listed: Sequence[Entry]) -> None:
        """Forgets files that are no longer listed."""
        if len(self._footers) + len(self._first_seen) > len(listed):
            paths = {entry.path for entry in listed}
            self._footers = {path: footer for path, footer in self._footers.items() if path in paths}
            self._first_seen = {path: seen for path, seen in self._first_seen.items() if path in paths}

    def _footer(self, entry: Entry) -> pq.FileMetaData:
        cached = self._footers.get(entry.path)
        if cached is not None and cached[0].is_same(entry):
            return cached[1]
        with self._storage.open(entry.path, entry) as file:
            footer = read_footer(file)
        self._footers[entry.path] = (entry, footer)
        return footer

    def _steady_at(self, now: float, entry: Entry) -> float:
        """When a delimited file counts as complete: seen unchanged for a second, or earlier if settled (section 4)."""
        settled = entry.modified / 1e9 + self._settle
        if now >= settled:
            return settled
        seen, since = self._first_seen.get(entry.path, (None, now))
        if seen is None or not seen.is_same(entry):
            since = now
            self._first_seen[entry.path] = (entry, now)
        return min(settled, since + _STEADY)
