"""One table folder and how a file gets there: rows in the table's types, one complete file, its number.

rows ─▶ take: the types that the table takes ─▶ a staged file ─▶ kept ─▶ the next number, in the types of then
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.landing_zone.column_types import fits, table_type
from lakemirror.landing_zone.reserved_columns import SOURCE_TIME
from lakemirror.landing_zone.row_markers import UNCHANGED, misspelt_marker
from lakemirror.landing_zone.table_options import as_declared
from lakemirror.landing_zone.zone import TOKEN, TableName
from lakemirror.publisher import change_writer, sequence, table_types
from lakemirror.publisher.arrow_input import read_rows
from lakemirror.publisher.change_writer import MARKER_COLUMN
from lakemirror.publisher.declaration import Declaration, declare, read_declaration
from lakemirror.publisher.declared_types import ColumnTypes
from lakemirror.publisher.folders.table_folder import TableFolder
from lakemirror.publisher.plain_names import readers_lost
from lakemirror.publisher.published_types import PublishedTypes
from lakemirror.settings.settings import Settings, converted

_OURS = "lakemirror."  # entries of a footer that are carried over when a file is written again


@dataclass(frozen=True)
class Published:
    """A published change file: its number, its path and its rows. `path` is relative if the database is not local."""

    number: int
    path: Path
    rows: int


@dataclass(frozen=True)
class Prepared:
    """A complete change file that has no number yet: its name in the table folder, its rows.

    `seen`: the newest file whose types counted as it was written.
    """

    name: str
    rows: int
    seen: int = 0


@dataclass(frozen=True)
class TableForm:
    """What a publisher says of its table, as `Landing.table` takes it."""

    keys: tuple[str, ...] | None = None
    columns: Mapping[str, pa.DataType] = field(default_factory=dict)
    compression: str = "snappy"
    zoneless: str = ""


class TableWriter:
    """Writes change files of one table folder. Errors: as of `LandingTable`."""

    def __init__(self, place: TableFolder, name: TableName, form: TableForm, settings: Callable[[], Settings]) -> None:
        """`settings`: gives those of the database. LakemirrorError `setting-invalid`."""
        self.name = name
        self.place = place
        self.columns = form.columns
        self.zoneless: str = converted("zoneless", form.zoneless) if form.zoneless else ""
        self.starts_again = False  # the next file that is published recreates the table first
        self._given_keys = form.keys
        self._kept_options: dict[str, Any] | None = None  # of a folder that is made again
        self._compression = form.compression
        self.settings = settings
        self._swept = False
        self._is_gathering = False  # rows that no file has yet count among the types
        self._published = PublishedTypes(place, str(name))
        self._types = ColumnTypes(str(name), self.zoneless)

    @property
    def folder(self) -> Path:
        """The table folder; relative to the database where that is not local."""
        return self.place.path

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns, as given or as the folder declares them."""
        return self._given_keys if self._given_keys is not None else read_declaration(self.place).keys

    def types_before(self) -> dict[str, pa.DataType]:
        """Types of the table's columns, as far as its newest files tell.

        `file-unreadable` where they cannot: a guess might make a second file that the table cannot take.
        """
        with self.storage():
            if self._published.known and not self._is_gathering and not self.place.is_there():
                self._published.start_again()  # another program deleted the folder
            return self._published.now()

    def opened(self) -> tuple[sequence.Sequence, tuple[str, ...]]:
        """The folder's numbers and its key columns, after making the folder and declaring the keys where needed."""
        with self.storage():
            self.place.make()
            with self._declared() as (numbers, declared):
                return numbers, declared.keys

    def declare_options(self, options: Mapping[str, Any]) -> None:
        """Writes the options of deletes, order and history into `_metadata.json`. `metadata-invalid`."""
        with self.storage():
            self.place.make()
            with sequence.Sequence(self.place).locked():
                declare(self.place, self._given_keys, options)

    def known(self) -> tuple[sequence.Sequence, tuple[str, ...]]:
        """The folder's numbers and its key columns; nothing is made, and nothing declared."""
        if self.starts_again:
            return sequence.Sequence(self.place), self.keys
        with self.storage():
            declared = read_declaration(self.place, self._given_keys)
            return sequence.Sequence(self.place, declared.extension), declared.keys

    @contextmanager
    def _declared(self) -> Iterator[tuple[sequence.Sequence, Declaration]]:
        with sequence.Sequence(self.place).locked():
            declared = declare(self.place, self._given_keys, self._kept_options)
            self._kept_options = None
            yield sequence.Sequence(self.place, declared.extension), declared

    def publish(
        self,
        reader: pa.RecordBatchReader,
        number: int | None = None,
        *,
        empty: bool = False,
        footer: Mapping[str, str] | None = None,
    ) -> Published | None:
        """Publishes one file as it is given, with its marker column where it has one. `empty`: also without rows.

        `footer`: entries of ours for the file's metadata; their names begin with `lakemirror.`.
        """
        with self.room():
            staged, rows = self._write(reader, footer)
            file = Prepared(staged.name, rows, self._published.newest)
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
                    taken = self.number(numbers, file, number)
            except BaseException:
                with suppress(OSError, LakemirrorError):
                    self.place.forget(file.name)
                raise
            finally:
                with suppress(OSError):
                    staged.unlink(missing_ok=True)
            reach("publish.done")
        self._published.remember(reader.schema, taken)
        return Published(taken, self.folder / numbers.name(taken), rows)

    def number(self, numbers: sequence.Sequence, file: Prepared, number: int | None = None) -> int:
        """Gives a kept file the next number, or this one, in the types that the table has by then; else it is deleted.

        The caller holds the lock. `publish-conflict`, `type-changed`.
        """

        def renewed(newest: int) -> str:
            nonlocal file
            file = Prepared(self.renewed(file, newest), file.rows, newest)
            return file.name

        try:
            return numbers.take(file.name, number, renewed)
        except BaseException:
            with suppress(OSError, LakemirrorError):
                self.place.forget(file.name)
            raise

    def renewed(self, file: Prepared, newest: int) -> str:
        """The same as `retyped`, without the file that another one replaces."""
        name = self.retyped(file.name, file.seen, newest)
        if name != file.name:
            self.place.forget(file.name)
        return name

    def retyped(self, kept: str, seen: int, newest: int) -> str:
        """The name of the kept file, or of another with its rows: in the types that the table has since file `newest`.

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
            metadata = {name.decode(): text.decode() for name, text in (written.metadata.metadata or {}).items()}
            if rows is given and metadata.get(table_types.NOTE, "") == table_types.note(known, rows.schema):
                return kept
            staged, _ = self._write(rows, {name: metadata[name] for name in metadata if name.startswith(_OURS)})
        self.place.keep(staged)
        reach("publish.retyped")
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
            reader, self.types_before(), self.columns, lambda: self.settings().on_type_change == "widen",
            str(self.name), self.zoneless,
        )  # fmt: skip

    def warn(self, message: str) -> None:
        """Warns (TypeWarning) of something about this table, once."""
        self._types.warn(f"{self.name}: {message}")

    @contextmanager
    def storage(self) -> Iterator[None]:
        """What the file system says, as errors of ours."""
        try:
            yield
        except FileNotFoundError as error:
            raise LakemirrorError("publish-conflict", f"{self.name}: the table folder was deleted meanwhile") from error
        except OSError as error:
            raise LakemirrorError("storage-unavailable", f"{self.name}: {error}", table=str(self.name)) from error

    def kept(self, rows: pa.RecordBatchReader) -> Prepared | None:
        """A complete file that has no number yet; None for no rows."""
        with self.room():
            staged, count = self._write(rows)
            seen = self._published.newest
            if not count:
                staged.unlink()
                return None
            self.place.keep(staged)
        return Prepared(staged.name, count, seen)

    def keep_declaration(self) -> None:
        """Makes keys and options those of the table that is made after this one is dropped."""
        self._given_keys = self.keys or self._given_keys
        self._kept_options = as_declared(read_declaration(self.place).options) or None

    def forget_types(self) -> None:
        """Takes in that the table folder is deleted, or will be."""
        self._published.start_again()

    def will_publish(self, schema: pa.Schema) -> None:
        """Takes in that rows of this schema are gathered and will be published."""
        self._is_gathering = True
        self._published.remember(schema)

    def take(self, rows: Any, marker: str | None = None, only: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """The rows in types that the table takes, with every key column. `only`: no more columns than these."""
        reader = read_rows(rows, self.columns, self.types_before(), only, self.zoneless)
        if marker is None and MARKER_COLUMN in reader.schema.names:
            raise LakemirrorError(
                "input-invalid",
                f"{self.name}: the rows carry markers of their own",
                hint="Use changes(rows), or leave the column out.",
            )
        if UNCHANGED in reader.schema.names:
            raise LakemirrorError(
                "input-invalid",
                f"{self.name}: the rows have a column {UNCHANGED}",
                hint="Leave it out, and give the names as update(rows, unchanged=…), or to upsert or changes.",
            )
        if marker is None and (like := misspelt_marker(reader.schema.names)) is not None:
            raise LakemirrorError(
                "row-marker-misspelt",
                f"{self.name}: column {like!r} is almost {MARKER_COLUMN}",
                table=str(self.name),
                column=like,
                hint=f"Name {like!r} as the column with the row markers (marker=, --marker-column), or rename it.",
            )
        conformed = self._fitted(self._types.conform(reader))
        self._check_time(conformed.schema)
        before = self.types_before()
        if lost := readers_lost(without(conformed.schema.names, before)):  # by the name of a column, at its first file
            self.warn(lost)
        untyped = without(self.keys, conformed.schema.names) if reader.schema.names else []
        if not untyped:
            return conformed
        if not without(untyped, reader.schema.names) and not sum(batch.num_rows for batch in conformed):
            return conformed.schema.empty_table().to_reader()  # no row tells the type of a key column
        raise LakemirrorError(
            "key-column-absent",
            f"{self.name}: the rows have no typed column {untyped[0]}, which is a key column; their columns are "
            + ", ".join(reader.schema.names),
            table=str(self.name),
            column=untyped[0],
            hint="Publish every key column with each row, or correct the names of the keys.",
        )

    def _check_time(self, schema: pa.Schema) -> None:
        place = schema.get_field_index(SOURCE_TIME)
        if place >= 0 and not fits(table_type(schema.types[place]) or "timestamp", "timestamp"):
            raise LakemirrorError(
                "type-unsupported",
                f"{self.name}: column {SOURCE_TIME} is {schema.types[place]}; it must be a timestamp",
                table=str(self.name),
                column=SOURCE_TIME,
                hint=f"Give times, or name the type: --types {SOURCE_TIME}=timestamp.",
            )

    def require_types(self, schema: pa.Schema) -> None:
        """`input-invalid` where no row tells the type of a key column, or of any column: no table can be made of it."""
        untyped = without(self.keys, schema.names)
        if untyped or not schema.names:
            raise LakemirrorError(
                "input-invalid",
                f"{self.name}: no row tells the type of {', '.join(untyped) or 'any column'}, so there is no table",
                hint="Publish a row, or name the types: columns=pa.schema(…), or --types id=bigint.",
            )

    def mode(self, given: str | None, modes: Iterable[str]) -> str:
        """The given mode; without one upsert if there are key columns, else insert. `input-invalid`."""
        mode = given or ("upsert" if self.keys else "insert")
        if mode not in modes:
            raise LakemirrorError("input-invalid", f"{mode!r} is no mode", hint=f"Modes are {', '.join(modes)}.")
        return mode

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
        with self.storage(), self.place.room():
            if not self._swept:
                self._swept = True
                self.place.sweep()
            yield

    def _write(self, rows: pa.RecordBatchReader, more: Mapping[str, str] | None = None) -> tuple[Path, int]:
        """A complete staged file, and how many rows it has. `more`: entries of its footer."""
        staged = self.place.staged()
        try:
            known = table_types.after(self.types_before(), rows.schema)
            footer = {**(more or {}), TOKEN: staged.name, table_types.NOTE: table_types.note(known, rows.schema)}
            return staged, change_writer.write_parquet(rows, staged, self._compression, footer)
        except BaseException:
            with suppress(OSError):
                staged.unlink(missing_ok=True)
            raise


def without(names: Iterable[str], others: Iterable[str]) -> list[str]:
    """The names that are not among the others, in any case."""
    lower = {name.lower() for name in others}
    return [name for name in names if name.lower() not in lower]
