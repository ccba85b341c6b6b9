"""What a database still needs before it can be captured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakemirror.errors import TableError
from lakemirror.landing_zone.zone import TableName
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.source_tables import SourceTable


@dataclass(frozen=True)
class Need:
    """Something that is missing. `statement`: what gives it, run in the source, or a command line option. `table`: of
    which table, else of the whole source. `is_advice`: a capture runs without it.
    """

    what: str
    statement: str
    table: str = ""
    is_advice: bool = False


def unnamed(tables: Sequence[SourceTable], options: CaptureOptions, schema: str) -> Iterator[Need]:
    """What is missing where the options name no table. `schema`: what the source calls a schema."""
    if not tables:
        yield Need(f"no table is named by {', '.join(options.tables)}", f"--tables '{schema}.*' names others")


def of_table(table: SourceTable, folders: Mapping[tuple[str, str], TableName | TableError]) -> Iterator[Need]:
    """What one table needs. `folders`: of all tables, as `table_folders` gives them."""
    for problem in (table.problem, folders[table.id]):
        if isinstance(problem, TableError):
            yield Need(problem.message, (problem.hint or "").removeprefix("Run in the source: "), table.title)
