"""An apply in this process, without Spark and without a JVM: the same one commit, put into the log by ourselves.

    snapshot from the log ─▶ where `work` says? ─▶ batch ─▶ guards ─▶ rows by Arrow ─▶ version + 1, if it is still free
                                                               └─▶ None: Spark's

No conflict is ever judged: a commit in between takes the version, ours is not made, and another look follows. That is
the whole of exactly-once here (`docs/decisions/024-commits-without-a-jvm.md`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lakemirror import failpoints
from lakemirror.delta.commit import put_commit
from lakemirror.delta.data_files import data_file
from lakemirror.delta.delta_at_work import without_delta
from lakemirror.delta.log import Action, Snapshot, read_snapshot
from lakemirror.delta.row_deletes import delete_rows
from lakemirror.delta.schema import Column, from_delta, is_widened
from lakemirror.delta.statistics import record_count
from lakemirror.engines.kernels import look_up as key_lookup
from lakemirror.engines.kernels.add_files import add_file, large_enough, unsupported_reason
from lakemirror.engines.row_work import BadRow, ChangeUnit, Target, TargetColumn
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.row_markers import INSERT, UPSERT
from lakemirror.replication import direct, table_commit
from lakemirror.replication.apply_work import Applied, Limits, Work
from lakemirror.replication.batch import Batch, BatchFile
from lakemirror.replication.data_skipping import touched_files
from lakemirror.replication.direct import unusual
from lakemirror.replication.position import current_position
from lakemirror.replication.table_log import read_table_log

_AT_ONCE = 4  # files that are read at the same time
_VECTORS = "deletionVectors"
_KNOWN = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"} | {
    "identityColumns", _VECTORS, "vacuumProtocolCheck",
}  # fmt: skip
"""Features whose use, if any, the guards see in a table's metadata."""
_SWITCHES = (
    "delta.enableChangeDataFeed",
    "delta.appendOnly",
    "delta.enableTypeWidening",
    "delta.compatibility.symlinkFormatManifest.enabled",
)

Outcome = tuple[Applied | None, TableError | None]


class DirectTable:
    """One Delta table that mirrors one table folder, in a local folder."""

    def __init__(self, path: str, *, trust_footers: bool = False) -> None:
        """`trust_footers`: files that become data files as they are are not read."""
        self._path = path
        self._trust_footers = trust_footers

    def apply(
        self,
        work: Work,
        files: Sequence[ChangeFile],
        path_of: Callable[[str], str],
        limits: Limits,
        trust_statistics: bool = True,
    ) -> Outcome | None:
        """Applies the longest run of `files` that can be one commit, as `MirroredTable.apply`; None: Spark has to.

        LakemirrorError `concurrent-commit` where the table is not where `work` says, or another commit was faster.
        """
        if work.replaces:
            return None
        with without_delta(self._path) as alone:
            if not alone:
                return None
        snapshot = read_snapshot(self._path)
        log = read_table_log(self._path, snapshot.version) if snapshot else None
        if log is not None:
            table_commit.check_not_restored(log, self._path)
        transactions = snapshot.transactions if snapshot else {}
        found = current_position({app: txn.version for app, txn in transactions.items()})
        table_commit.check_expected(work, found, self._path, exists=snapshot is not None)
        before = from_delta(snapshot.metadata.value["schemaString"]) if snapshot else ()
        batch, error = table_commit.next_of(work, files, before, limits, trust_statistics)
        if batch is None:
            return None, error
        old = dict(snapshot.metadata.value) if snapshot else {}
        new = table_commit.metadata(old, work, batch, work.detection)
        table_commit.check_appends(new, batch, self._path)
        if against(new, snapshot) is not None:
            return None
        failpoints.reach("apply.before-write")
        if snapshot is None:
            Path(self._path).mkdir(parents=True, exist_ok=True)
        try:
            rows = self._rows(snapshot, work, batch, before, new, path_of)
        except FileNotFoundError as failure:
            raise LakemirrorError("concurrent-commit", f"{self._path} has left its place") from failure
        if rows is None:
            return None
        detection = table_commit.recorded(work, batch, self._path)
        metadata = table_commit.metadata(old or new, work, batch, detection)
        state = table_commit.state_actions(snapshot, metadata)
        position = table_commit.new_position(work, batch)
        now = int(time.time() * 1000)
        state += [
            {"txn": {"appId": app, "version": number, "lastUpdated": now}}
            for app, number in table_commit.transactions(position, batch).items()
        ]
        manifest = table_commit.manifest(work, batch, detection)
        info = _info(snapshot, batch, manifest.to_json(), rows, now)
        failpoints.reach("apply.before-commit")
        version = put_commit(self._path, snapshot, [{"commitInfo": info}, *state, *rows])
        if version is None:
            return None
        failpoints.reach("apply.after-commit")
        return Applied(batch, position, manifest, version), error

    def _rows(
        self,
        snapshot: Snapshot | None,
        work: Work,
        batch: Batch,
        before: Sequence[Column],
        metadata: Mapping[str, Any],
        path_of: Callable[[str], str],
    ) -> list[Action] | None:
        """The actions of the batch's net effect, its files written; None where Spark has to do it."""
        if not batch.rows:
            return []
        added = self._added_files(batch, metadata, path_of)
        if added is not None:
            return [{"add": add} for add in added]
        if direct.against(batch, metadata, work.key_columns) is not None:
            return None
        default = UPSERT if work.upsert_by_default else INSERT
        folded = direct.fold(batch, work.key_columns, default, path_of)
        if folded is None:
            return None
        actions: list[Action] = []
        if snapshot is not None and folded.clears.num_rows:
            files = touched_files(snapshot, before, batch)
            found = None if files is None else key_lookup.positions(self._path, files, folded.clears)
            if files is None or found is None:
                return None
            try:
                actions = delete_rows(self._path, {name: files[name] for name in found}, found)
            except (OSError, ValueError, KeyError):
                return None
        return actions + [{"add": add} for add in direct.write(self._path, batch.columns, folded.survivors)]

    def _added_files(
        self, batch: Batch, metadata: Mapping[str, Any], path_of: Callable[[str], str]
    ) -> list[Action] | None:
        """The files of the batch as data files, None where one of them has to be written again."""
        sizes = [item.file.entry.size for item in batch.files]
        if not batch.append_only or unusual(metadata) is not None or not large_enough(sizes):
            return None
        target = Target(self._path, tuple(TargetColumn(each.name, each.name, each.type) for each in batch.columns))
        units = [(unit_of(item, path_of), item.file.footer) for item in batch.files]
        trust = self._trust_footers
        if any(unsupported_reason(unit, target, footer, trust_footer=trust) for unit, footer in units):
            return None
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            begun = [pool.submit(add_file, unit, target, footer, trust_footer=trust) for unit, footer in units]
        failure = next((each.exception() for each in begun if each.exception() is not None), None)
        found = [each.result() for each in begun if each.exception() is None]
        adds = [each for each in found if isinstance(each, dict)]
        if len(adds) == len(units):
            return adds
        for add in adds:
            data_file(self._path, add["path"]).unlink(missing_ok=True)
        if failure is not None:
            raise failure
        bad = next((each for each in found if isinstance(each, BadRow)), None)
        if bad is not None:
            raise TableError(bad.code, bad.message, file=bad.file)
        return None


