"""What a publish would make, without making it: columns, types and the reason of each. Nothing is written.

All rows are read, so that a value which a publish would refuse is refused here too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakemirror.publisher.change_writer import with_given_markers
from lakemirror.publisher.plain_names import plain_name
from lakemirror.publisher.sources.file_options import FileOptions
from lakemirror.publisher.sources.files import MODES, known_types, read_file
from lakemirror.publisher.sources.sql_databases import connected
from lakemirror.publisher.sources.text_types import Choice

if TYPE_CHECKING:
    from lakemirror.publisher.landing_table import LandingTable


@dataclass(frozen=True)
class Preview:
    """The columns that a publish of one input would make, and how many rows."""

    source: str
    columns: tuple[Choice, ...]
    rows: int


def preview_files(
    table: LandingTable,
    sources: Iterable[str | os.PathLike[str]],
    mode: str | None = None,
    *,
    marker: str | None = None,
    options: FileOptions | None = None,
) -> list[Preview]:
    """What `publish_files` would make of each file; it takes the same and raises the same for the input."""
    known, previews = known_types(table), []
    for source in sources:
        choices: list[Choice] = []
        reader = read_file(source, known, options, choices.append)
        previews.append(_previewed(table, str(source), reader, choices, mode, marker))
        known = known.after(pa.schema([(each.column, each.kind) for each in previews[-1].columns]))
    return previews


def preview_sql(table: LandingTable, url: str, query: str, mode: str | None = None) -> Preview:
    """What `publish_sql` would make of a query."""
    query = query.strip().rstrip(";")
    with connected(url, table.zoneless) as database:
        columns = database.columns(query, {**table.types_before(), **table.columns})
        for column in columns:
            if column.warning:
                table.warn(column.warning)
        with database.rows(query, columns) as rows:
            return _previewed(table, url, rows, [], mode or ("snapshot" if table.keys else None), None)


def _previewed(
    table: LandingTable, source: str, rows: pa.RecordBatchReader, choices: list[Choice], mode: str | None,
    marker: str | None,
) -> Preview:  # fmt: skip
    if marker is None and table.mode(mode, MODES) not in ("load", "insert"):
        table.require_keys()
    given = {field.name: field.type for field in rows.schema}
    taken = table.take(rows, marker)
    kinds = {field.name: field.type for field in taken.schema}
    if marker is not None:
        taken = with_given_markers(taken, marker, str(table.name))
        kinds.pop(marker)
    count = sum(batch.num_rows for batch in taken)
    told = {(choice.column if choice.column in given else plain_name(choice.column)): choice for choice in choices}
    columns = [
        replace(told.get(name) or Choice(name, kind, "as the input has it"), column=name, kind=kinds.get(name, kind))
        for name, kind in given.items()
        if name in kinds or pa.types.is_null(kind)
    ]
    return Preview(source, tuple(columns), count)
