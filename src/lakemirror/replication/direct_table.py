"""An apply in this process, without Spark and without a JVM: the same one commit, put into the log by ourselves.

    snapshot from the log ─▶ where `work` says? ─▶ batch ─▶ guards ─▶ rows by Arrow ─▶ version + 1, if it is still free
                                                               └─▶ None: Spark's

No conflict is ever judged: a commit in between takes the version, ours is not made, and another look follows. That is
the whole of exactly-once here (`docs/decisions/024-commits-without-a-jvm.md`).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakemirror import failpoints
from lakemirror.delta.commit import put_commit, removed
from lakemirror.delta.deletion_vectors import bitmap, read_vector, write_vectors
from lakemirror.delta.delta_at_work import without_delta
from lakemirror.delta.log import Action, Protocol, Snapshot, read_snapshot
from lakemirror.delta.schema import Column, from_delta, is_widened
from lakemirror.engines.kernels.add_files import adopt, adoptable, unusual
from lakemirror.engines.kernels.look_up import Sought, find, read_footer, row_groups
from lakemirror.engines.row_work import Target, TargetColumn
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.row_markers import INSERT, UPSERT
from lakemirror.replication import direct, table_commit
from lakemirror.replication.apply_work import Applied, Limits, Work
from lakemirror.replication.batch import Batch
from lakemirror.replication.data_skipping import touched_files
from lakemirror.replication.position import current_position

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
        transactions = snapshot.transactions if snapshot else {}
        found = current_position({app: txn.version for app, txn in transactions.items()})
        table_commit.check_expected(work, found, self._path, exists=snapshot is not None)
        before = from_delta(snapshot.metadata.value["schemaString"]) if snapshot else ()
        batch, error = table_commit.next_of(work, files, before, limits, trust_statistics)
        if batch is None:
            return None, error
        old = dict(snapshot.metadata.value) if snapshot else {}
        new = table_commit.metadata(old, work, batch, work.detection)
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
        state: list[Action] = [] if metadata == old else [{"metaData": metadata}]
        if snapshot is None:
            state.append(protocol_of(metadata).to_action())
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
        if adoptable(batch, metadata) is None:
            adds = adopt(batch, self._path, path_of, trust_footers=self._trust_footers)
            return [{"add": add} for add in adds]
        if direct.against(batch, metadata, work.key_columns) is not None:
            return None
        default = UPSERT if work.upsert_by_default else INSERT
        folded = direct.fold(batch, work.key_columns, default, path_of)
        if folded is None:
            return None
        actions: list[Action] = []
        if snapshot is not None and folded.clears.num_rows:
            files = touched_files(snapshot, before, batch)
            found = None if files is None else _positions(self._path, batch, files, folded.clears)
            if files is None or found is None:
                return None
            try:
                actions = delete_rows(Path(self._path), {name: files[name] for name in found}, found)
            except (OSError, ValueError, KeyError):
                return None
        return actions + [{"add": add} for add in direct.write(self._path, batch.columns, folded.survivors)]


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


def protocol_of(metadata: Mapping[str, Any]) -> Protocol:
    """The protocol of a new table, as Delta gives it."""
    if metadata["configuration"].get("delta.enableDeletionVectors", "").lower() == "true":
        return Protocol(3, 7, frozenset({_VECTORS}), frozenset({_VECTORS, "appendOnly", "invariants"}))
    return Protocol(1, 2)


def delete_rows(table: Path, files: Mapping[str, Action], rows: Mapping[str, pa.Array]) -> list[Action]:
    """The actions that delete rows, given by their numbers, of these files (`add` actions): each is removed and added
    again with a vector that holds its old one, or only removed where no row is left. Writes the vectors.

    ValueError where an old vector cannot be read here.
    """
    changed = []
    for name, numbers in rows.items():
        add = files[name]
        gone = bitmap(numbers)
        old = add.get("deletionVector")
        if old:
            gone |= read_vector(table, old)
        if len(gone) > (old["cardinality"] if old else 0):
            changed.append((add, gone))
    left = [(add, gone) for add, gone in changed if len(gone) < json.loads(add["stats"])["numRecords"]]
    vectors = iter(write_vectors(table, [gone for _, gone in left]) if left else ())
    now = int(time.time() * 1000)
    kept = {id(add) for add, _ in left}
    actions: list[Action] = []
    for add, _ in changed:
        actions.append({"remove": removed(add, now, data_change=True)})
        if id(add) in kept:
            stats = json.dumps({**json.loads(add["stats"]), "tightBounds": False}, separators=(",", ":"))
            actions.append({"add": {**add, "dataChange": True, "stats": stats, "deletionVector": next(vectors)}})
    return actions


def _info(snapshot: Snapshot | None, batch: Batch, manifest: str, rows: Sequence[Action], now: int) -> dict[str, Any]:
    """The commit's entry in the table's history."""
    added = [action["add"] for action in rows if "add" in action]
    metrics = {
        "numFiles": len(added),
        "numRemovedFiles": len(rows) - len(added),
        "numOutputBytes": sum(add["size"] for add in added if not add.get("deletionVector")),
        "numOutputRows": sum(json.loads(add["stats"])["numRecords"] for add in added if not add.get("deletionVector")),
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


def _positions(path: str, batch: Batch, files: Mapping[str, Action], keys: pa.Table) -> dict[str, pa.Array] | None:
    columns = tuple(TargetColumn(column.name, column.name, column.type) for column in batch.columns)
    target, sought = Target(path, columns, key_columns=tuple(keys.column_names)), Sought(keys)
    found: dict[str, pa.Array] = {}
    try:
        for name, add in files.items():
            footer, version = read_footer(add, target), (add.get("size"), add.get("modificationTime"))
            groups = row_groups(add, target, sought, footer)
            rows = [find(group, target, sought, version=version, footer=footer) for group in groups]
            if any(len(each) for each in rows):
                found[name] = pa.concat_arrays(rows)
    except (pa.ArrowException, OSError, ValueError, LookupError):
        return None
    return found