def unit_of(item: BatchFile, path_of: Callable[[str], str]) -> ChangeUnit:
    """A change file of a batch as the kernels take it."""
    file = item.file
    return ChangeUnit(
        path_of(file.path), file.entry.path, file.number, item.columns, file.footer.num_rows, file.entry.size,
        file.constants,
    )  # fmt: skip


def against(metadata: Mapping[str, Any], snapshot: Snapshot | None) -> str | None:
    """None where the next commit of a table with this metadata can be made here, else the reason against it.

    `snapshot`: the table as it is, None where it does not exist.
    """
    configuration = metadata["configuration"]
    for key in _SWITCHES:
        if configuration.get(key, "").lower() == "true":
            return f"the table has {key}"
    if configuration.get("delta.universalFormat.enabledFormats"):
        return "the table is kept in other formats, too"
    if is_widened(metadata["schemaString"]):
        return "the table has widened columns"
    if snapshot is not None:
        protocol = snapshot.protocol
        if protocol.reader > 3 or protocol.writer > 7:
            return f"the table's protocol is ({protocol.reader}, {protocol.writer})"
        unknown = ((protocol.reader_features or frozenset()) | (protocol.writer_features or frozenset())) - _KNOWN
        if unknown:
            return f"the table has {', '.join(sorted(unknown))}"
        vectors = configuration.get("delta.enableDeletionVectors", "").lower() == "true"
        if vectors and _VECTORS not in (protocol.writer_features or ()):
            return "the table's protocol has no deletion vectors"
    return unusual(metadata)


def _info(snapshot: Snapshot | None, batch: Batch, manifest: str, rows: Sequence[Action], now: int) -> dict[str, Any]:
    """The commit's entry in the table's history."""
    added = [action["add"] for action in rows if "add" in action]
    metrics = {
        "numFiles": len(added),
        "numRemovedFiles": len(rows) - len(added),
        "numOutputBytes": sum(add["size"] for add in added if not add.get("deletionVector")),
        "numOutputRows": sum(record_count(add) or 0 for add in added if not add.get("deletionVector")),
    }
    append = batch.append_only and snapshot is not None
    return {
        "timestamp": now,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append" if append else "Overwrite"},
        **({"readVersion": snapshot.version} if snapshot else {}),
        "isolationLevel": "Serializable",
        "isBlindAppend": append,
        "operationMetrics": {name: str(value) for name, value in metrics.items()},
        "userMetadata": manifest,
        "engineInfo": "lakemirror",
        "txnId": str(uuid.uuid4()),
    }
