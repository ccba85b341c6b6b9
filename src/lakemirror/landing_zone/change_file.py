"""Which files of a table folder are change files, and whether one is complete (contract section 4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.metadata import SEQUENTIAL, TableMetadata, Warned, capped
from lakemirror.landing_zone.zone import TableFolder
from lakemirror.parquet.footer import FooterContradiction, read_footer
from lakemirror.storage import Entry, Storage, seconds_since

Constants = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class ChangeFile:
    """A complete change file.

    `number`: its place in the order of all files of the table, which is the table's position once it is applied; in
    a folder that is one sequence, the number in its name. `footer` is read once; None for delimited text until it is
    converted. `partition`: the folders below the table folder that it is in (`region=eu`), with its own `sequence`
    number there, and the columns that they give, `constants`. `read_from`: where its rows are read, relative to the
    database; empty: the file itself. `warnings`: what its text made the conversion warn of. `zones`: the zones in which
    times of its text that name none were read, by column.
    """

    entry: Entry
    number: int
    footer: pq.FileMetaData
    partition: str = ""
    sequence: int = 0
    constants: Constants = ()
    read_from: str = ""
    warnings: tuple[Warned, ...] = ()
    zones: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The file to read."""
        return self.read_from or self.entry.path

    @property
    def below(self) -> str:
        """The file's path below the table folder."""
        return f"{self.partition}/{self.entry.name}" if self.partition else self.entry.name


@dataclass(frozen=True)
class Waiting:
    """What a table waits for, and since when (seconds since the epoch).

    `until`: when to look again, where that is known.
    """

    what: str
    since: float
    until: float | None = None


def change_files(folder: TableFolder, metadata: TableMetadata) -> list[tuple[int, Entry]]:
    """Every change file of the folder, judged by its name, in no order; with its number, 0 where the name is no number.

    Without partitions they are directly in the table folder. Delimited text may have a compression suffix. Under
    last-update detection any name counts that does not begin with a dot.
    """
    by_name = metadata.file_detection_strategy == SEQUENTIAL
    suffix = "" if metadata.file_format == "Parquet" else r"(?:\.(?:gz|zst|snappy))?"
    name = re.compile(rf"([0-9]{{20}})\.{re.escape(metadata.file_extension)}{suffix}")
    any_name = re.compile(rf"[^.].*\.{re.escape(metadata.file_extension)}{suffix}", re.DOTALL)
    found = []
    for entry in folder.files:
        match = name.fullmatch(entry.name)
        if by_name:
            if match and int(match[1]) > 0 and _has_place(entry, folder, metadata):
                found.append((int(match[1]), entry))
        elif any_name.fullmatch(entry.name) and (not metadata.partitioned or _has_place(entry, folder, metadata)):
            found.append((int(match[1]) if match else 0, entry))
    return found


def by_number(files: Iterable[tuple[int, Entry]]) -> dict[int, list[Entry]]:
    """The files of each number; more than one where they are ambiguous."""
    numbered: dict[int, list[Entry]] = {}
    for number, entry in files:
        numbered.setdefault(number, []).append(entry)
    return numbered


def by_partition(files: Iterable[tuple[int, Entry]], folder: TableFolder) -> dict[str, dict[int, list[Entry]]]:
    """The files of each partition folder (empty: the table folder itself) by their numbers."""
    found: dict[str, list[tuple[int, Entry]]] = {}
    for number, entry in files:
        found.setdefault(partition_of(entry, folder), []).append((number, entry))
    return {partition: by_number(each) for partition, each in found.items()}


def partition_of(entry: Entry, folder: TableFolder) -> str:
    """The folders below the table folder that the file is in; empty if it is directly there."""
    return path_below(entry, folder).rpartition("/")[0]


def path_below(entry: Entry, folder: TableFolder) -> str:
    """The file's path below the table folder."""
    return entry.path[len(folder.name.folder) + 1 :]


def partition_values(partition: str) -> Constants:
    """The columns of Hive-style folders, `a=1/b=x%20y`; None for Hive's own word for NULL.

    UnicodeError where the bytes of a folder's name (`%fe`) are not UTF-8: different names could give one value.
    """
    found = []
    for each in filter(None, partition.split("/")):
        name, _, value = each.partition("=")
        found.append((_unquoted(name), None if value == _HIVE_NULL else _unquoted(value)))
    return tuple(found)


def numbered_rivals(folder: TableFolder, metadata: TableMetadata, partition: str = "") -> dict[int, list[Entry]]:
    """Numbered data files with another extension than the declared one: beside a change file they are ambiguous."""
    others = _others(folder, metadata)
    return by_number(
        (int(stem), each)
        for stem, each in others
        if _NUMBER.fullmatch(stem) and partition_of(each, folder) == partition
    )


