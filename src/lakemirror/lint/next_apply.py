"""What the engine would refuse at its next apply, from its own look and its own plan; it reads no row."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow.parquet as pq

from lakemirror.delta.log import read_snapshot
from lakemirror.delta.schema import Column, from_delta
from lakemirror.errors import Bad, LakemirrorError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.delimited import read_columns
from lakemirror.landing_zone.findings import Finding, from_error
from lakemirror.landing_zone.zone import TableFolder
from lakemirror.landing_zone.zoneless import Zones
from lakemirror.mirror.history.begin import metadata_to_begin
from lakemirror.mirror.history.history_tables import HistoryTable
from lakemirror.mirror.history.target_plans import plan_targets
from lakemirror.mirror.observe import View
from lakemirror.mirror.planner import Base
from lakemirror.mirror.schema_evolution import zone_reader
from lakemirror.mirror.step import Replicator
from lakemirror.mirror.table_rules import allowed, rules_of
from lakemirror.settings.settings import Settings
from lakemirror.storage import Storage


def look(storage: Storage, folder: TableFolder, settings: Settings) -> View:
    """What the engine sees of the folder and of its Delta tables."""
    return Replicator(storage, folder.name, allowed(settings, str(folder.name))).observe(folder, mark=False)


def check_next(
    storage: Storage, view: View, settings: Settings, reported_already: Sequence[Finding]
) -> Iterator[Finding]:
    """The error with which the look at the folder and at its Delta tables ends, or the plan, unless it is reported."""
    of = view.files.folder.name
    target, settings = of.target(settings.default_schema), allowed(settings, str(of))
    error = view.error or _refused(storage, view, target, settings)
    if error is not None and error.code not in [finding.code for finding in reported_already]:
        yield replace(from_error(error, str(of)), table=str(of), file=error.file or of.folder)


def _refused(storage: Storage, view: View, target: str, settings: Settings) -> LakemirrorError | None:
    """The error with which a history table begins, or the plan for the next files ends, such as options that the tables
    cannot follow."""

    def base(of: str, table: HistoryTable | None = None) -> Base:
        return Base(storage.uri(of), storage.uri(), read_snapshot(storage.uri(of)), history=table)

    files, rules = view.pending.files, rules_of(settings)
    bases = base(target), lambda table: base(table.target, table)
    try:
        for table in view.to_begin:
            metadata_to_begin(view, bases[0], bases[1](table), rules)
        if not files:
            return None
        if view.files.metadata.is_text:
            files = (_head(storage, files[0], view, zone_reader(_columns(bases[0]), rules.columns.zoneless)),)
        plan_targets(view, files, bases, rules, storage.uri, frozenset())
    except Bad:  # each file is checked by itself
        return None
    except LakemirrorError as error:
        return error
    return None


def _columns(base: Base) -> Sequence[Column]:
    return from_delta(base.snapshot.metadata.value["schemaString"]) if base.snapshot is not None else ()


def _head(storage: Storage, file: ChangeFile, view: View, zone: Callable[[str], str]) -> ChangeFile:
    """Delimited text as the Parquet file that it becomes, without a row."""
    with storage.open(file.entry.path) as source:
        metadata, zones = view.files.metadata, Zones(zone)
        rows = next(read_columns(source, file=file.entry.path, metadata=metadata, undeclared="string", zones=zones))
    sink = io.BytesIO()
    pq.write_table(rows.schema.empty_table(), sink)
    return replace(file, footer=pq.read_metadata(sink))
