"""What the engine would refuse at its next apply, from its own look and its own plan; it reads no row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lakemirror.delta.log import read_snapshot
from lakemirror.errors import Bad, LakemirrorError
from lakemirror.landing_zone.findings import Finding, from_error
from lakemirror.landing_zone.zone import TableFolder
from lakemirror.mirror.history.history_tables import HistoryTable
from lakemirror.mirror.history.target_plans import plan_targets
from lakemirror.mirror.observe import View
from lakemirror.mirror.planner import Base
from lakemirror.mirror.step import Replicator
from lakemirror.mirror.table_rules import allowed, rules_of
from lakemirror.settings.settings import Settings
from lakemirror.storage import Storage


def check_next(
    storage: Storage, folder: TableFolder, settings: Settings, reported_already: Sequence[Finding]
) -> Iterator[Finding]:
    """The error with which the look at the folder and at its Delta tables ends, or the plan, unless it is reported."""
    target, settings = folder.name.target(settings.default_schema), allowed(settings, str(folder.name))
    if not storage.exists(f"{target}/_delta_log"):
        return
    view = Replicator(storage, folder.name, settings).observe(folder, mark=False)
    error = view.error or _refused(storage, view, target, settings)
    if error is not None and error.code not in [finding.code for finding in reported_already]:
        name = str(folder.name)
        yield replace(from_error(error, name), table=name, file=error.file or folder.name.folder)


def _refused(storage: Storage, view: View, target: str, settings: Settings) -> LakemirrorError | None:
    """The error with which the plan for the next files ends, such as options that the tables cannot follow."""

    def base(of: str, table: HistoryTable | None = None) -> Base:
        return Base(storage.uri(of), storage.uri(), read_snapshot(storage.uri(of)), history=table)

    files = view.pending.files
    if not files or view.files.metadata.file_format != "Parquet":
        return None
    bases = base(target), lambda table: base(table.target, table)
    try:
        plan_targets(view, files, bases, rules_of(settings), storage.uri, frozenset())
    except Bad:  # each file is checked by itself
        return None
    except LakemirrorError as error:
        return error
    return None
