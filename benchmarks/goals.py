"""What was measured beside what it should be: keys in no order, many tables, freshness.

python -m benchmarks.growth --full --only uuids                       UUID keys, to 100 million rows: 6 minutes, 15 GB
python -m benchmarks --rounds 1 --limit 600 --budget 3000 --only S3u  beside others, a million rows: 8 minutes
python -m benchmarks --full --rounds 1 --only S6/lakemirror --only S6/delta-rs --only S6/delta-rs-power   5 minutes
python -m benchmarks --full --rounds 1 --only S8/lakemirror           one file each 0.5 s: 3 minutes
python -m benchmarks.watching --tables 10000                          idle tables: 5 minutes
python -m benchmarks.goals RESULTS.json MORE.json … [--root FOLDER]   the page in docs/

results of those ─▶ Measured ─▶ a row for each goal, the tables behind them ─▶ benchmark-keys-and-tables.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.figures import OURS, Growth, Row, growth, percentile, slope, summary
from benchmarks.report import DOCS, NOTHING, ROOT, markdown, peer_table

PAGE = DOCS / "benchmark-keys-and-tables.md"
_SCENARIOS = {
    "S3u": ("1,000,000 rows", "10,000,000 rows"),
    "S6": ("1,000 tables, 10 files",),
    "S8": ("1,000,000 rows, 300 files",),
}  # and how large each is where it counts
_SHOWN = ("S3u", "S6")  # the tables that no other page has
_MB = 1_000_000
_TABLES = 10_000  # of `benchmarks.watching`


@dataclass(frozen=True)
class Measured:
    """All results, by kind. What no run has measured is absent."""

    machine: str
    lines: Mapping[str, Growth] = field(default_factory=dict)  # of the question `uuids`, by name
    figures: Mapping[tuple[str, int], float] = field(default_factory=dict)  # bytes, by name and rows
    scenarios: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)  # of the scenarios, by name
    watching: Mapping[str, Any] = field(default_factory=dict)

    def seconds(self, line: str, size: int) -> float | None:
        """The median of a line at one number of rows."""
        found = self.lines.get(line)
        return None if found is None else dict(found.points).get(float(size))

    def row(self, scenario: str, peer: str) -> Row | None:
        """A peer in a scenario of the size that the goal names, if its tables were right."""
        if not str(self.scenarios.get(scenario, {}).get("size", "")).startswith(_SCENARIOS[scenario]):
            return None
        found = [row for row in self.rows.get(scenario, ()) if row.peer == peer and row.verdict == "same"]
        return found[0] if found and found[0].seconds is not None else None

    def times_ours(self, scenario: str, peer: str) -> float | None:
        """How many times as long as lakemirror a peer takes."""
        row = self.row(scenario, peer)
        return None if row is None else row.ratio

    def peak(self, scenario: str) -> float | None:
        """Bytes that lakemirror and all its processes held at most."""
        row = self.row(scenario, OURS)
        return None if row is None else row.peak


@dataclass(frozen=True)
class Goal:
    """One row of the table. `limit`: what `value` must not exceed, or must reach where `at_least`."""

    what: str
    value: Callable[[Measured], float | None]
    limit: float
    form: str
    at_least: bool = False

    def shown(self, measured: Measured) -> list[str]:
        """The cells: what, goal, measured, whether it is met. A run with fewer tables than the goal's says so."""
        tables = measured.watching.get("tables", _TABLES)
        what = self.what.replace(f"{_TABLES:,} tables", f"{tables:,} tables")
        value, sign = self.value(measured), "≥" if self.at_least else "≤"
        goal = f"{sign} {self.form.format(self.limit)}"
        if value is None:
            return [what, goal, NOTHING, "not measured"]
        met = value >= self.limit if self.at_least else value <= self.limit
        return [what, goal, self.form.format(value), "yes" if met else "**no**"]


def goals() -> list[Goal]:
    """The goals, in the order of the page."""
    found = []
    for rows, most in ((10_000_000, 0.1), (100_000_000, 0.15)):
        size, first = f"{rows // 1_000_000} M rows", "index, first apply of a process"
        found += [
            Goal(f"1,000 changes, UUID keys, {size}, warm", _at("index", rows), most, "{:.3f} s"),
            Goal(f"the first apply of a new process, {size}", _at(first, rows), 2 * most, "{:.3f} s"),
        ]
    most_rows = 100_000_000
    found += [
        Goal("building the index of 100 M UUIDs in idle time", _at("building the index", most_rows), 60, "{:.0f} s"),
        Goal("that index on the disk", _megabytes("index on the disk", most_rows), 2_000, "{:,.0f} MB"),
        Goal(
            "memory of building it, beside what the process holds",
            _megabytes("memory of building the index", most_rows), 256, "{:,.0f} MB",
        ),
        Goal("an apply while it is built, times one without an index", _meanwhile(most_rows), 1.1, "{:.2f}"),
        Goal("slope of the time of an apply, 1 M to 100 M rows", _slope, 0.2, "{:.2f}"),
        *(
            Goal(f"one file of 1,000 changes, UUID keys: {peer}, times lakemirror", _times("S3u", peer), 1, "{:.1f}",
                 at_least=True)
            for peer in ("ducklake", "delta-rs", "hudi")
        ),
        Goal("1,000 tables of 10 files: delta-rs, synced as lakemirror is, times lakemirror",
             _times("S6", "delta-rs-power"), 6, "{:.1f}", at_least=True),
        Goal("the same, delta-rs that syncs nothing", _times("S6", "delta-rs"), 6, "{:.1f}", at_least=True),
        Goal("10,000 tables, nothing to do, `run`: share of one core", lambda m: _percent(m.watching), 2, "{:.2f} %"),
        Goal("a fresh file there is seen after its rename, 95 % within", _seen(0.95), 20, "{:.1f} ms"),
        Goal("one file each 0.5 s on 1 M rows, 95 % in the table within", _steady, 0.1, "{:.3f} s"),
        *(
            Goal(f"memory of all processes, {name}", lambda m, name=name: _of_megabytes(m.peak(name)), 600,
                 "{:,.0f} MB")
            for name in _SCENARIOS
        ),
    ]  # fmt: skip
    return found


