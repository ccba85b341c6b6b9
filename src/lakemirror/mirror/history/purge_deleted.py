"""Removes the deleted rows that a table with soft deletes keeps, in one commit (history.md, section 1).

Where the options say other deletes than soft, the columns `__deleted` and `__deleted_at` go, too: rows to come would
have NULL in them. Then the table has no mode of deletes any more, and the next apply takes the declared one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror import failpoints
from lakemirror.delta.commit import commit, remove_written
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.data_files import removed
from lakemirror.delta.log import Action, Snapshot, read_snapshot
from lakemirror.delta.schema import from_delta, to_delta
from lakemirror.engines.kernels.live_rows import live_rows, undeleted_rows
from lakemirror.engines.kernels.write import CHANGE_TYPE, write_change_feed, write_rows
from lakemirror.engines.row_work import Target
from lakemirror.engines.target import target_of, unsupported_reason
from lakemirror.errors import TableError
from lakemirror.landing_zone.reserved_columns import DELETED
from lakemirror.landing_zone.table_options import SOFT
from lakemirror.mirror.history.row_options import DELETES_PROPERTY, OWN_NAMES, with_earlier
from lakemirror.mirror.position import current_position
from lakemirror.mirror.schema_evolution import STORED_PROPERTY
from lakemirror.storage import place


class Purged(NamedTuple):
    """`rows`: deleted rows that were removed. `files`: data files that were written again. `version`: of the commit."""

    rows: int
    files: int
    version: int


def purge_deleted(path: str, shown: str, *, stays_soft: bool) -> Purged | None:
    """Makes the commit; None for a table without soft deletes. Rows are read and written in this process, part by part.

    `shown`: the table in messages. `stays_soft`: the columns stay. Errors: `concurrent-commit` if another commit came
    first: nothing has changed; `table-feature-unsupported` for a table whose files cannot be written again.
    """
    snapshot = read_snapshot(path)
    if snapshot is None or snapshot.metadata.configuration.get(DELETES_PROPERTY) != SOFT:
        return None
    reason = unsupported_reason(snapshot)
    if reason is not None:
        message = f"{shown}: deleted rows cannot be removed, because the data files cannot be written again: {reason}"
        raise TableError("table-feature-unsupported", message, table=shown)
    before = snapshot.metadata.value
    metadata = _purged(snapshot, before if stays_soft else _without_own(before))
    old, new = target_of(path, before), replace(target_of(path, metadata), version=snapshot.version + 1)
    actions: list[Action] = []
    rows = files = 0
    now = int(time.time() * 1000)
    try:
        for add in snapshot.files.values():
            gone = sum(pc.sum(_is_dead(part)).as_py() or 0 for part in live_rows(add, old))
            if stays_soft and not gone:
                continue
            adds = write_rows(_living(add, old, new), new)
            actions.append({"remove": removed(add, now, data_change=gone > 0)})
            actions += [{"add": {**each, "dataChange": gone > 0}} for each in adds]
            if gone and new.feed:
                actions += [{"cdc": change} for change in write_change_feed(_gone(add, old, new), new)]
            rows, files = rows + gone, files + 1
        failpoints.reach("purge.before-commit")
    except BaseException:
        remove_written(place(path), snapshot, actions)
        raise
    if not actions and stays_soft:
        return Purged(0, 0, snapshot.version)
    first: list[Action] = [{"commitInfo": _info(snapshot, rows, files)}, {"metaData": metadata}]
    return Purged(rows, files, commit(path, snapshot, [*first, *actions]))


def _info(snapshot: Snapshot, rows: int, files: int) -> dict[str, Any]:
    metrics = {"numDeletedRows": rows, "numRemovedFiles": files}
    return commit_info(snapshot, "DELETE", {"predicate": f'["{DELETED}"]'}, metrics=metrics)


def _living(add: Action, old: Target, new: Target) -> Iterator[pa.RecordBatch]:
    for part in undeleted_rows(add, old):
        yield from part.select([column.name for column in new.columns]).to_batches()


def _gone(add: Action, old: Target, new: Target) -> Iterator[pa.RecordBatch]:
    """The deleted rows as the change data feed has them."""
    for part in live_rows(add, old):
        chosen = part.filter(_is_dead(part)).select([column.name for column in new.columns])
        yield from chosen.append_column(CHANGE_TYPE, pa.repeat(pa.scalar("delete"), chosen.num_rows)).to_batches()


def _is_dead(rows: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(rows[DELETED], False)


def _purged(snapshot: Snapshot, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The `metaData` action with the record of this act, for `verify`."""
    position = current_position({app: txn.version for app, txn in snapshot.transactions.items()})
    record = with_earlier(snapshot.metadata.configuration, position.number if position else 0, purged=True)
    return {**metadata, "configuration": {**metadata["configuration"], **record}}


def _without_own(before: Mapping[str, Any]) -> dict[str, Any]:
    """The `metaData` action without our columns and without the record of soft deletes."""
    columns = [each for each in from_delta(before["schemaString"]) if each.name not in OWN_NAMES]
    configuration = {key: value for key, value in before["configuration"].items() if key != DELETES_PROPERTY}
    if STORED_PROPERTY in configuration:
        stored = json.loads(configuration[STORED_PROPERTY])
        kept = {name: value for name, value in stored.items() if name not in OWN_NAMES}
        configuration[STORED_PROPERTY] = json.dumps(kept)
    schema = to_delta(columns, before["schemaString"])
    return {**before, "schemaString": schema, "configuration": configuration}
