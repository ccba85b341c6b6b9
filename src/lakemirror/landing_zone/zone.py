"""The landing zone as one listing shows it: which table folders there are and what lies in each."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakemirror.storage import Entry, Storage

LANDING_ZONE = "Files/LandingZone"
PROCESSED = "_ProcessedFiles"
METADATA = "_metadata.json"
MARKER = "_mirror.json"


@dataclass(frozen=True, order=True)
class TableName:
    """A mirrored table's name as its publisher spells it; `schema` is empty for a table without schema folder."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table

    @property
    def folder(self) -> str:
        """The table folder, relative to the database."""
        return f"{LANDING_ZONE}/{self.schema}.schema/{self.table}" if self.schema else f"{LANDING_ZONE}/{self.table}"

    def target(self, default_schema: str) -> str:
        """The Delta table's folder, relative to the database (contract section 1)."""
        schema = self.schema or default_schema
        return f"Tables/{schema}/{self.table}" if schema else f"Tables/{self.table}"


@dataclass
class TableFolder:
    """One table folder at one instant. Files of the publisher's or the service's own (`_…`) are kept apart."""

    name: TableName
    files: list[Entry] = field(default_factory=list)  # everything that could be a change file, also in sub-folders
    metadata: Entry | None = None
    marker: Entry | None = None
    processed: list[Entry] = field(default_factory=list)


@dataclass
class Zone:
    """One listing of the landing zone. `skipped`: folders that are no table because their name begins with `_`."""

    tables: dict[TableName, TableFolder]
    skipped: list[str]


def scan(storage: Storage) -> Zone:
    """Lists the landing zone once. FileNotFoundError where the landing zone itself is missing."""
    raise NotImplementedError
