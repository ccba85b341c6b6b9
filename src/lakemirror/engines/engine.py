"""Who carries the row work of a batch: the protocol that all engines share, and the choice among them (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lakemirror.engines.row_work import Action, RewriteWork, RowResult, RowWork


class Engine(Protocol):
    """Carries units of work to kernels. Commits nothing.

    Errors: LakemirrorError `concurrent-commit` where a file is gone, `storage-unavailable`, `file-too-large`.
    """

    name: str

    def run(self, work: RowWork) -> RowResult:
        """The net effect of a batch (contract section 3), its files written."""

    def rewrite(self, work: RewriteWork) -> Sequence[Action]:
        """The `add` actions of the files that hold the living rows of `work.files`."""
