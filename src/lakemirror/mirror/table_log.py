"""What the Delta log says about a mirrored table: where it is, and what other writers did (contract section 10).

    newest commits ─▶ position, manifest of our last apply ─▶ the commits after it: do rows and position still match?

No JVM. Usually one file is read: the newest commit.
"""

from __future__ import annotations

import datetime
import json
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lakemirror.delta.log import Action, latest_commits, read_snapshot
from lakemirror.delta.log_folder import Log, RecentLog, commit_path, list_end
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.change_file import AppliedFiles, ChangeFile
from lakemirror.landing_zone.findings import Warned
from lakemirror.landing_zone.metadata import LAST_UPDATE
from lakemirror.mirror.position import (
    DETECTION_PROPERTY,
    Detection,
    Manifest,
    Position,
    applied_files,
    current_position,
    parse_detection,
    parse_manifest,
    position_of_commit,
    sequences,
)
from lakemirror.mirror.schema_evolution import KEYS_PROPERTY, missing_columns
from lakemirror.storage.place import capabilities_of, etag_of, written_here

OURS = "lakemirror"
"""The `engineInfo` of commits that lakemirror makes without Delta."""

IDENTITY_PROPERTY = "lakemirror.identity"
HISTORY_PROPERTY = "lakemirror.history"
LATE_DAYS_PROPERTY = "lakemirror.lateDays"
_FORGETS = "delta.setTransactionRetentionDuration"  # checkpoints of other writers leave older `txn` actions out
_REPLACES = ("REPLACE TABLE", "CREATE OR REPLACE TABLE")  # REPLACE COLUMNS keeps all rows


class ForeignChange(NamedTuple):
    """A commit of another writer that changed data. `time`: ISO 8601 in UTC, empty where the commit has none."""

    version: int
    operation: str
    writer: str
    time: str

    def __str__(self) -> str:
        when = f" at {self.time}" if self.time else ""
        return f"version {self.version}: {self.operation} by {self.writer}{when}"


class Verdict(NamedTuple):
    """`restored`: the commit after which rows and position no longer match; None where they match. `changes`:
    other commits that changed data, oldest first."""

    restored: ForeignChange | None = None
    changes: tuple[ForeignChange, ...] = ()

    @property
    def warnings(self) -> list[Warned]:
        """A warning `changed-by-others` for each commit that changed data."""
        return [Warned("changed-by-others", f"another writer changed rows: {change}") for change in self.changes]


@dataclass(frozen=True)
class TableLog:
    """What the log says about a mirrored table. `position` None: the table is not ours. `manifest` None: its commit is
    gone from the log.

    `key_columns` as last declared; empty where none were. `detection`: the record of how files are found. `foreign`:
    what other writers did since our last apply. `version`: the table's, -1 unknown. `identity`: the folder that it was
    mirrored from, from the table's property, where the position is lost. `applied_at`: when the newest apply was
    committed, in seconds since the epoch; 0 unknown. `missing`: needed columns that another writer renamed or dropped
    since (`schema_evolution.py`). `reshaped_after`: the version of our last apply, if a later commit changed the
    table's metadata; else -1. `history`: as in `Manifest`; empty for a mirrored table.
    """

    position: Position | None
    manifest: Manifest | None
    key_columns: tuple[str, ...] = ()
    detection: str = ""
    foreign: Verdict = field(default_factory=Verdict)
    version: int = -1
    identity: str = ""
    applied_at: float = 0.0
    missing: Mapping[str, str] = field(default_factory=dict)
    reshaped_after: int = -1
    history: str = ""


def metadata_at(table: str, version: int, listed: Log | None) -> Mapping[str, Any] | None:
    """A table's `metaData` action at a version; None where the log does not reach back so far."""
    with suppress(LakemirrorError):
        before = read_snapshot(table, version, listed)
        return before.metadata.value if before is not None else None
    return None


def is_for_late_changes(table: str) -> bool:
    """True for a table that remembers what late changes need, which lists of tables leave out."""
    if not table.rstrip("/").endswith("__late"):
        return False
    try:
        found = read_table_log(table)
    except (LakemirrorError, OSError):
        return False
    return found is not None and found.history.startswith("late:")


