"""The demo's tables beside the figures that the source alone gives. Reads the tables without Spark and Delta's jars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from flights import figures, show
from flights.source import TABLES, FlightsSource
from lakemirror.delta.log import read_snapshot
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.target import target_of
from lakemirror.errors import LakemirrorError
from lakemirror.storage import Place


@dataclass(frozen=True)
class Comparison:
    """What the tables of a database hold, and what they must hold.

    `carriers` and `months`: the rows of `figures.query(…, group)`. `names`: of airlines, by carrier.
    """

    wanted: figures.Expected
    counts: Mapping[str, int]
    carriers: Sequence[Sequence[Any]]
    months: Sequence[Sequence[Any]]
    names: Mapping[str, str]

    @cached_property
    def wrong(self) -> list[str]:
        """One sentence for each figure that is not as expected."""
        return figures.differences(self.wanted, self.counts, self.carriers, self.months)

    def is_right(self, table: str) -> bool:
        """True where the table holds what it must."""
        return self.counts[table] == self.wanted.rows[table] and not (table == "flights" and self.wrong)

    def print(self, console: Console, summary: str) -> bool:
        """Prints charts, the summary and the verdict; True where every figure is right."""
        console.print(show.delays(self.months))
        console.print(show.delays(self.carriers, self.names))
        console.print(summary)
        for line in self.wrong:
            console.print(f"WRONG: {line}", style="bold red")
        if not self.wrong:
            console.print("Every figure is as computed from the source.", style="green")
        return not self.wrong


def compared(database: Place, source: FlightsSource, days: int | None) -> Comparison:
    """The tables of a database, wherever it is, beside the source. `days`: those of the year that were published."""
    tables = {name: _rows(database / "Tables" / name) for name in TABLES}
    airlines, flights = tables["airlines"], tables["flights"]
    return Comparison(
        figures.expected(source.data, days),
        {name: table.num_rows for name, table in tables.items()},
        _figures(flights, "carrier"),
        _figures(flights, "month"),
        dict(zip(airlines["carrier"].to_pylist(), airlines["name"].to_pylist(), strict=True)),
    )


def _rows(path: Place) -> pa.Table:
    """The rows of a Delta table."""
    snapshot = read_snapshot(path)
    if snapshot is None:
        raise LakemirrorError("internal", f"{path.name}: there is no table")
    target = target_of(str(path), snapshot.metadata.value)
    return pa.concat_tables([rows for add in snapshot.files.values() for rows in live_rows(add, target)])


def _figures(flights: pa.Table, group: str) -> list[tuple[Any, ...]]:
    """The rows of `figures.query(…, group)`."""
    wanted = [(group, "count"), ("arr_delay", "count"), *((name, "sum") for name in figures.SUMS)]
    found = flights.group_by(group).aggregate(wanted).sort_by(group)
    names = [group, *(f"{column}_{kind}" for column, kind in wanted)]
    columns = [found[name] if at == 0 else pc.fill_null(found[name], 0) for at, name in enumerate(names)]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


__all__ = ["Comparison", "compared"]
