"""Which files of a table folder come next (contract section 4): names, numbers, gaps, incomplete files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow.parquet as pq

from lakemirror.errors import TableError
from lakemirror.landing_zone.metadata import TableMetadata, Warned
from lakemirror.landing_zone.zone import TableFolder
from lakemirror.storage import Entry


@dataclass(frozen=True)
class ChangeFile:
    """A complete change file: its place, its number, and its footer, which is read once."""

    entry: Entry
    number: int
    footer: pq.FileMetaData


@dataclass(frozen=True)
class Waiting:
    """What a table waits for, and since when (seconds since the epoch)."""

    what: str
    since: float


@dataclass
class Pending:
    """The files to apply next, in order, and why they end where they end.

    `files` may be applied now. `behind`: how many lie behind a gap or behind an incomplete or a bad file. `waiting`:
    the gap or the incomplete file. `error`: the bad file that follows `files`, if any: files before it are applied.
    """

    files: list[ChangeFile] = field(default_factory=list)
    behind: int = 0
    waiting: Waiting | None = None
    error: TableError | None = None
    warnings: list[Warned] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.files) + self.behind


def pending(
    folder: TableFolder,
    metadata: TableMetadata,
    after: int,
    *,
    now: float,
    settle: float,
    read_footer: Callable[[Entry], pq.FileMetaData],
    retired: frozenset[int] = frozenset(),
    limit: int | None = None,
) -> Pending:
    """The complete, contiguous change files with numbers above `after`.

    `after` is the position (0: nothing applied yet). `now` and `settle` in seconds. `read_footer` raises
    `pyarrow.ArrowInvalid` (or any ArrowException) for a file that does not parse and FileNotFoundError for one that is
    gone. `limit` bounds how many footers are read; `behind` counts the rest.
    """
    raise NotImplementedError


def count_pending(folder: TableFolder, metadata: TableMetadata, after: int) -> int:
    """How many change files have numbers above `after`, from the listing alone: no footer is read."""
    raise NotImplementedError
