"""Switches soft deletes on in a table that has rows: a commit of its own before the next apply (history.md, section 1).

The columns `__deleted` and `__deleted_at` are added, and the data files are written again with false and NULL in them:
a row without a value would be neither deleted nor living in `WHERE NOT __deleted`. The rows are the same, so the commit
says that no data changed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakemirror import failpoints
from lakemirror.delta.commit import commit, remove_written
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.data_files import removed
from lakemirror.delta.log import Action, Snapshot
from lakemirror.delta.protocol import MAPPING, protocol_of
from lakemirror.delta.schema import from_delta, to_delta, with_mapping
from lakemirror.engines.engine import Engine, choose
from lakemirror.engines.row_work import RewriteWork
from lakemirror.engines.target import target_of, unsupported_reason
from lakemirror.errors import TableError
from lakemirror.landing_zone.reserved_columns import DELETED
from lakemirror.landing_zone.table_options import SOFT
from lakemirror.mirror.history.history_tables import HistoryTable
from lakemirror.mirror.history.row_options import (
    DELETES_PROPERTY,
    OPTIONS_PROPERTY,
    OWN_COLUMNS,
    check_none_added,
    options_kept,
    with_earlier,
)
from lakemirror.mirror.observe import View
from lakemirror.mirror.planner import HIGHEST_ID, Base
from lakemirror.mirror.schema_evolution import stored_names
from lakemirror.mirror.table_rules import TableRules
from lakemirror.storage import place

_AT_ONCE = 1 << 30  # bytes of data files that are written again together
_FILE = 256 << 20  # bytes of a new file, about


def are_to_begin(view: View, base: Base) -> bool:
    """True if the table has rows, and deletes become soft with the next apply."""
    if view.files.metadata.options.deletes != SOFT or base.snapshot is None or view.is_recreated:
        return False
    before = base.snapshot.metadata.value
    is_soft = before["configuration"].get(DELETES_PROPERTY) == SOFT and DELETED in stored_names(before)
    return bool(base.snapshot.files) and not is_soft


def begin(
    view: View,
    base: Base,
    history_base: Callable[[HistoryTable], Base],
    engine: Callable[[str], Engine],
    rules: TableRules,
) -> None:
    """Makes the commit. `history_base`: gives a history table. LakemirrorError `concurrent-commit` if another one came
    first; TableError `table-feature-unsupported` for a table whose files cannot be written again, and where a history
    table cannot follow options that were declared with the soft deletes: then all of them can be taken back."""
    snapshot = base.snapshot
    assert snapshot is not None
    from lakemirror.mirror.history.begin import metadata_to_begin  # few tables have a history

    for table in view.history:
        metadata_to_begin(view, base, history_base(table), rules)
    reason = unsupported_reason(snapshot)
    if reason is not None:
        message = f"{base.shown}: deletes cannot become soft, because the data files cannot be written again: {reason}"
        raise TableError("table-feature-unsupported", message, table=base.shown)
    metadata = _with_own(snapshot.metadata.value, base.shown, view.position)
    target = target_of(base.path, metadata, view.files.metadata.key_columns)
    columns = (replace(each, default="false") if each.name == DELETED else each for each in target.columns)
    target = replace(target, columns=tuple(columns), version=snapshot.version + 1)
    size = sum(int(add["size"]) for add in snapshot.files.values())
    chosen = engine(choose(rules.preference, size).engine)
    now = int(time.time() * 1000)
    actions: list[Action] = []
    try:
        for files in _portions(snapshot):
            into = max(1, sum(int(add["size"]) for add in files) // _FILE)
            adds = chosen.rewrite(RewriteWork(target, tuple(files), into))
            actions += [{"remove": removed(add, now, data_change=False)} for add in files]
            actions += [{"add": {**add, "dataChange": False}} for add in adds]
        failpoints.reach("soft-deletes.before-commit")
    except BaseException:
        remove_written(place(base.path), snapshot, actions)
        raise
    protocol = protocol_of(metadata, snapshot.protocol)
    info = commit_info(snapshot, "ADD COLUMNS", {"columns": [column.name for column in OWN_COLUMNS]})
    first: list[Action] = [{"commitInfo": info}, {"metaData": metadata}]
    if protocol != snapshot.protocol:
        first.append(protocol.to_action())
    commit(base.path, snapshot, [*first, *actions], durability=rules.durability)


def _with_own(before: Mapping[str, Any], path: str, position: int) -> dict[str, Any]:
    """The `metaData` action with our columns. Errors as of `check_none_added`."""
    check_none_added(before, path)
    columns = from_delta(before["schemaString"])
    kept = before["configuration"]
    configuration = {**kept, **with_earlier(kept, position), DELETES_PROPERTY: SOFT}
    configuration[OPTIONS_PROPERTY] = json.dumps({**options_kept(kept), "deletes": SOFT})
    schema = to_delta((*columns, *OWN_COLUMNS), before["schemaString"])
    if configuration.get(MAPPING, "none") != "none":
        names = [each.name for each in columns]
        schema, highest = with_mapping(schema, int(configuration.get(HIGHEST_ID, "0")), names, str(before["id"]))
        configuration[HIGHEST_ID] = str(highest)
    return {**before, "schemaString": schema, "configuration": configuration}


def _portions(snapshot: Snapshot) -> Iterator[Sequence[Action]]:
    """The data files, so many together as are written again at once."""
    files: list[Action] = []
    size = 0
    for add in snapshot.files.values():
        if files and size + int(add["size"]) > _AT_ONCE:
            yield files
            files, size = [], 0
        files.append(add)
        size += int(add["size"])
    yield files