def read_table_log(table: str, listed: Log | None = None) -> TableLog | None:
    """The log of the Delta table in that folder; None where there is no table. LakemirrorError `table-unreadable`.

    `listed`: the log as it was listed before.

    Usually one file is read, the newest commit: an apply's commit holds position and manifest, and newer commits of
    other writers are skipped.
    """
    if listed is None and not capabilities_of(table).waits and not _has_log(Path(table) / "_delta_log"):
        return None
    newest = -1
    newer: list[tuple[int, Sequence[Action]]] = []
    for number, actions in latest_commits(table, listed=listed):
        newest = max(newest, number)
        position = position_of_commit(actions)
        if position is not None:
            manifest = manifest_of(actions)
            if manifest is None:
                break
            foreign = judge(newer, number, position)
            updated = max(a["txn"].get("lastUpdated") or 0 for a in actions if "txn" in a) / 1000
            reshaped = next((a["metaData"] for _, others in newer for a in others if "metaData" in a), None)
            return TableLog(
                position, manifest, manifest.key_columns, manifest.detection, foreign, newest, applied_at=updated,
                missing=missing_columns(reshaped) if reshaped is not None else {},
                reshaped_after=number if reshaped is not None else -1, history=manifest.history,
            )  # fmt: skip
        newer.append((number, actions))
    else:
        if listed is not None and not listed.is_whole:
            return read_table_log(table)
    snapshot = read_snapshot(table, listed=listed)
    if snapshot is None:
        return TableLog(None, None) if newest >= 0 else None
    position = current_position({app: t.version for app, t in snapshot.transactions.items()})
    properties = snapshot.metadata.configuration
    keys = json.loads(properties.get(KEYS_PROPERTY, "[]"))
    foreign = judge(newer, None, None) if position is not None else Verdict()
    detection = properties.get(DETECTION_PROPERTY, "")
    identity = "" if position is not None else properties.get(IDENTITY_PROPERTY, "")
    return TableLog(
        position, None, tuple(keys), detection, foreign, max(newest, snapshot.version), identity,
        missing=missing_columns(snapshot.metadata.value), history=properties.get(HISTORY_PROPERTY, ""),
    )  # fmt: skip


def read_sequences(table: str, position: Position, listed: Log | None = None) -> dict[str, int]:
    """The last number of each partition folder of the table. `listed`: the log as it was listed before.

    TableError `table-feature-unsupported` where other writers may have dropped some of them: files would be applied
    twice.
    """
    snapshot = read_snapshot(table, listed=listed)
    if snapshot is None:
        return {}
    if _FORGETS in snapshot.metadata.configuration:
        raise TableError(
            "table-feature-unsupported", f"{table}: the property {_FORGETS} forgets positions of partitions"
        )
    return sequences({app: t.version for app, t in snapshot.transactions.items()}, position)


def applied_of(
    path: str, detection: Detection, at: Position | None, manifest: Manifest | None, listed: Log | None = None
) -> AppliedFiles:
    """Which files are applied to the Delta table at `path`. `listed`, errors: as of `read_sequences`."""
    numbers: dict[str, int] | None = None
    if detection.partitioned and detection.strategy != LAST_UPDATE:
        numbers = read_sequences(path, at, listed) if at is not None else {}
    return applied_files(detection, at, manifest, numbers, path)


def applied_after(
    table: TableLog, before: AppliedFiles, files: Iterable[ChangeFile], path: str
) -> tuple[Detection, AppliedFiles]:
    """How files are found once these are applied, and which are applied. `table`: what the commit recorded."""
    detection, numbers = parse_detection(table.detection, path), before.sequences
    if numbers is not None:
        numbers = {**numbers, **{file.partition: file.sequence for file in files}}
    return detection, applied_files(detection, table.position, table.manifest, numbers, path)


def _has_log(folder: Path) -> bool:
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise LakemirrorError("table-unreadable", f"{folder}: {error.strerror}", file=str(folder)) from error
    if not stat.S_ISDIR(mode):
        raise LakemirrorError("table-unreadable", f"{folder} is not a folder", file=str(folder))
    return True


def manifest_of(actions: Sequence[Action]) -> Manifest | None:
    """What a commit of ours records; None for another one."""
    for action in actions:
        if "commitInfo" in action:
            return parse_manifest(action["commitInfo"].get("userMetadata"))
    return None


