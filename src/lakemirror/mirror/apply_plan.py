"""What one apply starts from, what it will do, and what it did: frozen data.

ApplyStart ─▶ planner.plan ─▶ ApplyPlan ─▶ engine, commit ─▶ Applied
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lakemirror.delta.log import Action, Snapshot
from lakemirror.engines.engine import Choice
from lakemirror.engines.row_work import RowWork
from lakemirror.errors import TableError
from lakemirror.mirror.applied_record import Detection
from lakemirror.mirror.next_batch import Batch
from lakemirror.mirror.position import Manifest, Position
from lakemirror.mirror.schema_evolution import Rules


@dataclass(frozen=True)
class ApplyStart:
    """What one apply starts from.

    `expected` is the position that the files were chosen by: None where the table must not exist yet. `identity` and
    `generation` are those of the table folder; if they differ from the expected ones, the folder was recreated and
    its content replaces the table's. `detection`: how its files are found, as `_metadata.json` says now.
    `rules`: how its columns may grow. `properties`: the Delta properties that the settings ask for.
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


class Limits(NamedTuple):
    """What one commit may take: a number of change files, and their bytes together."""

    files: int
    bytes: int


@dataclass(frozen=True)
class ApplyPlan:
    """What one commit will do. Nothing of it is done yet.

    `snapshot`: the table before, None where there is none. `metadata`: its `metaData` action after, without the record
    of applied paths. `removed`: `add` actions of a replaced table. `row_work`: what an engine does, None where the
    files have no rows. `added_as_they_are`: the change files become data files. `choice`: the engine and why. `error`:
    of the first file after the batch, if that file is bad.
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

    `engine`: the name of the engine that did the row work, and `engine_reason`: why it was chosen; empty if unknown.
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
