"""Results as a table on the terminal, and as pages and charts in docs/.

python -m benchmarks.report RESULTS.json [MORE.json …] [--root FOLDER]

benchmark ─▶ benchmark.md, benchmark.svg, and the picture between marks in README.md
growth    ─▶ growth.svg, and the figures between marks in performance.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.chart import Bar, bars, lines
from benchmarks.figures import OURS, SAME, Growth, Row, growth, summary
from benchmarks.peers import PEERS

ROOT = Path(__file__).parent.parent
DOCS = Path("docs", "explanation")
NOTHING = "–"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

Column = tuple[str, Callable[[Row], str]]


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def _spread(row: Row) -> str:
    return NOTHING if row.low is None or row.rounds < 2 else f"{row.low:.2f}–{row.high:.2f}"


COLUMNS: tuple[Column, ...] = (
    ("peer", lambda r: r.peer),
    ("seconds", lambda r: _number(r.seconds, ".2f")),
    ("spread", _spread),
    ("ratio", lambda r: _number(r.ratio, ".1f")),
    ("CPU, s", lambda r: _number(r.cpu, ".1f")),
    ("peak, MB", lambda r: _number(r.peak / 2**20 if r.peak else None, ",.0f")),
    ("written per byte given", lambda r: _number(r.amplification, ".1f")),
    ("commits", lambda r: _number(r.commits, ",.0f")),
    ("files", lambda r: _number(r.files, ",.0f")),
    ("read, s", lambda r: _number(r.read, ".2f")),
    ("table", lambda r: r.verdict),
)


def terminal(report: Mapping[str, Any]) -> str:
    """All scenarios as text in columns."""
    parts = [report["machine"]]
    for name, scenario in report["scenarios"].items():
        rows = summary(report["results"], name)
        if not rows:
            continue
        cells = [[title for title, _ in COLUMNS], *([show(row) for _, show in COLUMNS] for row in rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells
        ]
        notes = [f"  {row.peer}: {_extra(row)}" for row in rows if row.extra]
        parts.append(
            "\n".join([f"{name} {scenario['title']} ({scenario['size']}), {scenario['headline']}", *lines, *notes])
        )
    return "\n\n".join(parts)


def page(report: Mapping[str, Any]) -> str:
    """All scenarios as a Markdown page."""
    lines = [
        "# Benchmark",
        "",
        "Made by `python -m benchmarks.report` from the results of `make bench`; not edited by hand.",
        "",
        f"Machine: {report['machine']}.",
        "",
        "![lakemirror beside its peers](benchmark.svg)",
        "",
        "Every peer ran in its own process, in turn; seconds are medians over the rounds. *ratio*: times lakemirror's",
        "time. *CPU*, *written*: of the whole process tree while it was measured; *peak*: its largest resident memory.",
        "*files*: all that are there afterwards, logs too. *read*: one query over every row and column of the table,",
        "of Delta tables by one and the same plain Spark session, the fastest of three.",
        "*table*: whether it holds what it should (sums over all rows that their order does not change), reckoned from",
        "the same files by DuckDB.",
        "",
        "| peer | what |",
        "|---|---|",
    ]
    seen = {result["peer"] for result in report["results"]}
    lines += [f"| {peer.name} | {peer.what} |" for peer in PEERS.values() if peer.name in seen]
    for name, scenario in report["scenarios"].items():
        rows = summary(report["results"], name)
        if rows:
            lines += ["", f"## {name}: {scenario['title']}", "", f"{scenario['size']}; {scenario['headline']}.", ""]
            lines += markdown([title for title, _ in COLUMNS], [[show(row) for _, show in COLUMNS] for row in rows])
            notes = [f"- {row.peer}: {_extra(row)}" for row in rows if row.extra]
            lines += ["", *notes] if notes else []
    return "\n".join(lines) + "\n"


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table; all columns but first and last are numbers."""
    marks = ["---", *["--:"] * (len(titles) - 2), "---"]
    body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(line)} |" for line in ([*titles], marks, *body)]


