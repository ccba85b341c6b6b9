"""The demo's tables and chart in a terminal, from plain Python rows; prints nothing by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True)
class MirroredTable:
    """One line of `mirrored_tables`: what the table holds, and what it took to get there."""

    name: str
    rows: int
    files: int
    changes: int
    seconds: float
    ok: bool = True


def in_all(counts: Mapping[str, int], seconds: float) -> str:
    """One sentence: the rows of all tables, and when they were there."""
    return f"{sum(counts.values()):,} rows in {len(counts)} tables, {seconds:.1f} s after the first file"


def mirrored_tables(tables: Iterable[MirroredTable]) -> Table:
    """A table of tables with their rates; a table that is not as expected is marked."""
    shown = Table(box=box.SIMPLE_HEAD, title="Mirrored tables", title_justify="left")
    shown.add_column("table")
    for heading in ("rows", "files", "changes", "seconds", "changes/s"):
        shown.add_column(heading, justify="right")
    shown.add_column("as the source")
    for table in tables:
        rate = f"{table.changes / table.seconds:,.0f}" if table.seconds > 0 else "–"
        mark = Text("yes", "green") if table.ok else Text("no", "bold red")
        shown.add_row(
            table.name, f"{table.rows:,}", f"{table.files:,}", f"{table.changes:,}", f"{table.seconds:.1f}", rate, mark
        )
    return shown


def engines(commits: Mapping[str, Mapping[str, int]]) -> Table:
    """How many applies each engine did, and why it was chosen."""
    shown = Table(box=box.SIMPLE_HEAD, title="Who did the row work", title_justify="left")
    shown.add_column("engine")
    shown.add_column("applies", justify="right")
    shown.add_column("why")
    for engine, reasons in sorted(commits.items()):
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1])[:3]:
            shown.add_row(engine or "none", f"{count:,}", reason or "no rows to work on")
    return shown


def jobs(steps: Mapping[str, tuple[int, int, float]]) -> Table:
    """Spark's jobs by step: how many, with how many units of work, and the seconds that they took."""
    shown = Table(box=box.SIMPLE_HEAD, title="Spark jobs", title_justify="left")
    shown.add_column("step")
    for heading in ("jobs", "tasks", "seconds"):
        shown.add_column(heading, justify="right")
    for step, (count, units, seconds) in sorted(steps.items(), key=lambda item: -item[1][2]):
        shown.add_row(step, f"{count:,}", f"{units:,}", f"{seconds:.1f}")
    return shown


def delays(rows: Iterable[Sequence[object]], names: Mapping[str, str] | None = None, width: int = 16) -> Group:
    """Flights and mean arrival delay per month or carrier, with bars.

    `rows` are those of `figures.query(…, "month")` or `"carrier"`: group, flights, arrived, distance, air time, sum of
    departure delays, sum of arrival delays. `names` gives carriers their full names. `width`: of the longest bar.
    """
    lines = [_delay(row) for row in rows]
    months = all(isinstance(line.group, int) for line in lines)
    shown = Table(box=box.SIMPLE_HEAD)
    shown.add_column("month" if months else "carrier", no_wrap=True, max_width=18)
    shown.add_column("flights", justify="right", no_wrap=True)
    shown.add_column("", no_wrap=True)
    shown.add_column("mean delay", justify="right", no_wrap=True)
    shown.add_column("", no_wrap=True)
    most = max((line.flights for line in lines), default=1)
    longest = max((abs(line.minutes) for line in lines if line.minutes is not None), default=1.0)
    for line in lines:
        late = line.minutes is not None and line.minutes > 0
        shown.add_row(
            _group_name(line.group, names or {}),
            f"{line.flights:,}",
            Text(bar(line.flights, most, width // 2), "blue"),
            "–" if line.minutes is None else f"{line.minutes:+.1f} min",
            Text(bar(abs(line.minutes or 0), longest, width), "red" if late else "green"),
        )
    return Group(Text("Flights that departed, and how late they arrived", "bold"), shown)


def bar(value: float, largest: float, width: int) -> str:
    """A bar in eighths of a character, `width` characters for the largest value; never empty for a positive one."""
    if value <= 0 or largest <= 0:
        return ""
    eighths = max(1, round(value / largest * width * 8))
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


@dataclass(frozen=True)
class _Delay:
    group: object
    flights: int
    minutes: float | None


def _delay(row: Sequence[object]) -> _Delay:
    flights, arrived, late = (int(str(row[at])) for at in (1, 2, 6))
    return _Delay(row[0], flights, late / arrived if arrived else None)


def _group_name(group: object, names: Mapping[str, str]) -> str:
    if isinstance(group, int):
        return MONTHS[group - 1]
    name = names.get(str(group))
    return f"{group} {name}" if name else str(group)
