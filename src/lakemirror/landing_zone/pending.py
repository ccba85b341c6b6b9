"""Which files of a table folder come next, and why no more (contract section 4).

listing ─▶ lines: one sequence · one per partition · all by time ─▶ contiguous ─▶ complete ones, with their footers
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import pyarrow.parquet as pq

from lakemirror.errors import TableError
from lakemirror.landing_zone.applied_files import AppliedFiles
from lakemirror.landing_zone.change_file import (
    ChangeFile,
    Waiting,
    ambiguous,
    by_partition,
    change_files,
    complete,
    ignored,
    numbered_rivals,
    partition_of,
    partition_values,
    path_below,
)
from lakemirror.landing_zone.metadata import SEQUENTIAL, TableMetadata, Warned, capped
from lakemirror.landing_zone.zone import TableFolder
from lakemirror.storage import Entry


@dataclass
class Pending:
    """The files to apply next, in order, and why no more.

    `files` may be applied now. `behind`: how many others are not applied, such as a bad or incomplete file and those
    after it; `behind_since`: when the oldest of them was written, in nanoseconds, None where there is none. `waiting`:
    the gap or the incomplete file. `error`: the bad file that follows `files`, if any: files before it are applied.
    """

    files: list[ChangeFile] = field(default_factory=list)
    behind: int = 0
    behind_since: int | None = None
    waiting: Waiting | None = None
    error: TableError | None = None
    warnings: list[Warned] = field(default_factory=list)

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


def pending(
    folder: TableFolder,
    metadata: TableMetadata,
    applied: AppliedFiles,
    *,
    now: float,
    settle: float,
    read_footer: Callable[[Entry], pq.FileMetaData],
    steady_at: Callable[[Entry], float] | None = None,
    retired: frozenset[int] = frozenset(),
    limit: int | None = None,
    etags: Mapping[str, str] | None = None,
) -> Pending:
    """The complete files that come after those that are `applied`, in the order in which they are to be applied.

    `now` and `settle` in seconds. `read_footer` raises `pyarrow.ArrowInvalid` (or any ArrowException) for a file that
    does not parse and FileNotFoundError for one that is gone. `steady_at` as for `complete`, for delimited text; by
    default such a file is complete once it is older than `settle`. `limit` bounds how many files are opened;
    `behind` counts the rest.

    An applied file that is still there is a leftover of an unfinished retire unless it is known to have been there
    before: `retired` names numbers that were moved aside already (those still in `_ProcessedFiles` need not be
    named), and `etags` gives the etags of applied files by path, as far as the caller remembers them. Then it was
    published again: warning `already-applied`.
    """
    if metadata.file_format == "Parquet":
        steady_at = None
    elif metadata.renames:
        steady_at = _at_once
    elif steady_at is None:
        steady_at = partial(_settled, settle)
    found = Pending(warnings=_already_applied(folder, metadata, applied, retired, etags or {}))
    found.warnings += ignored(folder, metadata)
    left: list[Entry] = []
    for line in _lines(folder, metadata, applied, found):
        left += line.entries
        for step in line.steps:
            if found.error is None and len(step.entries) > 1:
                found.error = ambiguous(step.sequence, step.entries)
            if found.error is not None or (limit is not None and len(found.files) >= limit):
                break
            number = step.sequence if line.is_whole else applied.count + len(found.files) + 1
            read = complete(
                step.entries[0], number, now=now, settle=settle, read_footer=read_footer, steady_at=steady_at
            )
            if isinstance(read, Waiting):
                found.waiting = found.waiting or read
                if steady_at is not None:  # the files behind it are seen now, too, and need not wait in turn
                    for entry in (later.entries[0] for later in line.steps):
                        steady_at(entry)
                break
            if isinstance(read, TableError):
                found.error = read
                break
            partition = partition_of(read.entry, folder)
            try:
                constants = partition_values(partition) if metadata.partitioned else ()
            except UnicodeError:
                found.error = _not_utf8(partition, read.entry)
                break
            found.files.append(ChangeFile(read.entry, number, read.footer, partition, step.sequence, constants))
    taken = {file.entry.path for file in found.files}
    _count(found, [entry for entry in left if entry.path not in taken])
    if not left and applied.count == 0:
        since = folder.metadata.modified / 1e9 if folder.metadata else now
        found.waiting = Waiting("the first file", since)
    return found


def not_looked_into(folder: TableFolder, metadata: TableMetadata, applied: AppliedFiles) -> Pending:
    """The same files, counted only: none of them may be applied, because something else is wrong with the table."""
    found = Pending()
    _count(found, [entry for line in _lines(folder, metadata, applied, found) for entry in line.entries])
    return found


def set_aside_numbers(folder: TableFolder, partition: str) -> set[int]:
    """The numbers of a sequence whose files were set aside: they are not waited for."""
    numbers = set()
    for entry in folder.quarantined:
        inside, _, name = entry.path[len(folder.name.folder) + 1 :].partition("/")[2].rpartition("/")
        if inside == partition and (match := _NUMBERED.fullmatch(name)):
            numbers.add(int(match[1]))
    return numbers


class _Step(NamedTuple):
    """What comes next in a line: one file, or several with one number. `sequence` 0 where names are no numbers."""

    entries: list[Entry]
    sequence: int


class _Line(NamedTuple):
    """Files that come one after another. `is_whole`: the only sequence of its table folder."""

    entries: list[Entry]
    steps: Iterator[_Step]
    is_whole: bool = False


def _lines(folder: TableFolder, metadata: TableMetadata, applied: AppliedFiles, found: Pending) -> Iterator[_Line]:
    """The lines in the order in which they are applied; a gap is noted in `found` when it is come to."""
    files = change_files(folder, metadata)
    if metadata.file_detection_strategy != SEQUENTIAL:
        left = [entry for number, entry in files if not applied.holds(*_place(number, entry, folder))]
        left.sort(key=lambda entry: (entry.modified, entry.path))
        yield _Line(left, (_Step([entry], 0) for entry in left))
        return
    for partition, numbered in sorted(by_partition(files, folder).items()):
        after = applied.position(partition)
        waits = {number: entries for number, entries in numbered.items() if number > after}
        if waits:
            rivals = numbered_rivals(folder, metadata, partition)
            skipped = set_aside_numbers(folder, partition)
            steps = _contiguous(found, partition, after, waits, rivals, skipped)
            yield _Line([entries[0] for entries in waits.values()], steps, is_whole=not metadata.partitioned)


def _count(found: Pending, behind: Sequence[Entry]) -> None:
    found.behind = len(behind)
    found.behind_since = min((entry.modified for entry in behind), default=None)


def _contiguous(
    found: Pending,
    partition: str,
    after: int,
    waits: dict[int, list[Entry]],
    rivals: dict[int, list[Entry]],
    skipped: Collection[int],
) -> Iterator[_Step]:
    """The files of one sequence up to its first gap, which is noted as what the table waits for."""
    number, seen = after, 0
    while seen < len(waits):
        number += 1
        if number in waits:
            seen += 1
            yield _Step([*waits[number], *rivals.get(number, ())], number)
        elif number not in skipped:
            oldest = min(entry.modified for later in waits if later > number for entry in waits[later])
            where = f" in {partition}" if partition else ""
            found.waiting = found.waiting or Waiting(f"number {number}{where}", oldest / 1e9)
            return


def _not_utf8(partition: str, entry: Entry) -> TableError:
    message = f"the percent-encoded bytes in the folder name {partition} are not UTF-8"
    hint = "Move the files into a folder whose percent-encoded name is UTF-8: é is %C3%A9."
    return TableError("value-invalid", message, file=entry.path, hint=hint)


def _at_once(entry: Entry) -> float:
    return 0.0


def _settled(settle: float, entry: Entry) -> float:
    return entry.modified / 1e9 + settle


_NUMBERED = re.compile(r"([0-9]{20})\.(?!.*\.error\.json$).+")
_DOUBLE = re.compile(r"(.+)\.([0-9]+)")


def _place(number: int, entry: Entry, folder: TableFolder) -> tuple[str, int, str]:
    return path_below(entry, folder), number, partition_of(entry, folder)


def _already_applied(
    folder: TableFolder,
    metadata: TableMetadata,
    applied: AppliedFiles,
    retired: frozenset[int],
    etags: Mapping[str, str],
) -> list[Warned]:
    """Files that were published again: those in the folder, and those that an earlier retire moved aside."""
    home = len(folder.name.folder) + 1
    resting = {entry.path[home:].partition("/")[2] for entry in folder.processed}
    warnings: list[Warned] = []
    for number, entry in sorted(change_files(folder, metadata), key=lambda each: (each[0], each[1].path)):
        path, _, partition = _place(number, entry, folder)
        if not applied.holds(path, number, partition):
            continue
        newest = path == applied.last if applied.paths is not None else number == applied.position(partition)
        before = path in resting or number in retired
        if (before and not newest) or etags.get(path, entry.etag) != entry.etag:
            what = f"number {number}" if number and applied.paths is None else path
            message = f"{what} was applied before; {entry.name} was published again and is not applied"
            warnings.append(Warned("already-applied", message, entry.path))
    for entry in sorted(folder.processed, key=lambda entry: entry.path):
        double = _DOUBLE.fullmatch(entry.path[home:].partition("/")[2])
        if double and double[1] in resting:
            name = double[1].rpartition("/")[2]
            what = f"number {int(name[:20])}" if _NUMBERED.fullmatch(name) else double[1]
            message = f"{what} was published again and not applied: it rests as {entry.name}"
            warnings.append(Warned("already-applied", message, entry.path))
    return capped(warnings)


__all__ = ["Pending", "not_looked_into", "pending", "set_aside_numbers"]
