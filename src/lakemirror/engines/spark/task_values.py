"""What the driver gives to Spark tasks, and what tasks give back: small values that can be pickled."""

from __future__ import annotations

from dataclasses import dataclass

from lakemirror.engines.row_work import Action, ChangeUnit
from lakemirror.errors import LakemirrorError


@dataclass(frozen=True)
class Failed:
    """A LakemirrorError of a task."""

    code: str
    message: str
    file: str | None = None

    def error(self) -> LakemirrorError:
        return LakemirrorError(self.code, self.message, file=self.file)


@dataclass(frozen=True)
class Units:
    """Change files for one task, and which of their rows are inserted.

    `begin`: the position of the first row among all changes of the batch. `dropped`: packed positions, counted from
    `begin`, of the rows that are not inserted; None: all are. `firsts`: the same of rows that are updates in the change
    data feed. `to_feed`: the rows are written to the change data feed.
    """

    begin: int
    units: tuple[ChangeUnit, ...]
    dropped: bytes | None = None
    firsts: bytes | None = None
    to_feed: bool = False


@dataclass(frozen=True)
class DataFiles:
    """Data files for one task: number among the candidates, `add` action, and two packed sets of row numbers."""

    files: tuple[tuple[int, Action, bytes, bytes], ...]
    part: int = 0
    """For a part of a large file: every `parts`-th row group, beginning with number `part`."""
    parts: int = 1


@dataclass(frozen=True)
class FoundRows:
    """The deleted rows of the candidate with this number, packed.

    `updated`: those whose key is inserted again. `had`: the keys of the living ones, as an Arrow stream. Both only for
    the change data feed.
    """

    number: int
    rows: bytes
    updated: bytes = b""
    had: bytes | None = None


@dataclass(frozen=True)
class FoldedKeys:
    """The net effect of some buckets.

    `dropped`: packed positions of the changes that are not inserted. `firsts`: of those that are updates in the change
    data feed. `found`: the deleted rows of the candidates. `living`: True if a living row is deleted.
    """

    dropped: bytes
    firsts: bytes
    found: tuple[FoundRows, ...]
    living: bool


@dataclass(frozen=True)
class Feed:
    """What look-ups need for the change data feed: keys that are deleted and inserted again, as an Arrow stream."""

    replaced: bytes


__all__ = ["DataFiles", "Failed", "Feed", "FoldedKeys", "FoundRows", "Units"]
