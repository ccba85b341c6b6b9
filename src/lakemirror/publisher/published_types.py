"""The types of one table's columns as its newest files tell, and up to which file they were looked at."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import QUARANTINED
from lakemirror.publisher import table_types
from lakemirror.publisher.declaration import read_declaration
from lakemirror.publisher.folders.table_folder import TableFolder
from lakemirror.publisher.sequence import Sequence

LOOKED_BACK = 100  # files


class PublishedTypes:
    """What one publisher object knows of a table's types. `newest`: the last number that it published or looked at."""

    def __init__(self, folder: TableFolder, table: str) -> None:
        self._folder, self._table = folder, table
        self.known: dict[str, pa.DataType] | None = None
        self.newest = 0

    def now(self) -> dict[str, pa.DataType]:
        """The types; the newest files are read where nothing is known yet.

        `file-unreadable` where they cannot be read: a guess might make a second file that the table cannot take.
        """
        if self.known is None:
            self.look_again(self._numbers().newest())
        return self.known or {}

    def look_again(self, newest: int) -> None:
        """Reads the types again if another publisher made the file `newest`."""
        if self.known is None or newest != self.newest:
            self.known, self.newest = self._read(newest), newest

    def remember(self, schema: pa.Schema, number: int = 0) -> None:
        """Takes in the columns of a file that was published, or of rows that will be."""
        self.known = table_types.after(self.known or {}, schema)
        self.newest = max(self.newest, number)

    def start_again(self) -> None:
        """Takes in that the table folder was deleted."""
        self.known, self.newest = {}, 0

    def _numbers(self) -> Sequence:
        return Sequence(self._folder, read_declaration(self._folder).extension)

    def _read(self, newest: int) -> dict[str, pa.DataType]:
        numbers, bad = self._numbers(), ""
        schemas: list[pa.Schema] = []
        for number in range(newest, max(newest - LOOKED_BACK, 0), -1):
            found = numbers.find(number)
            if found is None:
                break
            if found.startswith(f"{QUARANTINED}/"):
                continue  # the table did not take it
            try:
                with self._folder.open(found) as file:
                    footer = pq.ParquetFile(file)
            except FileNotFoundError:
                break  # gone, or moved by the engine this moment
            except pa.ArrowException:
                bad = bad or found
                continue
            schemas.append(footer.schema_arrow)
            beyond = table_types.read_note(footer.metadata.metadata)
            if beyond is not None:
                schemas.append(beyond)
                break
        if bad and not schemas:
            raise LakemirrorError(
                "file-unreadable",
                f"{self._table}: {bad} cannot be read, so the types of the columns are not known",
                table=self._table,
                file=bad,
            )
        known: dict[str, pa.DataType] = {}
        for schema in reversed(schemas):
            known = table_types.after(known, schema)
        return known
