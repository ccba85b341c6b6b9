"""Who carries the row work of a batch: the protocol that all engines share, and the choice among them (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lakemirror.engines.row_work import Action, RewriteWork, RowResult, RowWork

AUTO, LOCAL, SPARK = "auto", "local", "spark"
ENGINES = (AUTO, LOCAL, SPARK)

FROM_BYTES = 16 << 30
"""Decoded bytes of a batch from which `auto` starts Spark where nobody has given one."""

FROM_BYTES_WITH_SPARK = 64 << 20
"""The same where a session, a master or a Connect address is given: Spark runs already, or is to be used."""


class Engine(Protocol):
    """Carries units of work to kernels. Commits nothing.

    Errors: LakemirrorError `concurrent-commit` where a file is gone, `storage-unavailable`, `table-unreadable`,
    `file-too-large`.
    """

    @property
    def name(self) -> str: ...

    def run(self, work: RowWork) -> RowResult:
        """The net effect of a batch (contract section 3), its files written."""

    def rewrite(self, work: RewriteWork) -> Sequence[Action]:
        """The `add` actions of the files that hold the living rows of `work.files`."""


@dataclass(frozen=True)
class Choice:
    """The engine of a batch, and why."""

    engine: str
    reason: str


@dataclass(frozen=True)
class Preference:
    """What the settings say about engines. `engine`: one of `ENGINES`. `spark_given`: a session, a master or a
    Connect address is given. `from_bytes`: decoded bytes of a batch from which `auto` uses Spark; 0: the default.
    """

    engine: str = AUTO
    spark_given: bool = False
    from_bytes: int = 0

    @property
    def threshold(self) -> int:
        return self.from_bytes or (FROM_BYTES_WITH_SPARK if self.spark_given else FROM_BYTES)


def choose(preference: Preference, bytes: int, *, needs_spark: str = "") -> Choice:
    """The engine for a batch of so many decoded bytes. `needs_spark`: why only Spark can do it; empty where both can.

    With `engine` = `local` the choice is local also where Spark is needed: the caller refuses that.
    """
    if preference.engine == LOCAL:
        return Choice(LOCAL, "the setting `engine` says local")
    if needs_spark:
        return Choice(SPARK, needs_spark)
    if preference.engine == SPARK:
        return Choice(SPARK, "the setting `engine` says spark")
    if bytes >= preference.threshold:
        return Choice(SPARK, f"the batch has {_size(bytes)}, Spark is used from {_size(preference.threshold)}")
    return Choice(LOCAL, f"the batch has {_size(bytes)}, less than {_size(preference.threshold)}")


def _size(bytes: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes >= size:
            return f"{bytes / size:.1f} {unit}"
    return f"{bytes} bytes"
