"""One table folder seen from its publisher's side: every method that takes rows publishes a change file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.landing_zone.row_markers import misspelt_marker
from lakemirror.landing_zone.zone import TableName
from lakemirror.publisher import change_writer, sequence, snapshot, table_types
from lakemirror.publisher.arrow_input import read_rows
from lakemirror.publisher.batches import Prepared
from lakemirror.publisher.buffer import Buffer, Gathered
from lakemirror.publisher.change_writer import DELETE, INSERT, MARKER_COLUMN, TOKEN, UPDATE, UPSERT
from lakemirror.publisher.declaration import Declaration, agreed, declare
from lakemirror.publisher.declared_types import ColumnTypes
from lakemirror.publisher.folders.table_folder import TableFolder
from lakemirror.publisher.plain_names import readers_lost
from lakemirror.publisher.published_types import PublishedTypes
from lakemirror.settings import converted

_MARKERS = {"insert": INSERT, "update": UPDATE, "upsert": UPSERT, "delete": DELETE}


@dataclass(frozen=True)
class Published:
    """A published change file: its number, its path and its rows. `path` is relative if the database is not local."""

    number: int
    path: Path
    rows: int


class LandingTable:
    """One table folder. Every method that takes rows publishes one complete change file, or none if it raises.

    Rows may be an Arrow table, batch or reader, any object with the Arrow PyCapsule interface, a pandas or Spark frame,
    a dict, or a list of dicts. Zero rows make no file, except in `load`. With a buffer, the methods return None and
    gather rows; `flush` or the end of a `with` block publishes them. Errors: `input-invalid`,
    `value-invalid`, `key-columns-missing`, `key-column-absent`, `columns-ambiguous`, `type-unsupported`,
    `key-columns-changed`, `metadata-invalid`, `publish-conflict`.
    """

    def __init__(
        self,
        place: TableFolder,
        name: TableName,
        keys: Sequence[str] | None = None,
        columns: pa.Schema | None = None,
        buffer: Buffer | None = None,
        compression: str = "snappy",
        may_widen: Callable[[], bool] = lambda: False,
        zoneless: str = "",
    ) -> None:
        """`may_widen`: whether the engine widens columns of this database. `zoneless`: what times without a zone are,
        as `Landing.table` takes it. LakemirrorError `setting-invalid`.
        """
        self.name = name
        self.place = place
        self._given_keys = None if keys is None else tuple(keys)
        self.columns: dict[str, pa.DataType] = {field.name: field.type for field in columns or ()}
        self.starts_again = False  # the next file that is published recreates the table first
        self._swept = False
        self._published = PublishedTypes(place, str(name))
        self._compression = compression
        self._may_widen = may_widen
        self.zoneless: str = converted("zoneless", zoneless) if zoneless else ""
        self._types = ColumnTypes(str(name), self.zoneless)
        self._gathered = None if buffer is None else Gathered(buffer, self._publish_gathered)

    @property
    def folder(self) -> Path:
        """The table folder; relative to the database where that is not local."""
        return self.place.path

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns, as given or as the folder declares them."""
        return self._given_keys if self._given_keys is not None else declare(self.place, None).keys

    def load(self, rows: Any, *, number: int | None = None) -> Published:
        """Publishes an initial load: a file without marker column. Zero rows make an empty table with these columns.

        `number`, here and in the other methods: the file gets this number, for a source that numbers its own files.
        Files after a missing number wait for it. Error: `publish-conflict` if the number is taken.
        """
        self.flush()
        reader = self.take(rows)
        if not reader.schema.names:
            raise LakemirrorError("input-invalid", f"{self.name}: the rows have no typed column, so there is no table")
        published = self.publish(reader, number, empty=True)
        assert published is not None
        return published

    def insert(self, rows: Any, *, number: int | None = None) -> Published | None:
        """Publishes new rows. Their keys must be new, which is not checked."""
        return self._change(rows, INSERT, number)

    def update(self, rows: Any, *, number: int | None = None) -> Published | None:
        """Publishes complete rows that replace the rows with the same keys."""
        return self._change(rows, UPDATE, number)

    def upsert(self, rows: Any, *, number: int | None = None) -> Published | None:
        """Publishes complete rows that replace the rows with the same keys, or are new."""
        return self._change(rows, UPSERT, number)

    def delete(self, rows: Any, *, number: int | None = None) -> Published | None:
        """Publishes that the rows with these keys are deleted. Only the key columns are used."""
        return self._change(rows, DELETE, number)

    def changes(self, rows: Any, *, marker: str = MARKER_COLUMN, number: int | None = None) -> Published | None:
        """Publishes rows in order, each with its own marker (0, 1, 2, 4) in the column `marker`.

        Error: `row-marker-invalid`.
        """
        reader = self.take(rows, marker)
        return self._send(change_writer.with_given_markers(reader, marker, str(self.name)), number)

    def prepare(self, rows: Any, mode: str | None = None, *, marker: str | None = None) -> Prepared | None:
        """Writes a change file that has no number yet, for `batches`; None for no rows.

        `mode`: insert, update, upsert or delete; None upserts where there are keys, else inserts. `marker`: the column
        that holds each row's marker, instead of a mode.
        """
        mode = mode or ("upsert" if self.keys else "insert")
        if mode not in _MARKERS:
            raise LakemirrorError("input-invalid", f"{mode!r} is no mode", hint=f"Modes are {', '.join(_MARKERS)}.")
        if marker is not None:
            changes = change_writer.with_given_markers(self.take(rows, marker), marker, str(self.name))
        else:
            changes = self._marked(rows, _MARKERS[mode])
        with self.room():
            staged, count = self._write(changes, None)
            seen = self._published.newest
            if not count:
                staged.unlink()
                return None
            self.place.make()
            self.place.keep(staged)
        return Prepared(staged.name, count, seen)

    def publish_snapshot(self, rows: Any) -> Published | None:
        """Publishes the difference between this complete content and the last one. Returns None if there is none.

        The table needs key columns, and each key may occur only once.
        """
        self.flush()
        with self.room():
            return snapshot.publish_snapshot(self, rows)

    def flush(self) -> None:
        """Publishes the rows that the buffer has gathered."""
        if self._gathered is not None:
            self._gathered.flush()

    def drop(self) -> None:
        """Deletes the table folder, if it exists. The mirror then drops the mirrored table.

        The folder disappears in one step: no reader sees a part of it.
        """
        self._published.start_again()
        if self._gathered is not None:
            self._gathered.discard()
        if not self.place.is_there():
            return
        with self._storage():
            self.place.drop()

    def recreate(self) -> None:
        """Starts the table again: deletes the folder, makes it again, declares the keys, and numbers files from 1.

        The mirrored table keeps its content until the first file of the new folder is applied.
        """
        keys = self.keys
        self.drop()
        self._given_keys = keys or self._given_keys
        self.opened()

    def recreate_first(self) -> None:
        """Recreates the table as soon as its next file is written and checked: rows that are refused delete nothing."""
        keys = self.keys
        self._given_keys = keys or self._given_keys
        self._published.start_again()
        self.starts_again = True

    def __enter__(self) -> LandingTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()

    def types_before(self) -> dict[str, pa.DataType]:
        """Types of the table's columns, as far as its newest files tell.

        `file-unreadable` where they cannot: a guess might make a second file that the table cannot take.
        """
        with self._storage():
            if self._published.known and self._gathered is None and not self.place.is_there():
                self._published.start_again()  # another program deleted the folder
            return self._published.now()

    def opened(self) -> tuple[sequence.Sequence, tuple[str, ...]]:
        """The folder's numbers and its key columns, after making the folder and declaring the keys where needed."""
        with self._storage():
            self.place.make()
            with self._declared() as (numbers, declared):
                return numbers, declared.keys

    def known(self) -> tuple[sequence.Sequence, tuple[str, ...]]:
        """The folder's numbers and its key columns; nothing is made, and nothing declared."""
        if self.starts_again:
            return sequence.Sequence(self.place), self.keys
        with self._storage():
            declared = agreed(self.place, self._given_keys)
            return sequence.Sequence(self.place, declared.extension), declared.keys

    @contextmanager
    def _declared(self) -> Iterator[tuple[sequence.Sequence, Declaration]]:
        with sequence.Sequence(self.place).locked():
            declared = declare(self.place, self._given_keys)
            yield sequence.Sequence(self.place, declared.extension), declared

    def publish(
        self,
        reader: pa.RecordBatchReader,
        number: int | None = None,
        *,
        empty: bool = False,
        footer: Mapping[str, str] | None = None,
    ) -> Published | None:
        """Publishes one file as it is given, with its marker column where it has one. `empty`: also without rows."""
        with self.room():
            staged, rows = self._write(reader, footer)
            kept, seen = staged.name, self._published.newest

            def renewed(newest: int) -> str:
                nonlocal kept, seen
                kept, seen = self.renewed(kept, seen, newest), newest
                return kept

            try:
                reach("publish.file-written")
                if self.starts_again:
                    if self.place.is_there():
                        self.place.drop(staged)
                    self.starts_again = False
                    self.opened()
                    reach("publish.recreated")
                if rows == 0 and not empty:
                    return None
                self.place.make()
                self.place.keep(staged)
                with self._declared() as (numbers, _):
                    reach("publish.before-link")
                    taken = numbers.take(kept, number, renewed)
            except BaseException:
                with suppress(OSError, LakemirrorError):
                    self.place.forget(kept)
                raise
            finally:
                with suppress(OSError):
                    staged.unlink(missing_ok=True)
            reach("publish.done")
        self._published.remember(reader.schema, taken)
        return Published(taken, self.folder / numbers.name(taken), rows)

    def renewed(self, kept: str, seen: int, newest: int) -> str:
        """The name of the kept file, or of another in its place: in the types that the table has since file `newest`.

        `seen`: the newest file whose types counted as it was written. The caller holds the lock. `type-changed`.
        """
        if seen == newest:
            return kept
        self._published.look_again(newest)
        with self.place.open_kept(kept) as file:
            written = pq.ParquetFile(file)
            given = pa.RecordBatchReader.from_batches(written.schema_arrow, written.iter_batches())
            rows = self._fitted(given)
            known = table_types.after(self.types_before(), rows.schema)
            footer = {name.decode(): text.decode() for name, text in (written.metadata.metadata or {}).items()}
            if rows is given and footer.get(table_types.NOTE) == table_types.note(known, rows.schema):
                return kept
            own = (TOKEN, table_types.NOTE, "ARROW:schema")
            staged, _ = self._write(rows, {name: text for name, text in footer.items() if name not in own})
        self.place.keep(staged)
        reach("publish.retyped")
        self.place.forget(kept)
        return staged.name

    def in_types_now(self, rows: pa.Table, newest: int) -> pa.Table:
        """The rows in the types that the table has since file `newest`. `type-changed`."""
        if self._published.newest != newest:
            self._published.look_again(newest)
            given = rows.to_reader()
            fitted = self._fitted(given)
            return rows if fitted is given else fitted.read_all()
        return rows

    def _fitted(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        return table_types.fitted(
            reader, self.types_before(), self.columns, self._may_widen, str(self.name), self.zoneless
        )

    def conform(self, reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
        """The rows in types that the contract knows (section 6)."""
        return self._types.conform(reader)

    def warn(self, message: str) -> None:
        """Warns (TypeWarning) of something about this table, once."""
        self._types.warn(f"{self.name}: {message}")

    @contextmanager
    def _storage(self) -> Iterator[None]:
        """What the file system says, as errors of ours."""
        try:
            yield
        except FileNotFoundError as error:
            raise LakemirrorError("publish-conflict", f"{self.name}: the table folder was deleted meanwhile") from error
        except OSError as error:
            raise LakemirrorError("storage-unavailable", f"{self.name}: {error}", table=str(self.name)) from error

    def _change(self, rows: Any, marker: int, number: int | None) -> Published | None:
        return self._send(self._marked(rows, marker), number)

    def _marked(self, rows: Any, marker: int) -> pa.RecordBatchReader:
        if marker != INSERT:
            self.require_keys()
        reader = self.take(rows, only=self.keys if marker == DELETE else None)
        return change_writer.with_marker(reader, marker)

    def take(self, rows: Any, marker: str | None = None, only: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """The rows in types that the table takes, with every key column. `only`: no more columns than these."""
        reader = read_rows(rows, self.columns, self.types_before(), only, self.zoneless)
        if marker is None and MARKER_COLUMN in reader.schema.names:
            raise LakemirrorError(
                "input-invalid",
                f"{self.name}: the rows carry markers of their own",
                hint="Use changes(rows), or leave the column out.",
            )
        self._check_marker(reader.schema.names, marker)
        conformed = self._fitted(self.conform(reader))
        self._warn_of_names(conformed.schema.names)
        present = {name.lower() for name in conformed.schema.names}
        for key in self.keys:
            if key.lower() not in present and reader.schema.names:
                raise LakemirrorError(
                    "key-column-absent",
                    f"{self.name}: the rows have no typed column {key}, which is a key column; their columns are "
                    + ", ".join(reader.schema.names),
                    table=str(self.name),
                    column=key,
                    hint="Publish every key column with each row, or correct the names of the keys.",
                )
        return conformed

    def _warn_of_names(self, names: Sequence[str]) -> None:
        """Says which readers the first file of a column loses by its name."""
        before = {name.lower() for name in self.types_before()}
        lost = readers_lost(name for name in names if name.lower() not in before)
        if lost:
            self.warn(lost)

    def _check_marker(self, names: list[str], marker: str | None) -> None:
        """`row-marker-misspelt` for a column that would stop the table. `marker`: the column of markers."""
        like = misspelt_marker(names) if marker is None else None
        if like is not None:
            raise LakemirrorError(
                "row-marker-misspelt",
                f"{self.name}: column {like!r} is almost {MARKER_COLUMN}",
                table=str(self.name),
                column=like,
                hint=f"Name {like!r} as the column with the row markers (marker=, --marker-column), or rename it.",
            )

    def _send(self, reader: pa.RecordBatchReader, number: int | None) -> Published | None:
        if self._gathered is None:
            return self.publish(reader, number)
        if number is not None:
            raise LakemirrorError("input-invalid", f"{self.name}: a number of its own cannot be given to gathered rows")
        changes = reader.read_all()
        if changes.num_rows:
            self._gathered.add(changes)
            self._published.remember(changes.schema)
        return None

    def _publish_gathered(self, changes: pa.Table) -> None:
        self.publish(changes.to_reader())

    def require_keys(self) -> None:
        if not self.keys:
            raise LakemirrorError(
                "key-columns-missing",
                f"{self.name}: updates, upserts and deletes need key columns",
                table=str(self.name),
                hint='Name them: landing.table(name, keys=["id"]).',
            )

    @contextmanager
    def room(self) -> Iterator[None]:
        """A place for staged files; what publishers that crashed left is deleted the first time.

        A folder that is made for this and stays empty is removed at the end.
        """
        with self._storage(), self.place.room():
            if not self._swept:
                self._swept = True
                self.place.sweep()
            yield

    def _write(self, rows: pa.RecordBatchReader, footer: Mapping[str, str] | None) -> tuple[Path, int]:
        """A complete staged file, and how many rows it has."""
        staged = self.place.staged()
        try:
            known = table_types.after(self.types_before(), rows.schema)
            kept = {TOKEN: staged.name, table_types.NOTE: table_types.note(known, rows.schema), **(footer or {})}
            return staged, change_writer.write_parquet(rows, staged, self._compression, kept)
        except BaseException:
            with suppress(OSError):
                staged.unlink(missing_ok=True)
            raise


__all__ = ["LandingTable", "Published"]
