"""The steps of a drop that rewrite data files, by lakemirror's kernels: for tables in object stores.

    files with traces ─▶ their living rows ─▶ new files, without vectors, with the columns' own names and types
                                            └▶ one commit without a change of data

Delta Spark makes these steps for local tables (`spark_route.py`). In a store it would need the jars and options of that
store, and on S3 a log store that keeps the condition of a put.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakemirror.delta.commit import commit, removed
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.data_files import data_file
from lakemirror.delta.log import Action, Snapshot
from lakemirror.engines.kernels.add_files import legacy_calendar
from lakemirror.engines.kernels.living_rows import living_rows
from lakemirror.engines.kernels.look_up import read_footer
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.rewritable import unsupported_reason
from lakemirror.engines.row_work import Target
from lakemirror.engines.target import target_of
from lakemirror.errors import LakemirrorError
from lakemirror.storage.place import Place
from lakemirror.table_features.cleaning import without_mapping
from lakemirror.table_features.log_commit import check_writable, existing
from lakemirror.table_features.usage import files_with_old_types


def rewrite(table: Place, feature: str) -> None:
    """Rewrites every data file that holds traces of columnMapping, deletionVectors or typeWidening, in one commit.

    The table keeps its rows. `concurrent-commit` where another commit came first, `features-unsafe` and
    `table-feature-unsupported` for a table that is not written here, `table-unreadable`, `storage-unavailable`; then
    the table is as it was.
    """
    snapshot = existing(table)
    check_writable(snapshot)
    if (reason := unsupported_reason(snapshot)) is not None:
        message = f"{table}: its files are not rewritten here: {reason}"
        raise LakemirrorError("table-feature-unsupported", message, table=str(table))
    files = _with_traces(snapshot, feature)
    metadata = without_mapping(snapshot.metadata) if feature == "columnMapping" else None
    source = target_of(str(table), snapshot.metadata.value)
    target = target_of(str(table), metadata["metaData"] if metadata else snapshot.metadata.value)
    if not files and metadata is None:
        return
    adds: list[Action] = []
    try:
        for add in files:
            adds += write_rows(_rows(add, source), target)
    except BaseException as error:
        for add in adds:
            data_file(table, add["path"]).unlink(missing_ok=True)
        if isinstance(error, pa.ArrowException | ValueError | FileNotFoundError):
            message = f"{table}: a data file cannot be rewritten: {error}"
            raise LakemirrorError("table-unreadable", message, table=str(table)) from error
        raise
    commit(table, snapshot, _actions(snapshot, files, adds, metadata, feature), keep_log=False, recount=True)


def _with_traces(snapshot: Snapshot, feature: str) -> Sequence[Mapping[str, Any]]:
    if feature == "columnMapping":
        return list(snapshot.files.values())
    if feature == "deletionVectors":
        return [add for add in snapshot.files.values() if add.get("deletionVector")]
    return files_with_old_types(snapshot)


def _rows(add: Mapping[str, Any], source: Target) -> Iterator[pa.RecordBatch]:
    if legacy_calendar(read_footer(dict(add), source)):
        raise ValueError(f"{add['path']} counts days by the legacy calendar")
    for rows in living_rows(dict(add), source):
        yield from rows.to_batches()


def _actions(
    snapshot: Snapshot,
    files: Sequence[Mapping[str, Any]],
    adds: Sequence[Action],
    metadata: Action | None,
    feature: str,
) -> list[Action]:
    now = int(time.time() * 1000)
    operation = "REMOVE COLUMN MAPPING" if feature == "columnMapping" else "REORG"
    metrics = {"numAddedFiles": len(adds), "numRemovedFiles": len(files)}
    info = commit_info(
        snapshot, operation, {"applyPurge": feature == "deletionVectors"}, metrics=metrics,
        isolation="SnapshotIsolation", now=now,
    )  # fmt: skip
    actions: list[Action] = [{"commitInfo": info}, *([metadata] if metadata else [])]
    actions += [{"remove": removed(add, now, data_change=False)} for add in files]
    return actions + [{"add": {**add, "dataChange": False}} for add in adds]


__all__ = ["rewrite"]
