"""Which commits of the log use a feature, when they may be deleted, and the deletion.

A drop with TRUNCATE HISTORY waits until every commit that uses the feature is older than the retention (24 hours, or
`delta.dropFeatureTruncateHistory.retentionDuration`). Like Delta Spark, it goes by the commits' modification times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.checkpoint import interval_ms
from lakemirror.delta.log import Metadata, Snapshot, read_commit, read_snapshot, sidecars
from lakemirror.delta.log_folder import Checkpoint, Log, list_log
from lakemirror.errors import LakemirrorError
from lakemirror.features.usage import action_trace
from lakemirror.storage.durable import remove_file
from lakemirror.storage.place import Place, files_below, names_in, opened

RETENTION = "delta.dropFeatureTruncateHistory.retentionDuration"
PROTECTED = "delta.requireCheckpointProtectionBeforeVersion"
_DAY_MS = 86_400_000
_COMPACTED = re.compile(r"[0-9]{20}\.[0-9]{20}\.compacted\.json")
_TRACELESS = frozenset({"vacuumProtocolCheck", "geospatial", "geospatial-dev"})


@dataclass(frozen=True)
class Cut:
    """The checkpoint at which the history may begin, and from when on. `ready` None: at once."""

    checkpoint: int | None
    ready: datetime | None


def clean_since(snapshot: Snapshot, features: Iterable[str]) -> int:
    """The first version from which on neither a commit nor the table uses any of these features.

    If the newest version still uses one: the version after it. If none does: the oldest version of the log.
    """
    names = [name for name in features if name not in _TRACELESS]
    log = snapshot.log
    oldest = _oldest(log, snapshot.version)
    if not names:
        return oldest
    first = read_snapshot(snapshot.table, oldest)
    if first is None:
        raise AssertionError("a table that has just been read")
    dirty = {name: is_met_by_readers(name, first) for name in names}
    last = oldest if any(dirty.values()) else oldest - 1
    holds = {name: action_trace(name, {"metaData": dict(first.metadata.value)}) for name in names}
    if log.commits.get(oldest) and _traces(read_commit(log.commits[oldest]), names):
        last = oldest
    for version in range(oldest + 1, snapshot.version + 1):
        actions = read_commit(log.commits[version])
        for action in actions:
            if "metaData" in action:
                holds = {name: action_trace(name, action) for name in names}
        if _traces(actions, names) or any(holds.values()):
            last = version
    if any(is_met_by_readers(name, snapshot) for name in names):
        last = snapshot.version
    if "v2Checkpoint" in names:
        last = max([last, *(c.version for c in log.checkpoints if not is_plain(c))])
    return last + 1


def _oldest(log: Log, version: int) -> int:
    """The oldest version whose state can be replayed and from which every commit up to `version` is there."""
    start = version
    while start > 0 and start in log.commits and (start - 1) in log.commits:
        start -= 1
    if start == 0:
        return 0
    return min((c.version for c in log.checkpoints if c.version >= start - 1), default=start)


def _traces(actions: Iterable[dict[str, object]], names: list[str]) -> bool:
    return any(action_trace(name, action) for action in actions for name in names)


def is_met_by_readers(name: str, snapshot: Snapshot) -> bool:
    """True if the table's current state requires a reader to know the feature."""
    if action_trace(name, {"metaData": dict(snapshot.metadata.value)}):
        return True
    return name == "deletionVectors" and any(add.get("deletionVector") for add in snapshot.files.values())


def clean_checkpoints(snapshot: Snapshot, since: int) -> list[Checkpoint]:
    """The classic checkpoints from a version on, without actions of V2 checkpoints, oldest first."""
    return [c for c in snapshot.log.checkpoints if c.version >= since and is_plain(c)]


def is_plain(checkpoint: Checkpoint) -> bool:
    """True for a checkpoint that a reader without v2Checkpoint understands."""
    if checkpoint.kind == "v2":
        return False
    try:
        names = pq.read_schema(opened(checkpoint.files[0])).names
        if not {"checkpointMetadata", "sidecar"} & set(names):
            return True
        kept = [name for name in ("checkpointMetadata", "sidecar") if name in names]
        table = pq.read_table(opened(checkpoint.files[0]), columns=kept)
    except (OSError, ValueError):
        return False
    return all(table.column(name).null_count == table.num_rows for name in kept)


def retention(metadata: Metadata) -> timedelta:
    """How old history must be before a drop may cut it."""
    return timedelta(milliseconds=interval_ms(metadata.configuration.get(RETENTION, ""), _DAY_MS))


def cut(snapshot: Snapshot, features: Iterable[str], wait: timedelta) -> Cut:
    """Where and when the history can be cut so that nothing of these features is left in it.

    `checkpoint` None: there is no checkpoint yet from which the history could begin.
    """
    names = list(features)
    since = clean_since(snapshot, [name for name in names if name != "checkpointProtection"])
    if "checkpointProtection" in names:
        since = max(since, int(snapshot.metadata.configuration.get(PROTECTED, 0)))
    before = [version for version in snapshot.log.commits if version < since]
    if not before:
        return Cut(None, None)
    standing = clean_checkpoints(snapshot, since)
    if not standing:
        return Cut(None, _minute_after(snapshot.log, before, wait))
    begin = standing[0].version
    return Cut(begin, _minute_after(snapshot.log, [v for v in snapshot.log.commits if v < begin], wait))


def _minute_after(log: Log, versions: Iterable[int], wait: timedelta) -> datetime:
    """The first full minute at which all these commits are older than the retention."""
    newest = max(log.commits[version].stat().st_mtime for version in versions)
    moment = datetime.fromtimestamp(newest, timezone.utc) + wait
    if moment.second or moment.microsecond:
        moment = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
    return moment


def truncate(table: Place, at_least: int, wait: timedelta, now: datetime) -> int:
    """Deletes the history before the newest checkpoint that is older than the retention. Returns its new first version.

    The history begins at `at_least` or later. Commits are deleted before their checkpoints, the oldest first, so that
    the rest can be read at any time.
    """
    log = list_log(table)
    if log is None:
        return 0
    begin = at_least
    for checkpoint in log.checkpoints:
        older = [version for version in log.commits if version < checkpoint.version]
        if older and checkpoint.version > begin and is_plain(checkpoint) and _minute_after(log, older, wait) <= now:
            begin = checkpoint.version
    for version in sorted(version for version in log.commits if version < begin):
        remove_file(log.commits[version])
        remove_file(log.folder / f"{version:020}.crc")
    for checkpoint in log.checkpoints:
        if checkpoint.version < begin:
            for file in checkpoint.files:
                remove_file(file)
    for name, _ in names_in(log.folder):
        if _COMPACTED.fullmatch(name) and int(name[:20]) < begin:
            remove_file(log.folder / name)
    _remove_sidecars(log.folder, [c for c in log.checkpoints if c.version >= begin], (now - wait).timestamp())
    return begin


def _remove_sidecars(log: Place, standing: Iterable[Checkpoint], before: float) -> None:
    """Deletes side files that no checkpoint names, except young ones: their checkpoint may not be written yet."""
    try:
        kept = {path.name for checkpoint in standing for path in sidecars(log, checkpoint)}
    except (pa.ArrowException, OSError, LakemirrorError):
        return  # a damaged checkpoint does not say what it needs
    for name, modified in files_below(log / "_sidecars", lambda _: False):
        if name.endswith(".parquet") and name not in kept and modified <= before:
            remove_file(log / "_sidecars" / name)