def chart(report: Mapping[str, Any], scenarios: Sequence[str] = ("S3", "S3w", "S1", "S2", "S6", "S9")) -> str:
    """The picture for the README: the headline scenarios, a bar per peer whose table is right."""
    groups = []
    for name in scenarios:
        rows = [r for r in summary(report["results"], name) if r.seconds is not None and r.verdict == SAME]
        if rows:
            scenario = report["scenarios"][name]
            shown = [Bar(row.peer, row.seconds or 0.0, row.peer == OURS) for row in rows]
            groups.append((f"{scenario['title']} ({scenario['size']})", sorted(shown, key=lambda bar: bar.value)))
    return bars("Seconds, less is better", report["machine"], groups)


def growth_table(report: Mapping[str, Any]) -> list[str]:
    """Seconds of an apply at every size, and the slope: 1 is as fast as what grows, 0 is not at all."""
    titles = ["what grows", "line", "from", "s", "to", "s", "slope", ""]
    rows = []
    for line in growth(report["points"]):
        (x0, y0), (x1, y1) = line.points[0], line.points[-1]
        verdict = "worse than linear" if line.worse_than_linear else ""
        figures = [f"{x0:,.0f}", f"{y0:.2f}", f"{x1:,.0f}", f"{y1:.2f}", _number(line.slope, ".2f")]
        rows.append([report["titles"][line.question], line.name, *figures, verdict])
    picture = "![seconds of one apply](growth.svg)"
    return [picture, "", f"Machine: {report['machine']}.", "", *markdown(titles, rows)]


def readme(report: Mapping[str, Any]) -> list[str]:
    """The picture, the machine, and the way to all figures."""
    link = f"All scenarios and peers: [benchmark]({DOCS / 'benchmark.md'})."
    picture = f"![seconds beside other ways to do the same]({DOCS / 'benchmark.svg'})"
    return [picture, "", f"Machine: {report['machine']}. {link}"]


def growth_chart(report: Mapping[str, Any]) -> str:
    """A panel per question."""
    panels: dict[str, list[Growth]] = {}
    for line in growth(report["points"]):
        panels.setdefault(line.question, []).append(line)
    shown = [(report["titles"][name], [(line.name, line.points) for line in found]) for name, found in panels.items()]
    return lines("Seconds of one apply; the dotted line is linear growth", report["machine"], shown)


def between_marks(page: str, body: Sequence[str]) -> str:
    """A page with what stands between its two marks replaced; ValueError where it has none."""
    head, found, rest = page.partition(BEGIN)
    _, ended, tail = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return "\n".join([head + BEGIN, "", *body, "", END + tail])


def _extra(row: Row) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in row.extra.items())


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.report", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="of several, the last that has a scenario counts")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository, or a copy of its README.md and docs/")
    given = parser.parse_args()
    write(joined([json.loads(path.read_text()) for path in given.results]), given.root)


def joined(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One report of several runs on one machine: each scenario or question of growth as the last of them has it."""
    found = dict(reports[0])
    for report in reports[1:]:
        if report["machine"] != found["machine"]:
            raise ValueError(f"{report['machine']} is not {found['machine']}")
        for kind, key in (("results", "scenario"), ("points", "question")):
            if kind in report:
                again = {one[key] for one in report[kind]}
                found[kind] = [*(one for one in found[kind] if one[key] not in again), *report[kind]]
        for kind in ("scenarios", "titles"):
            if kind in report:
                found[kind] = {**found[kind], **report[kind]}
    return found


def write(report: Mapping[str, Any], root: Path) -> None:
    """The pages and pictures of one report, into the documents of a repository."""
    docs = root / DOCS
    if "points" in report:
        _renew(docs / "performance.md", growth_table(report))
        (docs / "growth.svg").write_text(growth_chart(report))
    else:
        (docs / "benchmark.md").write_text(page(report))
        (docs / "benchmark.svg").write_text(chart(report))
        _renew(root / "README.md", readme(report))


def _renew(path: Path, body: Sequence[str]) -> None:
    path.write_text(between_marks(path.read_text(), body))


if __name__ == "__main__":
    main()
