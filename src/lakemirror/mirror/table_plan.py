"""What one look at a table folder and its Delta table found: plain data between listing and apply; no JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone import archive as cleanup
from lakemirror.landing_zone.applied_files import AppliedFiles
from lakemirror.landing_zone.change_file import Waiting
from lakemirror.landing_zone.metadata import LAST_UPDATE, TableMetadata, Warned
from lakemirror.landing_zone.pending import Pending
from lakemirror.landing_zone.zone import TableFolder
from lakemirror.mirror.applied_record import AppliedPaths, Detection, parse_detection
from lakemirror.mirror.apply_plan import Applied, ApplyStart
from lakemirror.mirror.position import Manifest
from lakemirror.mirror.table_log import TableLog


@dataclass
class TablePlan:
    """What one look at a table folder and its table found, without a JVM and without changing anything but a marker.

    `start` is what an apply starts from, None where nothing can be applied: no file, or an error before all files.
    """

    folder: TableFolder
    metadata: TableMetadata
    table_log: TableLog | None = None
    pending: Pending = field(default_factory=Pending)
    start: ApplyStart | None = None
    identity: str = ""
    reseeding: bool = False
    waiting: Waiting | None = None
    error: LakemirrorError | None = None
    warnings: list[Warned] = field(default_factory=list)
    detection: Detection = field(default_factory=Detection)
    applied: AppliedFiles = field(default_factory=AppliedFiles)

    @property
    def position(self) -> int:
        """The number of the last applied file; 0 where none is, or where the folder was made again."""
        if self.table_log is None or self.table_log.position is None or self.reseeding:
            return 0
        return self.table_log.position.number

    @property
    def oldest(self) -> float | None:
        """When the oldest change file that is not applied was written, in seconds since the epoch; None: all are."""
        return self.pending.oldest

    @property
    def leftovers(self) -> bool:
        """True where applied files but the newest are still in the table folder."""
        return bool(cleanup.leftovers(self.folder, self.metadata, self.applied))

    def after(self, applied: Applied, start: ApplyStart, table: str) -> TablePlan:
        """The same look once a batch of it is applied: what is left of its files. `table`: the Delta table's path."""
        manifest, taken = applied.manifest, [item.file for item in applied.batch.files]
        detection = parse_detection(manifest.detection, table)
        sequences = self.applied.sequences
        if sequences is not None:
            sequences = {**sequences, **{file.partition: file.sequence for file in taken}}
        return replace(
            self,
            table_log=TableLog(
                applied.position, manifest, manifest.key_columns, manifest.detection, version=applied.version
            ),
            pending=replace(self.pending, files=self.pending.files[len(taken) :]),
            detection=detection,
            applied=applied_files(detection, applied.position.number, manifest, sequences, table),
            start=replace(
                start,
                expected=applied.position,
                rows_before=applied.manifest.rows,
                bytes_before=applied.manifest.bytes,
                notes_before=applied.manifest.notes,
                detection=detection,
            ),
            reseeding=False,
        )


def applied_files(
    detection: Detection, count: int, manifest: Manifest | None, sequences: Mapping[str, int] | None, table: str
) -> AppliedFiles:
    """Which files are applied, by the table's record, its position and its manifest."""
    paths = AppliedPaths(table, detection.segments) if detection.strategy == LAST_UPDATE else None
    return AppliedFiles(count, sequences, paths, detection.numbered, manifest.file if manifest else "")
