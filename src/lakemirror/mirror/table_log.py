"""The state of a mirrored table, read from its Delta log without a JVM."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lakemirror.delta.log import Action, latest_commits, read_snapshot
from lakemirror.delta.log_folder import Log
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.mirror.applied_record import DETECTION_PROPERTY
from lakemirror.mirror.foreign_commits import Verdict, judge
from lakemirror.mirror.position import Manifest, Position, current_position, parse_manifest, sequences
from lakemirror.mirror.stored_columns import KEYS_PROPERTY, missing_key_columns
from lakemirror.storage.place import capabilities_of

IDENTITY_PROPERTY = "lakemirror.identity"
_FORGETS = "delta.setTransactionRetentionDuration"  # checkpoints of other writers leave older `txn` actions out


@dataclass(frozen=True)
class TableLog:
    """What the log says about a mirrored table. `position` None: the table is not ours. `manifest` None: its commit is
    gone from the log.

    `key_columns` as last declared; empty where none were. `detection`: the record of how files are found. `foreign`:
    what other writers did since our last apply. `version`: the table's, -1 unknown. `identity`: the folder that it was
    mirrored from, from the table's property, where the position is lost. `applied_at`: when the newest apply was
    committed, in seconds since the epoch; 0 unknown. `missing_keys`: key columns that another writer renamed or dropped
    since (`stored_columns.py`). `reshaped_after`: the version of our last apply, if a later commit changed the table's
    metadata; else -1.
    """

    position: Position | None
    manifest: Manifest | None
    key_columns: tuple[str, ...] = ()
    detection: str = ""
    foreign: Verdict = field(default_factory=Verdict)
    version: int = -1
    identity: str = ""
    applied_at: float = 0.0
    missing_keys: Mapping[str, str] = field(default_factory=dict)
    reshaped_after: int = -1


def read_table_log(table: str, version: int | None = None, known: Log | None = None) -> TableLog | None:
    """The log of the Delta table in that folder; None where there is no table. LakemirrorError `table-unreadable`.

    With `version` as it was at that version of the table, else the newest. `known`: the log as it was listed before.

    Usually one file is read, the newest commit: an apply's commit holds position and manifest, and newer commits of
    other writers are skipped.
    """
    if not capabilities_of(table).waits and not _has_log(Path(table) / "_delta_log"):
        return None
    newest = -1
    newer: list[tuple[int, list[Action]]] = []
    for number, actions in latest_commits(table, known=known):
        newest = max(newest, number)
        if version is not None and number > version:
            continue
        position = current_position({a["txn"]["appId"]: a["txn"]["version"] for a in actions if "txn" in a})
        if position is not None:
            manifest = _manifest(actions)
            if manifest is None:
                break
            foreign = judge(newer, number, position)
            updated = max(a["txn"].get("lastUpdated") or 0 for a in actions if "txn" in a) / 1000
            reshaped = next((a["metaData"] for _, others in newer for a in others if "metaData" in a), None)
            return TableLog(
                position, manifest, manifest.key_columns, manifest.detection, foreign, newest, applied_at=updated,
                missing_keys=missing_key_columns(reshaped) if reshaped is not None else {},
                reshaped_after=number if reshaped is not None else -1,
            )  # fmt: skip
        newer.append((number, actions))
    else:
        if known is not None and not known.is_whole:
            return read_table_log(table, version)
    snapshot = read_snapshot(table, version, known)
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
        missing_keys=missing_key_columns(snapshot.metadata.value),
    )  # fmt: skip


def read_sequences(table: str, position: Position, known: Log | None = None) -> dict[str, int]:
    """The last number of each partition folder of the table. `known`: the log as it was listed before.

    TableError `table-feature-unsupported` where other writers may have dropped some of them: files would be applied
    twice.
    """
    snapshot = read_snapshot(table, known=known)
    if snapshot is None:
        return {}
    if _FORGETS in snapshot.metadata.configuration:
        raise TableError(
            "table-feature-unsupported", f"{table}: the property {_FORGETS} forgets positions of partitions"
        )
    return sequences({app: t.version for app, t in snapshot.transactions.items()}, position)


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


def _manifest(actions: Sequence[Action]) -> Manifest | None:
    for action in actions:
        if "commitInfo" in action:
            return parse_manifest(action["commitInfo"].get("userMetadata"))
    return None
