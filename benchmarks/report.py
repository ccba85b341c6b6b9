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
from benchmarks.figures import BESIDE, OURS, SAME, Growth, Row, growth, summary
from benchmarks.peers import PEERS

ROOT = Path(__file__).parent.parent
DOCS = Path("docs", "explanation")
NOTHING = "–"
DELTA_PEERS = ("plain-delta", "expert-delta", "delta-rs", "delta-rs-power")
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

_ON_PAGES = ("peer", "seconds", "ratio", "peak, MB", "written per byte given", "read, s", "table")
PAGE_COLUMNS = tuple(column for column in COLUMNS if column[0] in _ON_PAGES)  # the others are on the terminal


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
        _answer(report),
        "",
        "![lakemirror beside its peers](benchmark.svg)",
        "",
        f"Machine: {report['machine']}. Made by `python -m benchmarks --page`; not edited by hand.",
        "",
        "Every peer ran in its own process, in turn; seconds are medians over the rounds. *ratio*: times lakemirror's",
        "time. *peak*: the largest resident memory of the process tree. *read*: one query over every row and column,",
        "of Delta tables by the same plain Spark session, the fastest of three. *table*: whether it holds what DuckDB",
        "computes from the same files.",
        "",
        "| peer | what |",
        "|---|---|",
        *(f"| {peer.name} | {peer.what} |" for peer in PEERS.values() if peer.name != OURS),
    ]
    for name, scenario in report["scenarios"].items():
        rows = summary(report["results"], name)
        if rows:
            lines += ["", f"## {name}: {scenario['title']}", "", _what(scenario), ""]
            lines += peer_table(rows)
    return "\n".join(lines) + "\n"


def peer_table(rows: Sequence[Row]) -> list[str]:
    """The lines of a scenario's table, and what else was measured of lakemirror."""
    titles = [title for title, _ in PAGE_COLUMNS]
    notes = [f"- {row.peer}: {_extra(row)}" for row in rows if row.extra and row.peer == OURS]
    return [
        *markdown(titles, [[show(row) for _, show in PAGE_COLUMNS] for row in rows]),
        *(["", *notes] if notes else []),
    ]


def _answer(report: Mapping[str, Any]) -> str:
    """In how many scenarios lakemirror is the fastest of those whose Delta table is right."""
    compared, slower = 0, []
    for name in report["scenarios"]:
        rows = [row for row in summary(report["results"], name) if row.seconds is not None and row.verdict == SAME]
        ours = next((row for row in rows if row.peer == OURS), None)
        others = [row for row in rows if row.peer in DELTA_PEERS]
        if ours is not None and others:
            compared += 1
            best = min(others, key=lambda row: row.seconds or 0.0)
            slower += [f"{name} ({best.peer}: {best.ratio:.1f} of its time)"] if (best.ratio or 1.0) < 1.0 else []
    exceptions = f" Not in {', '.join(slower)}." if slower else ""
    fastest = f"In {compared - len(slower)} of {compared} scenarios lakemirror is the fastest that makes a Delta table."
    return fastest + exceptions


def _what(scenario: Mapping[str, Any]) -> str:
    """The size of a scenario, its headline and what is timed, as a paragraph."""
    return " ".join(filter(None, (f"{scenario['size']}; {scenario['headline']}.", scenario.get("timed", ""))))


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
            shown = [Bar(row.peer, row.seconds or 0.0, row.peer in (OURS, BESIDE)) for row in rows]
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
    """The answer, what the peers take, the picture, the machine, and the way to all figures."""
    link = f"All scenarios and peers: [benchmark]({DOCS / 'benchmark.md'})."
    picture = f"![seconds beside other ways to do the same]({DOCS / 'benchmark.svg'})"
    return [_answer(report), "", *_headlines(report), picture, "", f"Machine: {report['machine']}. {link}"]


def _headlines(report: Mapping[str, Any]) -> list[str]:
    """One line for each headline scenario that was measured: seconds, and how many times as long each peer takes."""
    lines = []
    for name in ("S3", "S9"):
        rows = [row for row in summary(report["results"], name) if row.seconds is not None and row.verdict == SAME]
        ours = next((row for row in rows if row.peer == OURS), None)
        if ours is not None:
            scenario = report["scenarios"][name]
            others = ", ".join(f"{row.peer} {_times(row.ratio)}" for row in rows if row.peer != OURS and row.ratio)
            lines.append(f"- {scenario['title']} ({scenario['size']}): **{ours.seconds:.2f} s**; {others}")
    return [*lines, ""] if lines else []


def _times(ratio: float) -> str:
    return f"{ratio:.1f}×" if ratio < 10 else f"{ratio:,.0f}×"


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
