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


__all__ = ["Observer"]
