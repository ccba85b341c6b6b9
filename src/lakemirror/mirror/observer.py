"""What a scheduler reports to."""

from __future__ import annotations

from typing import Protocol

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror.apply import Applied


class Observer(Protocol):
    """Receives events of a scheduler; called from several threads."""

    def applied(self, name: TableName, applied: Applied) -> None: ...
    def failed(self, name: TableName, error: LakemirrorError) -> None: ...
    def dropped(self, target: str) -> None: ...


class Maintained(Protocol):
    """Told of work on a Delta table that changes no row: the operation, the table's place, seconds, how many files."""

    def __call__(self, operation: str, target: str, seconds: float, rows: int, text: str = "") -> None: ...


def nobody(operation: str, target: str, seconds: float, rows: int, text: str = "") -> None:
    """Nobody is told of maintenance."""