def complete(
    entry: Entry,
    number: int,
    *,
    now: float,
    settle: float,
    read_footer: Callable[[Entry], pq.FileMetaData],
    steady_at: Callable[[Entry], float] | None = None,
) -> ChangeFile | Waiting | TableError:
    """The file with its footer; or what it waits for while it may still be written; or the error once it should be
    complete, at once for a complete footer that cannot be true.

    Delimited text has no footer: `steady_at` gives the time from which such a file counts as complete, if it does
    not change before. LakemirrorError `storage-unavailable` where the store fails.
    """
    misnamed = _misnamed(entry)
    if misnamed is not None:
        return misnamed
    what = "Parquet" if steady_at is None else "delimited"
    why = "it is empty"
    if entry.size and steady_at is not None:
        ready = steady_at(entry)
        if now >= ready:
            return ChangeFile(entry, number, None)
        return Waiting(f"{entry.name} to be complete", entry.modified / 1e9, ready)
    if entry.size:
        try:
            return ChangeFile(entry, number, read_footer(entry))
        except FileNotFoundError:
            return Waiting(f"number {number}", now)  # deleted by its publisher since the listing
        except OSError as error:
            if error.errno is not None:  # from the store; pyarrow also calls a broken footer an OSError
                raise LakemirrorError("storage-unavailable", f"{entry.path}: {error.strerror or error}") from error
            why = _first_line(error)
        except FooterContradiction as error:
            message = f"{entry.name} cannot be read: {_first_line(error)}"
            return TableError("file-unreadable", message, file=entry.path)
        except (pa.ArrowException, ValueError, MemoryError) as error:
            why = _first_line(error)
    if -_SKEW < seconds_since(entry.modified, now) < settle:
        return Waiting(f"{entry.name} to be complete", min(entry.modified / 1e9, now))
    return TableError("file-unreadable", f"{entry.name} is no complete {what} file: {why}", file=entry.path)


def ambiguous(number: int, entries: list[Entry]) -> TableError:
    names = " and ".join(sorted(entry.name for entry in entries))
    return TableError("file-ambiguous", f"number {number} has more than one file: {names}", file=entries[0].path)


def ignored(folder: TableFolder, metadata: TableMetadata) -> list[Warned]:
    """Data files that are no change files of this table, and folders left out: likely a publisher's mistake."""
    warnings = []
    others = sorted(_others(folder, metadata), key=lambda each: each[1].path)
    if _relies_on_time(folder, metadata, others):
        name = others[0][1].name
        count = (
            f"{len(others)} Parquet files have names that are"
            if len(others) > 1
            else "one Parquet file has a name that is"
        )
        message = (
            f"{count} no number, such as {name}, and none is applied; a publisher that relies on the files' times "
            f'declares "fileDetectionStrategy": "LastUpdateTimeFileDetection" in _metadata.json'
        )
        warnings.append(Warned("detection-undeclared", message, others[0][1].path))
        others = []
    for stem, entry in others:
        directly = not partition_of(entry, folder)
        if metadata.partitioned and not _has_place(entry, folder, metadata):
            why = "it is in no partition folder (name=value)"
        elif metadata.file_detection_strategy != SEQUENTIAL:
            hidden = entry.name.startswith(".")
            why = "its name begins with a dot" if hidden else f"the table's files end in .{metadata.file_extension}"
        elif not directly and not metadata.partitioned:
            why = "it is in a sub-folder"
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
            return read_footer(file)

    return read


_SKEW = 86_400.0  # seconds: a time further ahead is no real time of writing
_DATA_EXTENSIONS = {"parquet", "csv", "tsv", "psv", "txt"}
_DATA_NAME = re.compile(r"(.+?)\.([^.]+)(?:\.(?:gz|zst|snappy))?")
_NUMBER = re.compile(r"[0-9]{20}")
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def _misnamed(entry: Entry) -> TableError | None:
    """The error of a file whose path is not UTF-8: no reader of its rows could open it; else None."""
    try:
        entry.path.encode("utf-8")
    except UnicodeEncodeError:
        shown = entry.path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        hint = "Rename the file, or its folder: names are UTF-8."
        return TableError("file-unreadable", f"the path {shown} is not UTF-8", file=entry.path, hint=hint)
    return None


def _unquoted(text: str) -> str:
    """The text with its percent-encoded bytes. UnicodeError where they are not UTF-8."""
    return unquote_to_bytes(text).decode("utf-8")


def _has_place(entry: Entry, folder: TableFolder, metadata: TableMetadata) -> bool:
    """True for a place of change files: the table folder, or its partition folders."""
    partition = partition_of(entry, folder)
    if not metadata.partitioned:
        return not partition
    return bool(partition) and all(each.find("=") > 0 for each in partition.split("/"))


def _others(folder: TableFolder, metadata: TableMetadata) -> list[tuple[str, Entry]]:
    """The data files that are no change files, each with its name before the extension."""
    own = {entry.path for _, entry in change_files(folder, metadata)}
    if len(own) == len(folder.files):
        return []
    return [
        (match[1], entry)
        for entry in folder.files
        if entry.path not in own and is_data_name(entry.name) and (match := _DATA_NAME.fullmatch(entry.name))
    ]


def _relies_on_time(folder: TableFolder, metadata: TableMetadata, others: list[tuple[str, Entry]]) -> bool:
    """True if no metadata says how files are found and there are only Parquet files with other names."""
    return (
        folder.metadata is None
        and bool(others)
        and len(others) == len(folder.files)
        and not folder.processed
        and all(not stem.isdecimal() and entry.name.endswith(".parquet") for stem, entry in others)
        and not any(partition_of(entry, folder) for _, entry in others)
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


__all__ = [
    "ChangeFile",
    "Constants",
    "Waiting",
    "ambiguous",
    "by_number",
    "by_partition",
    "change_files",
    "complete",
    "footer_reader",
    "ignored",
    "is_data_name",
    "numbered_rivals",
    "partition_of",
    "partition_values",
    "path_below",
]
