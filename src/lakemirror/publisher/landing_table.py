"""One table folder seen from its publisher's side: every method that takes rows publishes a change file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.landing_zone.zone import TableName
from lakemirror.publisher import change_writer, sequence, snapshot
from lakemirror.publisher.arrow_input import read_rows
from lakemirror.publisher.batches import Prepared
from lakemirror.publisher.buffer import Buffer, Gathered
from lakemirror.publisher.change_writer import DELETE, INSERT, MARKER_COLUMN, TOKEN, UPDATE, UPSERT
from lakemirror.publisher.column_types import ColumnTypes
from lakemirror.publisher.declaration import Declaration, declare, read_declaration
from lakemirror.publisher.table_folder import TableFolder

if TYPE_CHECKING:
    pass

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
    ) -> None:
        self.name = name
        self.place = place
        self._given_keys = None if keys is None else tuple(keys)
        self.columns: dict[str, pa.DataType] = {field.name: field.type for field in columns or ()}
        self._swept = False
        self._before: dict[str, pa.DataType] | None = None
        self._compression = compression
        self._types = ColumnTypes(str(name))
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
        with self._storage():
            staged, count = self._write(changes, None)
            if not count:
                staged.unlink()
                return None
            self.place.keep(staged)
        return Prepared(staged.name, count)

    def publish_snapshot(self, rows: Any) -> Published | None:
        """Publishes the difference between this complete content and the last one. Returns None if there is none.

        The table needs key columns, and each key may occur only once.
        """
        self.flush()
        with self._storage():
            return snapshot.publish_snapshot(self, rows)

    def flush(self) -> None:
        """Publishes the rows that the buffer has gathered."""
        if self._gathered is not None:
            self._gathered.flush()

    def drop(self) -> None:
        """Deletes the table folder, if it exists. The mirror then drops the mirrored table.

        The folder disappears in one step: no reader sees a part of it.
        """
        self._before = {}
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

    def __enter__(self) -> LandingTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()

    def types_before(self) -> dict[str, pa.DataType]:
        """Types of columns as they were published before, as far as the newest file tells."""
        if self._before is None:
            self._before = {}
            numbers = sequence.Sequence(self.place, read_declaration(self.place).extension)
            found = numbers.find(newest) if (newest := numbers.newest()) else None
            with suppress(OSError, pa.ArrowException):
                if found is not None:
                    with self.place.open(found) as file:
                        self._remember(pq.read_schema(file))
        return self._before

    def opened(self) -> tuple[sequence.Sequence, tuple[str, ...]]:
        """The folder's numbers and its key columns, after making the folder and declaring the keys where needed."""
        with self._storage():
            self._make_folder()
            with self._declared() as (numbers, declared):
                return numbers, declared.keys

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
        with self._storage():
            staged, rows = self._write(reader, footer)
            try:
                reach("publish.file-written")
                if rows == 0 and not empty:
                    return None
                self.place.keep(staged)
                with self._declared() as (numbers, _):
                    reach("publish.before-link")
                    taken = numbers.take(staged.name, number)
            except BaseException:
                with suppress(OSError, LakemirrorError):
                    self.place.forget(staged.name)
                raise
            finally:
                with suppress(OSError):
                    staged.unlink(missing_ok=True)
            reach("publish.done")
        self._remember(reader.schema)
        return Published(taken, self.folder / numbers.name(taken), rows)

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
        reader = self.take(rows)
        if marker != INSERT:
            self.require_keys()
        if marker == DELETE:
            reader = _only(reader, self.keys)
        return change_writer.with_marker(reader, marker)

    def take(self, rows: Any, marker: str | None = None) -> pa.RecordBatchReader:
        """The rows in the contract's types, with every key column."""
        reader = read_rows(rows, self.columns, self.types_before())
        if marker is None and MARKER_COLUMN in reader.schema.names:
            raise LakemirrorError(
                "input-invalid",
                f"{self.name}: the rows carry markers of their own",
                hint="Use changes(rows), or leave the column out.",
            )
        conformed = self.conform(reader)
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

    def _send(self, reader: pa.RecordBatchReader, number: int | None) -> Published | None:
        if self._gathered is None:
            return self.publish(reader, number)
        if number is not None:
            raise LakemirrorError("input-invalid", f"{self.name}: a number of its own cannot be given to gathered rows")
        changes = reader.read_all()
        if changes.num_rows:
            self._gathered.add(changes)
            self._remember(changes.schema)
        return None

    def _remember(self, schema: pa.Schema) -> None:
        types = {field.name: field.type for field in schema if field.name != MARKER_COLUMN}
        self._before = {**(self._before or {}), **types}

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

    def _make_folder(self) -> None:
        self.place.make()
        if not self._swept:
            self._swept = True
            self.place.sweep()

    def _write(self, rows: pa.RecordBatchReader, footer: Mapping[str, str] | None) -> tuple[Path, int]:
        """A complete staged file, and how many rows it has."""
        self._make_folder()
        staged = self.place.staged()
        try:
            footer = {TOKEN: staged.name, **(footer or {})}
            return staged, change_writer.write_parquet(rows, staged, self._compression, footer)
        except BaseException:
            with suppress(OSError):
                staged.unlink(missing_ok=True)
            raise


def _only(reader: pa.RecordBatchReader, columns: Sequence[str]) -> pa.RecordBatchReader:
    wanted = {column.lower() for column in columns}
    names = [name for name in reader.schema.names if name.lower() in wanted]
    schema = pa.schema([reader.schema.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(names) for batch in reader))


__all__ = ["LandingTable", "Published"]
