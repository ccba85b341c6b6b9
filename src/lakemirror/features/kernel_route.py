"""The steps of a drop that rewrite data files, by lakemirror's kernels: without Spark, in one commit.

    files with traces ─▶ their living rows ─▶ new files, without vectors, with the columns' own names and types
                                            └▶ one commit without a change of data
                                               another commit was faster: only what it changed is rewritten again

`route.py` says for which tables.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from lakemirror import failpoints
from lakemirror.delta.commit import Overwritten, commit, named_files
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.data_files import removed
from lakemirror.delta.log import Action, Snapshot
from lakemirror.engines.kernels.rewrite import rewrite_file
from lakemirror.engines.row_work import Target
from lakemirror.engines.target import target_of
from lakemirror.errors import LakemirrorError
from lakemirror.features.cleaning import without_mapping
from lakemirror.features.log_commit import check_writable, existing, newest_commit
from lakemirror.features.route import route_of
from lakemirror.features.usage import files_with_old_types
from lakemirror.storage.place import Place, place

_AT_ONCE = 4  # files that are rewritten at the same time
_ATTEMPTS = 100  # commits of others that may come first, while none of them changes the schema or the protocol

Key = tuple[str, str]
"""A data file with its deletion vector, as `Snapshot.files` names it."""


def rewrite(table: Place, feature: str) -> None:
    """Rewrites every data file that holds traces of columnMapping, deletionVectors or typeWidening, in one commit.

    The table keeps its rows. Where other commits come first, files that they add or change are rewritten too.
    `concurrent-commit` where one of them changes the schema, the properties or the protocol, `features-unsafe` and
    `table-feature-unsupported` for a table that is not written here, `table-unreadable`, `storage-unavailable`. After
    an error the table is as it was, and the new files are removed.
    """
    first = snapshot = existing(table)
    written: dict[Key, list[Action]] = {}
    is_certain = True  # that no commit names the new files
    try:
        for _ in range(_ATTEMPTS):
            check_writable(snapshot)
            files = files_with_traces(snapshot, feature)
            for key in written.keys() - files.keys():  # another commit has removed or changed the file
                _remove(table, written.pop(key))
            new = {key: add for key, add in files.items() if key not in written}
            _check_route(snapshot, list(new.values()), is_first=snapshot is first)
            metadata = without_mapping(snapshot.metadata) if feature == "columnMapping" else None
            written |= _rewritten(snapshot, new, metadata)
            if not files and metadata is None:
                return
            actions = _actions(snapshot, files, written, metadata, feature)
            failpoints.reach("features.before-commit")
            is_certain = False
            try:
                commit(table, snapshot, actions, keep_log=False, recount=True, keep_written=True)
                return
            except Overwritten:
                raise
            except LakemirrorError as error:
                if error.code != "concurrent-commit":
                    raise
                is_certain = True
                snapshot = existing(table)
                if (first.protocol, first.metadata.value) != (snapshot.protocol, snapshot.metadata.value):
                    raise
        message = f"{table}: {newest_commit(snapshot)} is the last of {_ATTEMPTS} commits that came first"
        raise LakemirrorError("concurrent-commit", message, table=str(table))
    except BaseException:
        if is_certain:
            _remove(table, (add for adds in written.values() for add in adds))
        raise


def files_with_traces(snapshot: Snapshot, feature: str) -> dict[Key, Action]:
    """The data files that must be rewritten before the feature can leave the protocol."""
    if feature == "columnMapping":
        return dict(snapshot.files)
    if feature == "deletionVectors":
        return {key: add for key, add in snapshot.files.items() if add.get("deletionVector")}
    old = {id(add) for add in files_with_old_types(snapshot)}
    return {key: add for key, add in snapshot.files.items() if id(add) in old}


def _check_route(snapshot: Snapshot, files: Sequence[Action], *, is_first: bool) -> None:
    """Raises where the kernels cannot rewrite a file: `concurrent-commit` where another commit has just added it."""
    route = route_of(snapshot, files)
    if route.by != "kernels":
        code = "table-feature-unsupported" if is_first else "concurrent-commit"
        message = f"{snapshot.table}: the kernels cannot rewrite its files: {route.reason}"
        raise LakemirrorError(code, message, table=str(snapshot.table))


def _rewritten(snapshot: Snapshot, files: Mapping[Key, Action], metadata: Action | None) -> dict[Key, list[Action]]:
    """The content of the new files' `add` actions, by the replaced file. After an error, no new file is left."""
    source = target_of(str(snapshot.table), snapshot.metadata.value)
    target = target_of(str(snapshot.table), metadata["metaData"]) if metadata else source
    with ThreadPoolExecutor(max(1, min(_AT_ONCE, os.cpu_count() or 1, len(files)))) as pool:
        begun = {key: pool.submit(_rewritten_file, add, source, target) for key, add in files.items()}
        try:
            return {key: future.result() for key, future in begun.items()}
        except BaseException as error:
            pool.shutdown(cancel_futures=True)
            done = [each for each in begun.values() if not each.cancelled() and each.exception() is None]
            _remove(snapshot.table, (add for each in done for add in each.result()))
            if isinstance(error, pa.ArrowException | ValueError | FileNotFoundError):
                message = f"{snapshot.table}: a data file cannot be rewritten: {error}"
                raise LakemirrorError("table-unreadable", message, table=str(snapshot.table)) from error
            raise


def _rewritten_file(add: Action, source: Target, target: Target) -> list[Action]:
    adds = rewrite_file(add, source, target)
    try:
        failpoints.reach("features.between-files")
    except OSError:
        _remove(place(source.path), adds)
        raise
    return adds


def _remove(table: Place, adds: Iterable[Action]) -> None:
    """Removes new files. One that cannot be removed now is removed by a later vacuum."""
    for add in adds:
        for path in named_files(table, add):
            with contextlib.suppress(OSError, LakemirrorError):
                path.unlink(missing_ok=True)


def _actions(
    snapshot: Snapshot,
    files: Mapping[Key, Action],
    written: Mapping[Key, list[Action]],
    metadata: Action | None,
    feature: str,
) -> list[Action]:
    adds = [add for each in written.values() for add in each]
    now = int(time.time() * 1000)
    operation = "REMOVE COLUMN MAPPING" if feature == "columnMapping" else "REORG"
    metrics = {"numAddedFiles": len(adds), "numRemovedFiles": len(files)}
    info = commit_info(
        snapshot, operation, {"applyPurge": feature == "deletionVectors"}, metrics=metrics,
        isolation="SnapshotIsolation",
    )  # fmt: skip
    actions: list[Action] = [{"commitInfo": info}, *([metadata] if metadata else [])]
    actions += [{"remove": removed(add, now, data_change=False)} for add in files.values()]
    return actions + [{"add": {**add, "dataChange": False}} for add in adds]
