"""The page of the store's benchmark: its goals beside what was measured, then each question as a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.report import markdown
from benchmarks.store_bench import DISK, STORE, Row

COPY = "copied through this machine"
_BACKLOG, _SECONDS, _REQUESTS, _LOAD = 20.0, 0.5, 8, 1.5


@dataclass(frozen=True)
class Goal:
    """A goal and what was measured; `holds` None where a peer failed or did not run."""

    text: str
    measured: str
    holds: bool | None


def goals(report: Mapping[str, Any]) -> list[Goal]:
    """The goals of the questions that were asked, in their order."""
    found = []
    for name, question in report["questions"].items():
        rows = {(row["peer"], row["where"]): row for row in rows_of(question)}
        ours = rows.get(("lakemirror", STORE), {})
        if name == "backlog":
            times = _ratios(question, "delta-rs", "seconds", "lakemirror", "seconds")
            text = f"A backlog is applied at least {_BACKLOG:.0f} times as fast as by delta-rs"
            found.append(_goal(text, times, " times", lambda middle: middle >= _BACKLOG))
        elif name == "latency":
            waits = [ours["seconds"]] if "seconds" in ours else []
            text = f"95 % of small files are committed within {_SECONDS} s of their put, 10 ms added to each request"
            found.append(_goal(text, waits, " s", lambda middle: middle <= _SECONDS))
            text = f"An apply takes at most {_REQUESTS} requests beside one for each file touched"
            if "median over touched" in ours:
                median, most = ours["median over touched"], ours["most over touched"]
                said = f"{median:.0f} (at most {most:.0f}: a checkpoint or maintenance came with it)"
                found.append(Goal(text, said, median <= _REQUESTS))
            else:
                found.append(Goal(text, "–", None))
        elif name == "load":
            times = _ratios(question, "lakemirror", "until commit", COPY, "seconds")
            text = f"A first load is committed within {_LOAD} times the time in which its objects are copied"
            found.append(_goal(text, times, " times", lambda middle: middle <= _LOAD))
    return found


def rows_of(question: Mapping[str, Any]) -> list[Row]:
    """One row of medians for each peer and place, in the order in which they ran, with ratios."""
    order = dict.fromkeys((row["peer"], row["where"]) for row in question["rows"])
    found: dict[tuple[str, str], Row] = {}
    for key in order:
        rounds = [row for row in question["rows"] if (row["peer"], row["where"]) == key]
        failed = next((row["failed"] for row in rounds if "failed" in row), None)
        names = dict.fromkeys(name for row in rounds for name, value in row.items() if isinstance(value, float | int))
        middle = {n: statistics.median(row[n] for row in rounds if n in row) for n in names if n != "right"}
        verdict = failed or ("WRONG" if any(row.get("right") is False for row in rounds) else _verdict(rounds))
        found[key] = {"peer": key[0], "where": key[1], "verdict": verdict, **middle}
    ours = found.get(("lakemirror", STORE), {}).get("seconds")
    for (peer, where), row in found.items():
        disk = found.get((peer, DISK), {}).get("seconds")
        if row.get("seconds"):
            row["ratio"] = row["seconds"] / ours if ours else None
            row["to disk"] = row["seconds"] / disk if disk and where == STORE else None
    return list(found.values())


def page(report: Mapping[str, Any]) -> str:
    """The results as a Markdown page."""
    lines = [
        "# Benchmark in an object store",
        "",
        *markdown(
            ["goal", "measured: the median", "holds"],
            [[each.text, each.measured, _HOLDS[each.holds]] for each in goals(report)],
        ),
        "",
        f"Machine: {report['machine']}; MinIO runs on it, too. Load average at the beginning: {report['load']};",
        "above 1 other work was going on. Made by `python -m benchmarks.stores --page`; not edited by hand.",
        "",
        "Seconds are medians over the rounds. *ratio*: times what lakemirror takes in the store. *to disk*: times what",
        "the same peer takes on the disk. *requests*, *sent*, *received*: counted by a relay between peer and store.",
        "*until the commit*: readers see the rows; then applied files are archived. *files touched*: change files,",
        "data files, deletion vectors. *copied*: each object is read and put again, four side by side; lakemirror lets",
        "the store copy, and reads each copy once, with `trust_footers` only its footer. *table*: whether it holds",
        "what DuckDB computes from the same files.",
    ]
    for question in report["questions"].values():
        rows = rows_of(question)
        titles = ["peer", "where", *(title for title, name, _ in _COLUMNS if any(row.get(name) for row in rows))]
        shown = [
            [
                row["peer"],
                row["where"],
                *(_text(row.get(name), form) for title, name, form in _COLUMNS if title in titles),
            ]
            for row in rows
        ]
        rounds = max(row.get("round", 1) for row in question["rows"])
        size = f"{question['size']}. {rounds} {'round' if rounds == 1 else 'rounds'}."
        lines += ["", f"## {question['title']}", "", size, ""]
        lines += markdown([*titles, "table"], [[*line, row["verdict"]] for line, row in zip(shown, rows, strict=True)])
    return "\n".join(lines) + "\n"


def _goal(text: str, figures: Sequence[float], unit: str, reached: Callable[[float], bool]) -> Goal:
    if not figures:
        return Goal(text, "–", None)
    middle = statistics.median(figures)
    span = f" (rounds: {min(figures):.2f} to {max(figures):.2f})" if len(figures) > 1 else ""
    return Goal(text, f"{middle:.2f}{unit}{span}", reached(middle))


def _ratios(question: Mapping[str, Any], above: str, of_above: str, below: str, of_below: str) -> list[float]:
    """In each round the figure of one peer over that of another, both in the store."""
    rounds: dict[int, dict[str, Row]] = {}
    for row in question["rows"]:
        if row["where"] == STORE:
            rounds.setdefault(row.get("round", 1), {})[row["peer"]] = row
    return [
        peers[above][of_above] / peers[below][of_below]
        for peers in rounds.values()
        if of_above in peers.get(above, {}) and of_below in peers.get(below, {})
    ]


_HOLDS = {True: "yes", False: "no", None: "not measured"}
_COLUMNS = (
    ("seconds", "seconds", ".2f"),
    ("p50, s", "p50", ".2f"),
    ("ratio", "ratio", ".1f"),
    ("to disk", "to disk", ".1f"),
    ("until the commit, s", "until commit", ".2f"),
    ("requests", "requests", ",.0f"),
    ("files touched", "touched", ",.0f"),
    ("requests beside them", "median over touched", ",.0f"),
    ("at most", "most over touched", ",.0f"),
    ("sent, MB", "sent", "MB"),
    ("received, MB", "received", "MB"),
    ("CPU, s", "cpu", ".2f"),
)


def _text(value: float | None, form: str) -> str:
    if value is None:
        return "–"
    return f"{value / 1e6:,.1f}" if form == "MB" else format(value, form)


def _verdict(rounds: Sequence[Row]) -> str:
    return "same" if any(row.get("right") for row in rounds) else "–"


__all__ = ["COPY", "Goal", "goals", "page", "rows_of"]
