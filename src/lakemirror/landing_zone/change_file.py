"""Which files of a table folder are change files, which of them are applied, and when one is complete (section 4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError, Rejected, first_line
from lakemirror.landing_zone.metadata import SEQUENTIAL, TableMetadata, Warned, capped
from lakemirror.landing_zone.zone import TableFolder, data_stem
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

    @cached_property
    def decoded(self) -> int:
        """Bytes of its rows before they were compressed, by its footer; its own size where that is more."""
        size = self.entry.size
        if self.footer is None:
            return size
        sizes = [self.footer.row_group(group).total_byte_size for group in range(self.footer.num_row_groups)]
        decoded: int = sum([max(0, each) for each in sizes])
        return max(size, decoded)

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


class FolderFile(NamedTuple):
    """A file of a table folder, by its path alone.

    `number`: the number of a change file; 0 where its name is no number. `below`: the path below the table folder.
    `partition`: the folders in that path (`region=eu`); empty where the file is directly in the table folder.
    """

    entry: Entry
    number: int
    below: str
    partition: str


@dataclass(frozen=True)
class TableFiles:
    """The files of one listed table folder, told apart once by what `_metadata.json` says."""

    folder: TableFolder
    metadata: TableMetadata = field(default_factory=TableMetadata)

    @cached_property
    def changes(self) -> list[FolderFile]:
        """Every change file, judged by its name, in no order.

        Without partitions they are directly in the table folder. Delimited text may have a compression suffix. Under
        last-update detection any name counts that does not begin with a dot.
        """
        metadata = self.metadata
        is_numbered = metadata.file_detection_strategy == SEQUENTIAL
        suffix = "" if metadata.file_format == "Parquet" else r"(?:\.(?:gz|zst|snappy))?"
        name = re.compile(rf"([0-9]{{20}})\.{re.escape(metadata.file_extension)}{suffix}")
        any_name = re.compile(rf"[^.].*\.{re.escape(metadata.file_extension)}{suffix}", re.DOTALL)
        home = len(self.folder.name.folder) + 1
        files = []
        for entry in self.folder.files:
            below = entry.path[home:]
            partition, _, last = below.rpartition("/")
            match = name.fullmatch(last)
            number = int(match[1]) if match else 0
            if not number and (is_numbered or any_name.fullmatch(last) is None):
                continue
            in_its_folder = not (partition and is_numbered) if not metadata.partitioned else _is_partition(partition)
            if in_its_folder:
                files.append(FolderFile(entry, number, below, partition))
        return files

    @cached_property
    def others(self) -> list[tuple[str, FolderFile]]:
        """The data files that are no change files, each with its name before the extension."""
        if len(self.changes) == len(self.folder.files):
            return []
        own = {file.entry.path for file in self.changes}
        home = len(self.folder.name.folder) + 1
        return [
            (stem, FolderFile(entry, 0, below, below.rpartition("/")[0]))
            for entry in self.folder.files
            if entry.path not in own and (stem := data_stem(entry.name))
            for below in [entry.path[home:]]
        ]

    @cached_property
    def by_partition(self) -> dict[str, dict[int, list[Entry]]]:
        """The change files of each partition folder (empty: the table folder itself) by their numbers."""
        numbered: dict[str, dict[int, list[Entry]]] = {}
        for file in self.changes:
            numbered.setdefault(file.partition, {}).setdefault(file.number, []).append(file.entry)
        return numbered

    def rivals(self, partition: str = "") -> dict[int, list[Entry]]:
        """Numbered data files with another extension than the declared one: beside a change file they are ambiguous."""
        numbered: dict[int, list[Entry]] = {}
        for stem, file in self.others:
            if _NUMBER.fullmatch(stem) and file.partition == partition:
                numbered.setdefault(int(stem), []).append(file.entry)
        return numbered


@dataclass(frozen=True)
class AppliedFiles:
    """The applied files of a table folder.

    `count`: how many files; where the folder is one sequence, the last number. `sequences`: the last number of each
    partition folder (`region=eu`), None where the table has none. `paths`: the applied paths below the table folder
    under last-update detection, None without it; `numbered` is then the last number of the sequence that was there
    before. `last`: the path of the newest applied file, empty where it is not known.
    """

    count: int = 0
    sequences: Mapping[str, int] | None = None
    paths: Container[str] | None = None
    numbered: int = 0
    last: str = field(default="", compare=False)

    def holds(self, file: FolderFile) -> bool:
        """True where the file is applied."""
        if self.paths is not None:
            return file.below in self.paths or (not file.partition and 0 < file.number <= self.numbered)
        return file.number <= (self.count if self.sequences is None else self.sequences.get(file.partition, 0))

    def position(self, partition: str = "") -> int:
        """The last number of a sequence: of the folder's, or of one partition's."""
        if self.sequences is not None:
            return self.sequences.get(partition, 0)
        return self.count


def partition_values(partition: str) -> Constants:
    """The columns of Hive-style folders, `a=1/b=x%20y`; None for Hive's own word for NULL.

    UnicodeError where the bytes of a folder's name (`%fe`) are not UTF-8: different names could give one value.
    """
    found = []
    for each in filter(None, partition.split("/")):
        name, _, value = each.partition("=")
        found.append((_unquoted(name), None if value == _HIVE_NULL else _unquoted(value)))
    return tuple(found)


class Readiness(NamedTuple):
    """When a file counts as complete (contract section 4).

    `now`, `settle`: seconds; a file that does not parse may still be written until it is `settle` old. `read_footer`
    raises `pyarrow.ArrowInvalid` (or any ArrowException) for a file that does not parse, and FileNotFoundError for one
    that is gone. `steady_at`: the time from which delimited text, which has no footer, counts as complete if it does
    not change before; None: once it is older than `settle`.
    """

    now: float
    settle: float
    read_footer: Callable[[Entry], pq.FileMetaData]
    steady_at: Callable[[Entry], float] | None = None

    def text_at(self, entry: Entry, metadata: TableMetadata) -> float:
        """The time from which a file of delimited text counts as complete."""
        if metadata.renames:
            return 0.0
        return self.steady_at(entry) if self.steady_at is not None else entry.modified / 1e9 + self.settle


def complete(
    entry: Entry, number: int, readiness: Readiness, metadata: TableMetadata
) -> ChangeFile | Waiting | Rejected:
    """The file with its footer; or what it waits for while it may still be written; or the rejection once it should be
    complete, at once for a complete footer that cannot be true.

    LakemirrorError `storage-unavailable` where the store fails.
    """
    misnamed = _misnamed(entry)
    if misnamed is not None:
        return misnamed
    is_text = metadata.file_format != "Parquet"
    why = "it is empty"
    if entry.size and is_text:
        ready = readiness.text_at(entry, metadata)
        if readiness.now >= ready:
            return ChangeFile(entry, number, None)
        return Waiting(f"{entry.name} to be complete", entry.modified / 1e9, ready)
    if entry.size:
        try:
            return ChangeFile(entry, number, readiness.read_footer(entry))
        except FileNotFoundError:
            return Waiting(f"number {number}", readiness.now)  # deleted by its publisher since the listing
        except OSError as error:
            if error.errno is not None:  # from the store; pyarrow also calls a broken footer an OSError
                raise LakemirrorError("storage-unavailable", f"{entry.path}: {error.strerror or error}") from error
            why = first_line(error)
        except FooterContradiction as error:
            message = f"{entry.name} cannot be read: {first_line(error)}"
            return Rejected("file-unreadable", message, entry.path)
        except (pa.ArrowException, ValueError, MemoryError) as error:
            why = first_line(error)
    if -_SKEW < seconds_since(entry.modified, readiness.now) < readiness.settle:
        return Waiting(f"{entry.name} to be complete", min(entry.modified / 1e9, readiness.now))
    kind = "delimited" if is_text else "Parquet"
    return Rejected("file-unreadable", f"{entry.name} is no complete {kind} file: {why}", entry.path)


def ambiguous(number: int, entries: list[Entry]) -> Rejected:
    names = " and ".join(sorted(entry.name for entry in entries))
    return Rejected("file-ambiguous", f"number {number} has more than one file: {names}", entries[0].path)


def ignored(files: TableFiles) -> list[Warned]:
    """Data files that are no change files of this table, and folders left out: likely a publisher's mistake."""
    warnings = []
    others = sorted(files.others, key=lambda other: other[1].entry.path)
    if _relies_on_time(files):
        first = others[0][1].entry
        count = (
            f"{len(others)} Parquet files have names that are"
            if len(others) > 1
            else "one Parquet file has a name that is"
        )
        message = (
            f"{count} no number, such as {first.name}, and none is applied; a publisher that relies on the files' "
            f'times declares "fileDetectionStrategy": "LastUpdateTimeFileDetection" in _metadata.json'
        )
        warnings.append(Warned("detection-undeclared", message, first.path))
        others = []
    for stem, file in others:
        message = f"{file.entry.name} is no change file: {_why_ignored(stem, file, files.metadata)}"
        warnings.append(Warned("file-ignored", message, file.entry.path))
    for path in files.folder.skipped:
        message = f"the folder {path.rpartition('/')[2]} is left out: its name begins with _"
        warnings.append(Warned("folder-skipped", message, path))
    return capped(warnings) if warnings else []


