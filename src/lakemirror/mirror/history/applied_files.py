"""The applied files of a table folder, as they were published: what a history table is made of again.

_ProcessedFiles, table folder ─▶ one file for each number up to the position, at the path where it was published
commits of the mirrored table ─▶ its time, where versions need it
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.log import read_snapshot
from lakemirror.delta.schema import from_delta
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import ChangeFile, TableFiles
from lakemirror.landing_zone.pending import numbers_aside
from lakemirror.landing_zone.reserved_columns import SOURCE_TIME
from lakemirror.landing_zone.staging import Staging
from lakemirror.landing_zone.table_options import SCD2, HistoryOptions
from lakemirror.landing_zone.zone import PROCESSED, TableFolder
from lakemirror.mirror.history.file_times import known_times
from lakemirror.mirror.next_batch import Limits
from lakemirror.mirror.observe import View
from lakemirror.mirror.schema_evolution import zone_reader
from lakemirror.mirror.table_rules import rules_of
from lakemirror.parquet.footer import read_footer
from lakemirror.settings.settings import Settings
from lakemirror.storage import Entry, Storage

Parts = Callable[[int, Limits], Iterator[Sequence[ChangeFile]]]
"""Gives the files after a number, in their order, in parts that one apply may take."""


class HistoryFiles:
    """The applied files of one table folder without partitions, whose files have numbers."""

    def __init__(self, storage: Storage, view: View, settings: Settings) -> None:
        self._storage, self._view, self._settings = storage, view, settings
        self._needs_times = False
        self.mirrored = storage.uri(view.files.folder.name.target(settings.default_schema))

    @contextlib.contextmanager
    def chosen(self, options: HistoryOptions) -> Iterator[Parts]:
        """The files for a history table with these options; converted ones are removed afterwards.

        LakemirrorError `history-incomplete` where a file is gone, or its time is needed and not known.
        """
        gone = [number for number in range(1, self._view.position + 1) if number not in self._numbers]
        if gone:
            raise incomplete(
                self._view, f"{len(gone)} of {self._view.position} applied files are gone, first number {gone[0]}"
            )
        table = self._view.files.metadata
        self._needs_times = options.mode == SCD2 and not table.options.sequence
        staging = Staging(self._storage, self._settings.memory)
        staged: list[ChangeFile] = []

        def parts(after: int, limits: Limits) -> Iterator[Sequence[ChangeFile]]:
            for numbers in self._runs(after, limits):
                files = [self._file(number) for number in numbers]
                if table.is_text:
                    files = self._staged(staging, files)
                    staged.extend(files)
                yield files
                staging.clear(staged)
                staged.clear()

        try:
            yield parts
        finally:
            staging.clear(staged)

    @cached_property
    def _numbers(self) -> dict[int, Entry | None]:
        """The entry of each number as it was published; None for one that was set aside."""
        folder = self._view.files.folder
        found: dict[int, Entry | None] = dict.fromkeys(numbers_aside(folder.quarantined, folder, ""))
        found |= {file.number: file.entry for file in self._view.files.changes}
        return found | {number: home for number, (home, _) in self._archived.items()}

    @cached_property
    def _archived(self) -> dict[int, tuple[Entry, Entry]]:
        """The files in `_ProcessedFiles` by number: at the path where they were published, and as they are."""
        folder = self._view.files.folder
        real = {entry.path.replace(f"/{PROCESSED}/", "/", 1): entry for entry in folder.processed}
        homes = [replace(entry, path=path) for path, entry in real.items()]
        listed = TableFiles(TableFolder(folder.name, homes), self._view.files.metadata).changes
        return {file.number: (file.entry, real[file.entry.path]) for file in listed}

    @cached_property
    def _times(self) -> dict[int, int]:
        numbers = [number for number in self._archived if number <= self._view.position]
        return known_times(self.mirrored, self._view.identity, numbers)

    def _runs(self, after: int, limits: Limits) -> Iterator[list[int]]:
        run, size = list[int](), 0
        for number in range(after + 1, self._view.position + 1):
            entry = self._numbers[number]
            if entry is None:
                continue
            if run and (len(run) >= limits.files or size + entry.size > limits.bytes):
                yield run
                run, size = [], 0
            run.append(number)
            size += entry.size
        if run:
            yield run

    def _file(self, number: int) -> ChangeFile:
        """The change file of a number, read where it is now."""
        home, real = self._archived.get(number, (None, None))
        if home is None or real is None:
            entry = self._numbers[number]
            assert entry is not None
            return ChangeFile(entry, number, self._footer(entry))
        footer = self._footer(real)
        if self._needs_times and number not in self._times and not self._has_times(real, footer):
            raise incomplete(
                self._view, f"when number {number} was written is not known any more, and its rows do not say it"
            )
        home = replace(home, modified=self._times.get(number, home.modified))
        return ChangeFile(home, number, footer, read_from=real.path)

    def _has_times(self, entry: Entry, footer: pq.FileMetaData | None) -> bool:
        """True where each row has the time of its source: read, since nobody has checked what the footer counts."""
        if footer is None or SOURCE_TIME not in footer.schema.names:
            return False
        with self._storage.open(entry.path, entry) as file:
            return bool(pq.read_table(file, columns=[SOURCE_TIME]).column(SOURCE_TIME).null_count == 0)

    def _footer(self, entry: Entry) -> pq.FileMetaData:
        if self._view.files.metadata.is_text:
            return None  # known once it is converted
        try:
            with self._storage.open(entry.path, entry) as file:
                return read_footer(file)
        except (pa.ArrowException, ValueError) as error:
            raise incomplete(self._view, f"{entry.path} cannot be read: {error}") from error

    def _staged(self, staging: Staging, files: Sequence[ChangeFile]) -> list[ChangeFile]:
        """The files as Parquet, each under the path where it was published."""
        snapshot = read_snapshot(self.mirrored)
        columns = from_delta(snapshot.metadata.value["schemaString"]) if snapshot is not None else ()
        here = [replace(file, entry=replace(file.entry, path=file.path), read_from="") for file in files]
        staged, rejected = staging.stage_all(
            here, self._view.files.metadata, undeclared=self._settings.undeclared_columns,
            zone=zone_reader(columns, rules_of(self._settings).columns.zoneless),
        )  # fmt: skip
        if rejected is not None:
            staging.clear(staged)
            raise rejected.error()
        return [replace(each, entry=file.entry) for each, file in zip(staged, files, strict=True)]


def incomplete(view: View, why: str, hint: str | None = None) -> LakemirrorError:
    """The refusal to make a history again."""
    name = str(view.files.folder.name)
    return LakemirrorError("history-incomplete", f"{name}: {why}", table=name, hint=hint)
