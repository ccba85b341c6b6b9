"""The interface of all engines, and the choice of the engine for a batch. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from lakemirror.engines.row_work import Action, RewriteWork, RowResult, RowWork

AUTO, LOCAL, SPARK = "auto", "local", "spark"
ENGINES = (AUTO, LOCAL, SPARK)

FROM_BYTES = 16 << 30
"""From this many decoded bytes in a batch, `auto` starts Spark although none was configured."""

FROM_BYTES_WITH_SPARK = 128 << 20
"""The same limit if a session, a master or a Connect address is configured.

On a warm session of the same machine, Spark takes 3 times as long as the local engine for batches of 18 to 49 MiB, and
less than twice as long for 122 MiB.
"""


class Engine(Protocol):
    """Runs kernels on units of work. Commits nothing.

    Errors: `concurrent-commit` if a file does not exist any more, `storage-unavailable`, `table-unreadable`,
    `file-too-large`.
    """

    @property
    def name(self) -> str: ...

    def run(self, work: RowWork) -> RowResult:
        """Computes the net effect of a batch (contract section 3) and writes its files."""

    def rewrite(self, work: RewriteWork) -> Sequence[Action]:
        """Writes the live rows of `work.files` to new files. Returns their `add` actions."""


class Choice(NamedTuple):
    """The engine of a batch, and why."""

    engine: str
    reason: str


class Preference(NamedTuple):
    """What the settings say about engines.

    `engine`: one of `ENGINES`. `spark_given`: a session, a master or a Connect address is configured. `from_bytes`:
    `auto` uses Spark for a batch of at least so many decoded bytes; 0: the default.
    """

    engine: str = AUTO
    spark_given: bool = False
    from_bytes: int = 0

    @property
    def threshold(self) -> int:
        return self.from_bytes or (FROM_BYTES_WITH_SPARK if self.spark_given else FROM_BYTES)


def choose(preference: Preference, bytes: int, *, needs_spark: str = "") -> Choice:
    """The engine for a batch of so many decoded bytes. `needs_spark`: why only Spark can do it; empty if both can.

    With `engine` = `local`, the choice is local even if Spark is needed; the caller then refuses the batch.
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
