"""Landing zones for tests: in memory as a listing shows them, or as files on disk."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, settings
from tests.rounds import rounds

from lakemirror.errors import Rejected
from lakemirror.landing_zone.change_file import AppliedFiles, ChangeFile, Readiness, TableFiles, Waiting, ignored
from lakemirror.landing_zone.findings import Warned
from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.landing_zone.pending import already_applied, pending
from lakemirror.landing_zone.zone import LANDING_ZONE, TableFolder, TableName
from lakemirror.storage import Entry, LocalStorage

ORDERS = TableName("", "orders")
SECOND = 1_000_000_000

# for property tests on machines that are busy with other things
patient = settings(deadline=None, max_examples=rounds(75, 200), suppress_health_check=[HealthCheck.too_slow])


def parquet(table: pa.Table | None = None, **options: Any) -> bytes:
    """A Parquet file; by default one row of one column."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": [1]}) if table is None else table, buffer, **options)
    return buffer.getvalue()


FOOTER = pq.read_metadata(io.BytesIO(parquet()))


def file_name(number: int, extension: str = "parquet") -> str:
    return f"{number:020}.{extension}"


def entry(name: str | int, *, size: int = 100, modified: float = 1000.0, below: str = "") -> Entry:
    """A file of the orders folder; a number stands for its change file."""
    name = file_name(name) if isinstance(name, int) else name
    return Entry(f"{ORDERS.folder}/{below}{name}", size, int(modified * SECOND))


def folder(*names: str | int | Entry, processed: Iterable[str | int] = ()) -> TableFolder:
    """The orders folder with these files in it."""
    files = [each if isinstance(each, Entry) else entry(each) for each in names]
    return TableFolder(ORDERS, files, processed=[entry(each, below="_ProcessedFiles/") for each in processed])


def write(root: Path, path: str, data: bytes | str = b"") -> Path:
    """A file below the landing zone."""
    target = root / LANDING_ZONE / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data.encode() if isinstance(data, str) else data)
    return target


def storage_with(root: Path, *paths: str) -> LocalStorage:
    """A database in which these files lie, each a small Parquet file; a path that ends in / is an empty folder."""
    (root / LANDING_ZONE).mkdir(parents=True, exist_ok=True)
    for path in paths:
        if path.endswith("/"):
            (root / LANDING_ZONE / path).mkdir(parents=True, exist_ok=True)
        else:
            write(root, path, parquet())
    return LocalStorage(root)


@dataclass
class Look:
    """What a look at a table folder finds: `Pending`, and the warnings about its files."""

    files: list[ChangeFile]
    behind: int
    waiting: Waiting | None
    error: Rejected | None
    warnings: list[Warned]
    oldest: float | None
    count: int


def look_at(
    files: TableFiles,
    applied: AppliedFiles,
    readiness: Readiness,
    limit: int | None = None,
    etags: dict[str, str] | None = None,
) -> Look:
    found = pending(files, applied, readiness, limit)
    warnings = already_applied(files, applied, etags or {}) + ignored(files)
    return Look(list(found.files), found.behind, found.waiting, found.rejected, warnings, found.oldest, found.count)


def seen(zone: TableFolder, metadata: TableMetadata | None = None) -> TableFiles:
    """The files of a folder, told apart by its metadata."""
    return TableFiles(zone, metadata or TableMetadata())


def sequence(count: int) -> AppliedFiles:
    """A folder that is one sequence, applied up to that number."""
    return AppliedFiles(count)
