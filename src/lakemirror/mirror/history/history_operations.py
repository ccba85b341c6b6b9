"""Acts of an operator on the history tables of one table folder: build, drop."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from lakemirror.errors import LakemirrorError, counted
from lakemirror.landing_zone.table_options import LATE
from lakemirror.landing_zone.zone import TableName, check_name, read_metadata, scan
from lakemirror.mirror.dropped_tables import DROPPED, move_to_dropped
from lakemirror.mirror.history.build import build
from lakemirror.mirror.history.history_tables import named_tables
from lakemirror.mirror.operations import Outcome, folder_named, note
from lakemirror.mirror.table_log import read_table_log
from lakemirror.mirror.table_places import tables_in
from lakemirror.settings.settings import Settings
from lakemirror.storage import Storage


def drop_history(storage: Storage, table: str, settings: Settings) -> Outcome:
    """Moves the history tables of a table folder to `Files/_DroppedTables`, also where the folder is gone.

    Where the option is still there, they begin again. Error: `table-unknown` if the table has none.
    """
    schema, _, short = table.rpartition(".")
    name = TableName(schema, short)
    check_name(name)
    target = name.target(settings.default_schema)
    above = target.rpartition("/")[0]
    declared = _declared(storage, name, target, settings)
    found = [path for path in tables_in(storage, above) if _is_history_of(storage, path, name, declared)]
    if not found:
        raise LakemirrorError("table-unknown", f"{name} has no history table in {above}", table=table)
    for path in found:
        move_to_dropped(storage, path)
    text = f"{name}: {', '.join(found)} moved to {DROPPED}"
    return note(storage, "history drop", name, Outcome(text))


def build_history(storage: Storage, table: str, settings: Settings) -> Outcome:
    """Makes the history tables again from the applied files. Errors as in `build.build_history`."""
    name = folder_named(storage, table).name
    done = build(storage, name, settings)
    text = f"{name}: {', '.join(done.targets)} made again from {counted(done.files, 'change file')}"
    return note(storage, "history build", name, Outcome(text, files=done.files))


def _is_history_of(storage: Storage, path: str, name: TableName, declared: Sequence[str]) -> bool:
    """True for a history table of the table folder. One that cannot be read is, if it is among those declared."""
    try:
        found = read_table_log(storage.uri(path))
    except LakemirrorError as error:
        return error.code == "table-unreadable" and path in declared
    mode, _, folder = found.history.partition(":") if found is not None else ("", "", "")
    return mode != LATE and folder == str(name)


def _declared(storage: Storage, name: TableName, target: str, settings: Settings) -> list[str]:
    """The history tables that the table folder declares; none where it is gone, or its options cannot be read."""
    with contextlib.suppress(LakemirrorError, OSError):
        folder = scan(storage).tables.get(name)
        if folder is not None:
            named = named_tables(name, target, read_metadata(storage, folder, settings.tables))
            return [each.target for each in named if each.options.mode != LATE]
    return []