class LogCache:
    """The log of one Delta table, as this process knows it, so that an apply needs no listing.

        in a store    listing ─▶ commits that this process has made since ─▶ the log, for `holds` seconds
        on a disk     the log's end, with all commits that are there (`delta/log_folder.py`)

    Nothing is concluded from its age: version N + 1 is put only if it is free, and the log's end is looked at before
    (`delta/commit.py`). A commit of another writer that is not known here makes the commit fail, and the log is listed.
    """

    def __init__(self, table: str, holds: float) -> None:
        """`holds`: seconds for which a listing counts; 0: each read looks for what is new."""
        self._table = table
        self._recent = None if holds else RecentLog(table)
        self._holds = holds
        self._log: Log | None = None
        self._listed = 0
        self._until = 0.0

    def read(self) -> Log | None:
        """The log, or its end; None if the folder has none. As `list_log`."""
        if self._recent is not None:
            return self._recent.read()
        if self._log is None or time.monotonic() >= self._until:
            before, self._log = self._log, None
            listed = time.time_ns()
            self._log = list_end(self._table, before)
            self._listed, self._until = listed, time.monotonic() + self._holds
        if self._log is not None:
            self._log = self._with_own_commits(self._log)
        return self._log

    def ends_as(self, log: Log | None, version: int) -> bool:
        """True if the log ends with that version, as it did in `log`: nobody has committed since, and it is the same
        table.
        """
        newest = self.read()
        if newest is None or log is None:
            return newest is log
        return newest.version == version and (newest is log or _end(newest) == _end(log))

    def forget(self) -> None:
        """The next read lists the log."""
        self._until = 0.0
        if self._recent is not None:
            self._recent.forget()

    def _with_own_commits(self, log: Log) -> Log:
        """The log with the commits that this process made after it was listed."""
        version = log.version
        while (path := written_here(commit_path(log.folder, version + 1))) is not None:
            if path.stat().st_mtime_ns < self._listed:
                break
            version += 1
        return (log.with_commits_to(version)) if version > log.version else log


def _end(log: Log) -> tuple[object, ...]:
    """Tells whether the newest commit of a log is the same file as before."""
    path = log.commits.get(log.version)
    return log.version, log.newest, etag_of(path) if path is not None else ""


def judge(newer: Sequence[tuple[int, Sequence[Action]]], applied: int | None, position: Position | None) -> Verdict:
    """What the commits after our last apply mean.

    `newer`: version and actions of each, newest first. `applied`: the version of our last apply, `position` that it
    set; None where its commit is no longer in the log.

    A RESTORE to our last apply or a later version undoes only what others did since. After any other RESTORE, a
    REPLACE TABLE, or a commit that sets an earlier position, rows and position no longer match.
    """
    changes: list[ForeignChange] = []
    newest_seen = None
    for version, actions in newer:
        if newest_seen is not None and version > newest_seen:
            continue  # a later RESTORE undid it
        info: Mapping[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        operation = str(info.get("operation", "")).upper()
        if operation == "RESTORE":
            target = _restored_version(info)
            if target is None or applied is None or target < applied:
                return Verdict(_described(version, info))
            newest_seen = target
        elif operation.startswith(_REPLACES) or _moves_back(actions, position):
            return Verdict(_described(version, info))
        elif info.get("engineInfo") != OURS and any(_changes_data(action) for action in actions):
            changes.append(_described(version, info))
    return Verdict(None, tuple(reversed(changes)))


def _restored_version(info: Mapping[str, Any]) -> int | None:
    """The version that a RESTORE went back to; None where only a time was given."""
    given = info.get("operationParameters")
    try:
        return int(str(given["version"]))  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        return None


def _moves_back(actions: Sequence[Action], position: Position | None) -> bool:
    """True for a commit that sets an earlier position than our last apply."""
    after = position_of_commit(actions)
    if after is None or position is None:
        return False
    return (after.generation, after.number) < (position.generation, position.number)


def _changes_data(action: Action) -> bool:
    return any((action.get(kind) or {}).get("dataChange") is True for kind in ("add", "remove"))


def _described(version: int, info: Mapping[str, Any]) -> ForeignChange:
    moment = info.get("timestamp")
    time = ""
    if isinstance(moment, int | float) and 0 <= moment < 1e14:
        time = datetime.datetime.fromtimestamp(moment / 1000, datetime.timezone.utc).isoformat(timespec="seconds")
    writer = str(info.get("engineInfo") or info.get("clientVersion") or "an unknown writer")
    return ForeignChange(version, str(info.get("operation") or "a commit without a name"), writer, time)
