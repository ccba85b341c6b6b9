"""Which files of a table folder come next (contract section 4): names, numbers, gaps, incomplete files.

listing ─▶ numbered files ─▶ contiguous above the position ─▶ complete ones, with their footers
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.metadata import SEQUENTIAL, TableMetadata, Warned, capped, unsupported
from lakemirror.landing_zone.zone import TableFolder
from lakemirror.storage import Entry, Storage, seconds_since


@dataclass(frozen=True)
class ChangeFile:
    """A complete change file: its place, its number, and its footer, which is read once."""

    entry: Entry
    number: int
    footer: pq.FileMetaData


@dataclass(frozen=True)
class Waiting:
    """What a table waits for, and since when (seconds since the epoch)."""

    what: str
    since: float


@dataclass
class Pending:
    """The files to apply next, in order, and why they end where they end.

    `files` may be applied now. `behind`: how many lie behind a gap or behind an incomplete or a bad file. `waiting`:
    the gap or the incomplete file. `error`: the bad file that follows `files`, if any: files before it are applied.
    """

    files: list[ChangeFile] = field(default_factory=list)
    behind: int = 0
    waiting: Waiting | None = None
    error: TableError | None = None
    warnings: list[Warned] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.files) + self.behind


def pending(
    folder: TableFolder,
    metadata: TableMetadata,
    after: int,
    *,
    now: float,
    settle: float,
    read_footer: Callable[[Entry], pq.FileMetaData],
    retired: frozenset[int] = frozenset(),
    limit: int | None = None,
    applied: Mapping[int, str] | None = None,
) -> Pending:
    """The complete, contiguous change files with numbers above `after`.

    `after` is the position (0: nothing applied yet). `now` and `settle` in seconds. `read_footer` raises
    `pyarrow.ArrowInvalid` (or any ArrowException) for a file that does not parse and FileNotFoundError for one that is
    gone. `limit` bounds how many footers are read; `behind` counts the rest.

    A number at or below `after` is a leftover of an unfinished retire unless it is known to have been there before:
    `retired` names numbers that were moved aside already (those still in `_ProcessedFiles` need not be named), and
    `applied` gives the etags of applied files by number, as far as the caller remembers them. Then it was published
    again: warning `already-applied`.
    """
    found = Pending(error=unsupported(metadata))
    if found.error is not None:
        found.behind = count_pending(folder, metadata, after)
        return found
    numbered = by_number(change_files(folder, metadata))
    rivals = numbered_rivals(folder, metadata)
    found.warnings = _already_applied(folder, numbered, after, retired, applied or {})
    found.warnings += ignored(folder, metadata)
    waiting_numbers = {number for number in numbered if number > after}
    number = after
    while len(found.files) < len(waiting_numbers):
        number += 1
        entries = numbered.get(number, [])
        if not entries:
            oldest = min(entry.modified for later in waiting_numbers if later > number for entry in numbered[later])
            found.waiting = Waiting(f"number {number}", oldest / 1e9)
            break
        if len(entries) + len(rivals.get(number, ())) > 1:
            found.error = ambiguous(number, [*entries, *rivals.get(number, ())])
            break
        if limit is not None and len(found.files) >= limit:
            break
        read = complete(entries[0], number, now=now, settle=settle, read_footer=read_footer)
        if isinstance(read, Waiting):
            found.waiting = read
            break
        if isinstance(read, TableError):
            found.error = read
            break
        found.files.append(read)
    found.behind = len(waiting_numbers) - len(found.files)
    if not waiting_numbers and after == 0:
        since = folder.metadata.modified / 1e9 if folder.metadata else now
        found.waiting = Waiting("the first file", since)
    return found


def count_pending(folder: TableFolder, metadata: TableMetadata, after: int) -> int:
    """How many change files have numbers above `after`, from the listing alone: no footer is read."""
    return len({number for number, _ in change_files(folder, metadata) if number > after})


def change_files(folder: TableFolder, metadata: TableMetadata) -> list[tuple[int, Entry]]:
    """Every file of the folder whose name is that of a numbered change file, with its number, in no order.

    Without partitions they lie directly in the table folder. Delimited text may have a compression suffix.
    """
    if metadata.file_detection_strategy != SEQUENTIAL:
        return []
    suffix = "" if metadata.file_format == "Parquet" else r"(?:\.(?:gz|zst|snappy))?"
    name = re.compile(rf"([0-9]{{20}})\.{re.escape(metadata.file_extension)}{suffix}")
    found = []
    for entry in folder.files:
        match = name.fullmatch(entry.name)
        if match and (metadata.partitioned or _lies_directly(entry, folder)) and int(match[1]) > 0:
            found.append((int(match[1]), entry))
    return found


def by_number(files: Iterable[tuple[int, Entry]]) -> dict[int, list[Entry]]:
    """The files of each number; more than one where they are ambiguous."""
    numbered: dict[int, list[Entry]] = {}
    for number, entry in files:
        numbered.setdefault(number, []).append(entry)
    return numbered


def numbered_rivals(folder: TableFolder, metadata: TableMetadata) -> dict[int, list[Entry]]:
    """Numbered data files with another extension than the declared one: beside a change file they are ambiguous."""
    others = _others(folder, metadata)
    return by_number(
        (int(stem), each) for stem, each in others if _NUMBER.fullmatch(stem) and _lies_directly(each, folder)
    )


def complete(
    entry: Entry, number: int, *, now: float, settle: float, read_footer: Callable[[Entry], pq.FileMetaData]
) -> ChangeFile | Waiting | TableError:
    """The file with its footer; what it waits for while it may still be written; the error once it should be done.

    LakemirrorError `storage-unavailable` where the store fails.
    """
    why = "it is empty"
    if entry.size:
        try:
            return ChangeFile(entry, number, read_footer(entry))
        except FileNotFoundError:
            return Waiting(f"number {number}", now)  # deleted by its publisher since the listing
        except OSError as error:
            if error.errno is not None:  # from the store; pyarrow also calls a broken footer an OSError
                raise LakemirrorError("storage-unavailable", f"{entry.path}: {error.strerror or error}") from error
            why = _first_line(error)
        except (pa.ArrowException, ValueError, MemoryError) as error:
            why = _first_line(error)
    if seconds_since(entry.modified, now) < settle:
        return Waiting(f"{entry.name} to be complete", entry.modified / 1e9)
    return TableError("file-unreadable", f"{entry.name} is no complete Parquet file: {why}", file=entry.path)


def ambiguous(number: int, entries: list[Entry]) -> TableError:
    names = " and ".join(sorted(entry.name for entry in entries))
    return TableError("file-ambiguous", f"number {number} has more than one file: {names}", file=entries[0].path)


def ignored(folder: TableFolder, metadata: TableMetadata) -> list[Warned]:
    """Data files that are no change files of this table, and folders left out: likely a publisher's mistake."""
    warnings = []
    for stem, entry in sorted(_others(folder, metadata), key=lambda each: each[1].path):
        if not _lies_directly(entry, folder) and not metadata.partitioned:
            why = "it lies in a sub-folder"
        elif not _NUMBER.fullmatch(stem):
            why = "its name is not 20 digits"
        elif int(stem) == 0:
            why = "numbers begin at 1"
        else:
            why = f"the table's files end in .{metadata.file_extension}"
        warnings.append(Warned("file-ignored", f"{entry.name} is no change file: {why}", entry.path))
    for path in folder.skipped:
        message = f"the folder {path.rpartition('/')[2]} is left out: its name begins with _"
        warnings.append(Warned("folder-skipped", message, path))
    return capped(warnings)


