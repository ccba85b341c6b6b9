"""One table folder seen from its publisher's side: every method that takes rows publishes a change file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.option_patterns import options_for
from lakemirror.landing_zone.reserved_columns import SOURCE_TIME
from lakemirror.landing_zone.table_options import NO_OPTIONS, TableOptions, parse_options
from lakemirror.landing_zone.zone import TableName
from lakemirror.publisher import change_writer, snapshot
from lakemirror.publisher.buffer import Buffer, Gathered
from lakemirror.publisher.change_writer import DELETE, INSERT, MARKER_COLUMN, UPDATE, UPSERT
from lakemirror.publisher.declaration import read_declaration
from lakemirror.publisher.folders.table_folder import TableFolder
from lakemirror.publisher.table_writer import Prepared, Published, TableForm, TableWriter, without
from lakemirror.settings.settings import Settings

if TYPE_CHECKING:
    from lakemirror.publisher.unchanged import Unchanged

_LASTS = 10.0  # seconds for which the operator's options are not read again
_MARKERS = {"insert": INSERT, "update": UPDATE, "upsert": UPSERT, "delete": DELETE}


class LandingTable(TableWriter):
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
        form: TableForm | None = None,
        settings: Callable[[], Settings] = Settings,
        buffer: Buffer | None = None,
    ) -> None:
        """`settings`: of the database. LakemirrorError `setting-invalid`."""
        super().__init__(place, name, form or TableForm(), settings)
        self._of_operator: tuple[float, TableOptions] = (-inf, NO_OPTIONS)  # when they were read, and the options
        self._gathered = None if buffer is None else Gathered(buffer, self._publish_gathered)

    def declare(
        self, *, deletes: str = "hard", sequence: str | Sequence[str] = (), late_days: int | None = None,
        history: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] = (),
    ) -> None:  # fmt: skip
        """Declares what the mirror does with deletes, late changes and history; it replaces an earlier declaration.

        `deletes`: hard, soft or ignore. `sequence`: the column, or the columns, by which the changes of a key are
        ordered; `late_days`: for so long, late changes find their place. `history`: changes, scd2, or objects with
        mode, name and track. All as in `_metadata.json`. Error: `metadata-invalid`.
        """
        given = {"deletes": deletes, "sequence": sequence, "late_days": late_days, "history": history}
        self.declare_options({name: value for name, value in given.items() if value not in ("hard", (), [], None)})

    def load(self, rows: Any, *, number: int | None = None) -> Published:
        """Publishes an initial load: a file without marker column. Zero rows make an empty table with these columns.

        `number`, here and in the other methods: the file gets this number, for a source that numbers its own files.
        Files after a missing number wait for it. Error: `publish-conflict` if the number is taken.
        """
        self.flush()
        reader = self.take(rows)
        self.require_types(reader.schema)
        published = self.publish(reader, number, empty=True)
        assert published is not None
        return published

    def insert(self, rows: Any, *, number: int | None = None) -> Published | None:
        """Publishes new rows. Their keys must be new, which is not checked."""
        return self._change(rows, INSERT, number)

    def update(self, rows: Any, *, unchanged: Unchanged | None = None, number: int | None = None) -> Published | None:
        """Publishes rows that replace the rows with the same keys.

        `unchanged`, here, in `upsert` and in `changes`: columns that keep the value of the row with the same key; one
        list for all rows, or a list for each row. The rows need not have these columns. Without it rows are complete.
        Error: `partial-row-invalid`.
        """
        return self._change(rows, UPDATE, number, unchanged)

    def upsert(self, rows: Any, *, unchanged: Unchanged | None = None, number: int | None = None) -> Published | None:
        """Publishes rows that replace the rows with the same keys, or are new."""
        return self._change(rows, UPSERT, number, unchanged)

    def delete(self, rows: Any, *, number: int | None = None) -> Published | None:
        """Publishes that the rows with these keys are deleted.

        Only the key columns are used, those of the sequence if one is declared, and `__sourceTimestamp__`: when the
        source made the change, if the rows say so. Error: `sequence-missing`.
        """
        return self._change(rows, DELETE, number)

    def changes(
        self, rows: Any, *, marker: str = MARKER_COLUMN, unchanged: Unchanged | None = None,
        number: int | None = None,
    ) -> Published | None:  # fmt: skip
        """Publishes rows in order, each with its own marker (0, 1, 2, 4) in the column `marker`.

        Error: `row-marker-invalid`.
        """
        reader = self.take(rows, marker)
        changes = change_writer.with_given_markers(reader, marker, str(self.name))
        return self._send(self._partial(changes, unchanged), number)

    def prepare(self, rows: Any, mode: str | None = None, *, marker: str | None = None) -> Prepared | None:
        """Writes a change file that has no number yet, for `batches`; None for no rows.

        `mode`: insert, update, upsert or delete; None upserts where there are keys, else inserts. `marker`: the column
        that holds each row's marker, instead of a mode.
        """
        mode = self.mode(mode, _MARKERS)
        if marker is not None:
            changes = change_writer.with_given_markers(self.take(rows, marker), marker, str(self.name))
        else:
            changes = self._marked(rows, _MARKERS[mode])
        return self.kept(changes)

    def publish_snapshot(self, rows: Any) -> Published | None:
        """Publishes the difference between this complete content and the last one. Returns None if there is none.

        The table needs key columns, and each key may occur only once. Error: `not-supported` for a table with a
        sequence, because a row that is gone has none.
        """
        if read_declaration(self.place).options.sequence:
            raise LakemirrorError(
                "not-supported",
                f"{self.name}: a snapshot cannot be compared in a table with a sequence: a row that is gone has none",
                table=str(self.name),
                hint="Publish the changes with upsert and delete, or take the option sequence out.",
            )
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
        self.forget_types()
        if self._gathered is not None:
            self._gathered.discard()
        if not self.place.is_there():
            return
        with self.storage():
            self.place.drop()

    def recreate(self) -> None:
        """Starts the table again: deletes the folder, makes it again, declares keys and options, and numbers from 1.

        The mirrored table keeps its content until the first file of the new folder is applied.
        """
        self.keep_declaration()
        self.drop()
        self.opened()

    def recreate_first(self) -> None:
        """Recreates the table as soon as its next file is written and checked: rows that are refused delete nothing."""
        self.keep_declaration()
        self.forget_types()
        self.starts_again = True

    @property
    def keeps_times(self) -> bool:
        """True if the mirror keeps when the source changed a row, by soft deletes or versions; also while options are
        invalid, as it applies nothing then."""
        try:
            return bool(self.keys) and any(each.keeps_times for each in self._options())
        except LakemirrorError as error:
            if error.retry:
                raise
            return True

    def __enter__(self) -> LandingTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()

    def _change(
        self, rows: Any, marker: int, number: int | None, unchanged: Unchanged | None = None
    ) -> Published | None:
        return self._send(self._partial(self._marked(rows, marker), unchanged), number)

    def _partial(self, changes: pa.RecordBatchReader, unchanged: Unchanged | None) -> pa.RecordBatchReader:
        """The changes with the columns that they leave unchanged."""
        if unchanged is None or not len(unchanged):
            return changes
        from lakemirror.publisher.unchanged import with_unchanged

        return with_unchanged(changes, unchanged, self.types_before(), self.keys, str(self.name))

    def _marked(self, rows: Any, marker: int) -> pa.RecordBatchReader:
        if marker != INSERT:
            self.require_keys()
        if marker != DELETE:
            return change_writer.with_marker(self.take(rows), marker)
        sequence = next((each.sequence for each in self._options() if each.sequence), ())
        reader = self.take(rows, only=(*self.keys, *sequence, SOURCE_TIME))
        if reader.schema.names and (absent := without(sequence, reader.schema.names)):
            raise LakemirrorError(
                "sequence-missing",
                f"{self.name}: the deletes have no column {absent[0]}, which is in the sequence of this table",
                table=str(self.name),
                column=absent[0],
                hint="Give each delete the columns of the sequence, with its place among the changes of its key.",
            )
        return change_writer.with_marker(reader, marker)

    def _options(self) -> Iterator[TableOptions]:
        """What is declared for this table: in its folder, then by the operator, for names like this in
        `mirroring.json`."""
        yield read_declaration(self.place).options
        if time.monotonic() - self._of_operator[0] > _LASTS:
            options = parse_options(options_for(str(self.name), self.settings().tables), self.keys)
            self._of_operator = time.monotonic(), options
        yield self._of_operator[1]

    def _send(self, reader: pa.RecordBatchReader, number: int | None) -> Published | None:
        if self._gathered is None:
            return self.publish(reader, number)
        if number is not None:
            raise LakemirrorError("input-invalid", f"{self.name}: a number of its own cannot be given to gathered rows")
        changes = reader.read_all()
        if changes.num_rows:
            self._gathered.add(changes)
            self.will_publish(changes.schema)
        return None

    def _publish_gathered(self, changes: pa.Table) -> None:
        self.publish(changes.to_reader())


__all__ = ["LandingTable", "Published"]
