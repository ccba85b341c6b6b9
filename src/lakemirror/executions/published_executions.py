"""What a publisher records where the database is behind a service: lines in a file of the landing zone.

    a capture into https://… ─▶ `_executions/NAME.jsonl`, written again with a line more ─▶ the engine appends new ones

The file has the form of a spool: its head names the spool and the number of its first line, so that a line is in the
table once, however often the file is read. Only the publisher writes it, and only its latest lines stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from lakemirror.errors import LakemirrorError
from lakemirror.executions.execution import CAPTURE, Execution, parse_line
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.storage import Storage
from lakemirror.storage.spool_file import complete_lines, head_line, head_of

if TYPE_CHECKING:
    from lakemirror.publisher.folders.table_folder import TableFolder

PUBLISHED = f"{LANDING_ZONE}/_executions"
_KEPT = 200  # lines of a file
_MOST_BYTES = 1 << 20
_MOST_FILES = 64


def publish_execution(folder: TableFolder, execution: Execution) -> None:
    """Adds a line to the file of a capture. `folder`: `PUBLISHED` of the database. OSError, LakemirrorError."""
    from lakemirror.publisher.folders.table_folder import write_whole

    name, data = f"{execution.table}.jsonl", b""
    with suppress(FileNotFoundError), folder.open(name) as file:
        data = file.read(_MOST_BYTES)
    spool, first, begin = head_of(data)
    lines = [*complete_lines(data, begin), execution.line()]
    left = lines[-_KEPT:]
    content = head_line(spool, first + len(lines) - len(left)) + b"".join(line + b"\n" for line in left)
    with folder.room():
        write_whole(folder, name, content)


def published_executions(storage: Storage) -> Iterator[tuple[str, int, list[Execution | None]]]:
    """Of each file its spool, the number of its first line, and what its lines say; None for a line that says other
    than how a capture went: whoever may publish has no more to say of the database."""
    with suppress(LakemirrorError, FileNotFoundError):
        entries = storage.list(PUBLISHED).files
        for entry in sorted(entries, key=lambda each: each.path)[:_MOST_FILES]:
            with suppress(LakemirrorError, OSError):
                data = storage.read(entry.path, _MOST_BYTES)
                spool, first, begin = head_of(data)
                found = [parse_line(line) for line in complete_lines(data, begin)]
                if begin:
                    yield f"published-{spool}", first, [_of_capture(each) for each in found]


def _of_capture(found: Execution | None) -> Execution | None:
    return found if found is not None and found.operation == CAPTURE else None


__all__ = ["PUBLISHED", "publish_execution", "published_executions"]