def is_data_name(name: str) -> bool:
    """True for a name that ends as files with rows do, whatever stands before."""
    match = _DATA_NAME.fullmatch(name)
    return match is not None and match[2].lower() in _DATA_EXTENSIONS


def footer_reader(storage: Storage) -> Callable[[Entry], pq.FileMetaData]:
    """A `read_footer` for `pending` that reads from the storage."""

    def read(entry: Entry) -> pq.FileMetaData:
        with storage.open(entry.path) as file:
            return pq.read_metadata(file)

    return read


_DATA_EXTENSIONS = {"parquet", "csv", "tsv", "psv", "txt"}
_DATA_NAME = re.compile(r"(.+?)\.([^.]+)(?:\.(?:gz|zst|snappy))?")
_NUMBER = re.compile(r"[0-9]{20}")
_DOUBLE = re.compile(r"([0-9]{20})\.(.+)\.([0-9]+)")


def _others(folder: TableFolder, metadata: TableMetadata) -> list[tuple[str, Entry]]:
    """The data files that are no change files, each with its name before the extension."""
    files = change_files(folder, metadata)
    if len(files) == len(folder.files):
        return []
    own = {entry.path for _, entry in files}
    return [
        (match[1], entry)
        for entry in folder.files
        if entry.path not in own and is_data_name(entry.name) and (match := _DATA_NAME.fullmatch(entry.name))
    ]


def _already_applied(
    folder: TableFolder,
    numbered: Mapping[int, list[Entry]],
    after: int,
    retired: frozenset[int],
    applied: Mapping[int, str],
) -> list[Warned]:
    """Numbers that were published again: those in the folder, and those that an earlier retire moved aside."""
    resting = {entry.name for entry in folder.processed}
    warnings: list[Warned] = []
    for number in sorted(number for number in numbered if number <= after):
        for entry in numbered[number]:
            before = entry.name in resting or number in retired
            if (before and number < after) or applied.get(number, entry.etag) != entry.etag:
                message = f"number {number} was applied before; {entry.name} was published again and is not applied"
                warnings.append(Warned("already-applied", message, entry.path))
    for entry in sorted(folder.processed, key=lambda entry: entry.path):
        double = _DOUBLE.fullmatch(entry.name)
        if double and f"{double[1]}.{double[2]}" in resting:
            message = f"number {int(double[1])} was published again and not applied: it rests as {entry.name}"
            warnings.append(Warned("already-applied", message, entry.path))
    return capped(warnings)


def _lies_directly(entry: Entry, folder: TableFolder) -> bool:
    return entry.path.count("/") == folder.name.folder.count("/") + 1


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


__all__ = [
    "ChangeFile",
    "Pending",
    "Waiting",
    "ambiguous",
    "by_number",
    "change_files",
    "complete",
    "count_pending",
    "footer_reader",
    "ignored",
    "is_data_name",
    "numbered_rivals",
    "pending",
]