def _why_ignored(stem: str, file: FolderFile, metadata: TableMetadata) -> str:
    if metadata.partitioned and not _is_partition(file.partition):
        return "it is in no partition folder (name=value)"
    if metadata.file_detection_strategy != SEQUENTIAL:
        hidden = file.entry.name.startswith(".")
        return "its name begins with a dot" if hidden else f"the table's files end in .{metadata.file_extension}"
    if file.partition and not metadata.partitioned:
        return "it is in a sub-folder"
    if not _NUMBER.fullmatch(stem):
        return "its name is not 20 digits"
    return "numbers begin at 1" if int(stem) == 0 else f"the table's files end in .{metadata.file_extension}"


def footer_reader(storage: Storage) -> Callable[[Entry], pq.FileMetaData]:
    """A `read_footer` for `pending` that reads from the storage."""

    def read(entry: Entry) -> pq.FileMetaData:
        with storage.open(entry.path) as file:
            return read_footer(file)

    return read


_SKEW = 86_400.0  # seconds: a time further ahead is no real time of writing
_NUMBER = re.compile(r"[0-9]{20}")
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def _misnamed(entry: Entry) -> Rejected | None:
    """The rejection of a file whose path is not UTF-8: no reader of its rows could open it; else None."""
    try:
        entry.path.encode("utf-8")
    except UnicodeEncodeError:
        shown = entry.path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        hint = "Rename the file, or its folder: names are UTF-8."
        return Rejected("file-unreadable", f"the path {shown} is not UTF-8", entry.path, hint=hint)
    return None


def _unquoted(text: str) -> str:
    """The text with its percent-encoded bytes. UnicodeError where they are not UTF-8."""
    return unquote_to_bytes(text).decode("utf-8")


def _is_partition(folders: str) -> bool:
    """True for partition folders, such as `region=eu/day=1`."""
    return bool(folders) and all(folder.find("=") > 0 for folder in folders.split("/"))


def _relies_on_time(files: TableFiles) -> bool:
    """True if no metadata says how files are found and there are only Parquet files with other names."""
    return (
        files.folder.metadata is None
        and bool(files.others)
        and len(files.others) == len(files.folder.files)
        and not files.folder.processed
        and all(not stem.isdecimal() and file.entry.name.endswith(".parquet") for stem, file in files.others)
        and not any(file.partition for _, file in files.others)
    )
