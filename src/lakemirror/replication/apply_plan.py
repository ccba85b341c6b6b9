"""What one apply starts from, what it would do, and what it did: plain, frozen data.

ApplyStart ─▶ planner.plan ─▶ ApplyPlan ─▶ engine, commit ─▶ Applied
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakemirror.delta.log import Action, Snapshot
from lakemirror.engines.engine import Choice
from lakemirror.engines.row_work import RowWork
from lakemirror.errors import TableError
from lakemirror.replication.applied_record import Detection
from lakemirror.replication.batch import Batch
from lakemirror.replication.position import Manifest, Position
from lakemirror.replication.schema_evolution import Rules


@dataclass(frozen=True)
class ApplyStart:
    """What one apply starts from.

    `expected` is the position that the files were chosen by: None where the table must not exist yet. `identity` and
    `generation` are those of the table folder; other ones than the expected mean that the folder was recreated and
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
class ApplyPlan:
    """What one commit does. Nothing of it has been done.

    `snapshot`: the table before, None where there is none. `metadata`: its `metaData` action after, but for the
    record of applied paths. `removed`: `add` actions of a
    replaced table. `row_work`: what an engine does, None where the files have no rows. `added_as_they_are`: the
    change files become data files. `choice`: the engine and why. `error`: of the file behind the batch, if it is bad.
    """

    start: ApplyStart
    batch: Batch
    snapshot: Snapshot | None
    metadata: Mapping[str, Any]
    removed: tuple[Action, ...]
    row_work: RowWork | None
    added_as_they_are: bool
    choice: Choice
    error: TableError | None = None

    @property
    def version(self) -> int:
        """The version that the commit will have."""
        return self.snapshot.version + 1 if self.snapshot else 0


@dataclass(frozen=True)
class Applied:
    """What one apply did: the batch, the position after it, the table's new version.

    `engine`: the name of the engine that did the row work, and `engine_reason`: why it was chosen; empty if not told.
    `seconds`: from the plan to the commit.
    """

    batch: Batch
    position: Position
    manifest: Manifest
    version: int
    engine: str = ""
    engine_reason: str = ""
    seconds: float = 0.0


__all__ = ["Applied", "ApplyPlan", "ApplyStart", "Limits"]