def _answer(measured: Measured) -> str:
    verdicts = [goal.shown(measured)[3] for goal in goals()]
    return f"{verdicts.count('yes')} of {len(verdicts)} goals are met."


def page(measured: Measured) -> str:
    """The page in Markdown."""
    lines = [
        "# Benchmark: keys in no order, many tables",
        "",
        _answer(measured),
        "",
        f"Machine: {measured.machine}. Settings are the defaults: each commit is on the disk before it counts. Made by",
        "`python -m benchmarks.goals`, whose first lines have the commands; not edited by hand.",
        "",
        *markdown(["what", "goal", "measured", "met"], [goal.shown(measured) for goal in goals()]),
        "",
        "*Warm*: the median of seven applies, one file each, of an engine that has applied some. *New process*: it has",
        "found nothing to do, then the file comes; the index is on the disk. *While it is built*: the median of three",
        "applies right after the index was deleted. *Slope*: the power by which time grows with rows; 1 is linear.",
        "*Memory*: of all processes together, at most.",
        "",
        "`lakemirror` syncs data file, log entry and their folders for each commit, then the moves of applied files;",
        "`lakemirror-process` syncs nothing. `delta-rs` is one append for each file and never waits for the disk.",
        "`delta-rs-power` syncs after each append, so in between a power cut may leave a log entry without its data.",
        "[All peers](benchmark.md).",
    ]  # fmt: skip
    for name in _SHOWN:
        rows, scenario = measured.rows.get(name), measured.scenarios.get(name)
        if rows and scenario:
            lines += ["", f"## {name}: {scenario['title']}", "", f"{scenario['size']}; {scenario['headline']}.", ""]
            lines += peer_table(rows)
    sizes = sorted({size for line in measured.lines.values() for size, _ in line.points})
    if sizes:
        lines += ["", "## One file of 1,000 changes, UUID keys, by rows of the table", ""]
        table = [
            [name, *(_cell(dict(line.points).get(size)) for size in sizes), _cell(slope(line.points), ".2f")]
            for name, line in measured.lines.items()
        ]
        lines += markdown(["seconds", *(f"{size:,.0f} rows" for size in sizes), "slope"], table)
    return "\n".join(lines) + "\n"


def measured_in(reports: Sequence[Mapping[str, Any]]) -> Measured:
    """The results of several runs on one machine; of each scenario the last run that has it. ValueError for two."""
    machines = {str(report["machine"]) for report in reports}
    if len(machines) > 1:
        raise ValueError(f"results of more than one machine or day: {', '.join(sorted(machines))}")
    lines: dict[str, Growth] = {}
    figures: dict[tuple[str, int], float] = {}
    scenarios: dict[str, Mapping[str, str]] = {}
    rows: dict[str, Sequence[Row]] = {}
    watching: Mapping[str, Any] = {}
    for report in reports:
        watching = report.get("watching", watching)
        points = [each for each in report.get("points", ()) if each["question"] == "uuids"]
        lines |= {line.name: line for line in growth(points)}
        figures |= {(each["name"], each["x"]): each["value"] for each in report.get("figures", ())}
        for name, scenario in report.get("scenarios", {}).items():
            if name in _SCENARIOS:
                scenarios[name], rows[name] = scenario, summary(report["results"], name)
    return Measured(machines.pop(), lines, figures, scenarios, rows, watching)


def _at(line: str, rows: int) -> Callable[[Measured], float | None]:
    return lambda measured: measured.seconds(line, rows)


def _megabytes(name: str, rows: int) -> Callable[[Measured], float | None]:
    return lambda measured: _of_megabytes(measured.figures.get((name, rows)))


def _of_megabytes(size: float | None) -> float | None:
    return None if size is None else size / _MB


def _times(scenario: str, peer: str) -> Callable[[Measured], float | None]:
    return lambda measured: measured.times_ours(scenario, peer)


def _meanwhile(rows: int) -> Callable[[Measured], float | None]:
    def ratio(measured: Measured) -> float | None:
        slow, without = measured.seconds("while the index is built", rows), measured.seconds("no index", rows)
        return None if slow is None or not without else slow / without

    return ratio


def _slope(measured: Measured) -> float | None:
    line = measured.lines.get("index")
    return slope(line.points) if line is not None and {1e6, 1e8} <= {rows for rows, _ in line.points} else None


def _percent(watching: Mapping[str, Any]) -> float | None:
    return 100 * watching["share"] if watching else None


def _seen(share: float) -> Callable[[Measured], float | None]:
    return lambda measured: 1000 * percentile(measured.watching["seen"], share) if measured.watching else None


def _steady(measured: Measured) -> float | None:
    row = measured.row("S8", OURS)
    return None if row is None else row.seconds


def _cell(value: float | None, form: str = ".3f") -> str:
    return NOTHING if value is None else format(value, form)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks.goals", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, nargs="+", help="of several, the last that has a scenario counts")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository, or a copy of its docs/")
    given = parser.parse_args()
    measured = measured_in([json.loads(path.read_text()) for path in given.results])
    (given.root / PAGE).write_text(page(measured))
    for goal in goals():
        print("  ".join(goal.shown(measured)))


if __name__ == "__main__":
    main()
