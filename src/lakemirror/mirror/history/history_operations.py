"""Acts of an operator on the history tables of one table folder: build, drop."""

from __future__ import annotations

import contextlib

from lakemirror.errors import LakemirrorError, counted
from lakemirror.landing_zone.table_options import LATE
from lakemirror.landing_zone.zone import TableName, check_name
from lakemirror.mirror.dropped_tables import DROPPED, move_to_dropped
from lakemirror.mirror.history.build import build
from lakemirror.mirror.operations import Outcome, folder_named, note
from lakemirror.mirror.table_log import read_table_log
from lakemirror.mirror.table_places import tables_in
from lakemirror.settings.settings import Settings
from lakemirror.storage import Storage


def drop_history(storage: Storage, table: str, default_schema: str = "") -> Outcome:
    """Moves the history tables of a table folder to `Files/_DroppedTables`, also where the folder is gone.

    Where the option is still there, they begin again. Error: `table-unknown` if the table has none.
    """
    schema, _, short = table.rpartition(".")
    name = TableName(schema, short)
    check_name(name)
    above = name.target(default_schema).rpartition("/")[0]
    found = [path for path in tables_in(storage, above) if _history_of(storage, path) == str(name)]
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


def _history_of(storage: Storage, path: str) -> str:
    """The table folder of a history table; empty for another table."""
    with contextlib.suppress(LakemirrorError):
        found = read_table_log(storage.uri(path))
        mode, _, folder = found.history.partition(":") if found is not None else ("", "", "")
        return folder if mode != LATE else ""
    return ""
