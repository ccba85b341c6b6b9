"""What one apply starts from, and what it did: plain data between a look, which needs no Spark, and the commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakemirror.replication.applied_record import Detection
from lakemirror.replication.batch import Batch
from lakemirror.replication.position import Manifest, Position
from lakemirror.replication.schema_evolution import Rules


@dataclass(frozen=True)
class Work:
    """What one apply starts from.

    `expected` is the position that the files were chosen by: None where the table must not exist yet. `identity` and
    `generation` are those of the table folder; other ones than the expected mean that the folder was made again and
    that its content replaces the table's. `detection`: how its files are found, as `_metadata.json` has it now.
    `rules`: how its columns may grow. `properties`: what the settings want of the Delta table.
    """

    expected: Position | None
    identity: str
    generation: int
    key_columns: tuple[str, ...]
    upsert_by_default: bool
    properties: Mapping[str, str]
    rows_before: int = 0
    bytes_before: int = 0
    notes_before: tuple[str, ...] = ()
    detection: Detection = field(default_factory=Detection)
    rules: Rules = field(default_factory=Rules)

    @property
    def replaces(self) -> bool:
        return self.expected is not None and self.expected.identity != self.identity


@dataclass(frozen=True)
class Limits:
    """What one commit may take in: so many change files, of so many bytes together."""

    files: int
    bytes: int


@dataclass(frozen=True)
class Applied:
    """What one apply did: the batch, the position after it, the table's new version.

    `engine`: the name of the engine that did the row work, and `engine_reason`: why it was chosen; empty if not told.
    """

    batch: Batch
    position: Position
    manifest: Manifest
    version: int
    engine: str = ""
    engine_reason: str = ""
