"""From measured rounds to the rows of a table: medians, spread, ratios, verdicts. Pure.

results (one dict per scenario, peer and round) ─▶ summary ─▶ rows ─▶ Markdown, terminal, chart
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OURS = "lakemirror"
BESIDE = "lakemirror-process"  # the same with durability = process: the row after ours
SAME = "same"


@dataclass(frozen=True)
class Row:
    """One peer in one scenario. Numbers are None where nothing was measured; `verdict` says why."""

    peer: str
    rounds: int = 0
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    ratio: float | None = None  # to lakemirror: above 1 is slower
    cpu: float | None = None
    peak: float | None = None  # bytes
    amplification: float | None = None  # bytes written per byte given
    commits: float | None = None
    files: float | None = None
    read: float | None = None
    verdict: str = SAME
    extra: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Growth:
    """One line of the growth chart: medians by size, and how steeply they rise."""

    question: str
    name: str
    points: Sequence[tuple[float, float]]

    @property
    def slope(self) -> float | None:
        """See `slope`; over the larger half of the sizes, where fixed costs hide the least."""
        return slope(self.points[-max(2, math.ceil(len(self.points) / 2)) :])

    @property
    def worse_than_linear(self) -> bool:
        """A defect: twice as much takes clearly more than twice as long."""
        return self.slope is not None and self.slope > 1.1


def growth(points: Sequence[Mapping[str, Any]]) -> list[Growth]:
    """The lines, in order of appearance."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for point in points:
        place = found.setdefault((point["question"], point["line"]), [])
        place.append((float(point["x"]), statistics.median(point["seconds"])))
    return [Growth(question, name, sorted(line)) for (question, name), line in found.items()]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(rounds: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The median of one column over the rounds that have it."""
    values = [r[name] for r in rounds if r.get(name) is not None]
    return statistics.median(values) if values else None


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """The power of x by which y grows, by least squares on the logarithms: 1 is linear; None for fewer than two x."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in logs}) < 2:
        return None
    return statistics.linear_regression([x for x, _ in logs], [y for _, y in logs]).slope


def summary(results: Sequence[Mapping[str, Any]], scenario: str) -> list[Row]:
    """The rows of a scenario: ours first, with both durabilities, then by time, then those without one, in order of
    appearance.
    """
    by_peer: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        if result["scenario"] == scenario:
            by_peer.setdefault(result["peer"], []).append(result)
    ours = median([r for r in by_peer.get(OURS, []) if _good(r)], "seconds")
    rows = [_row(peer, rounds, ours) for peer, rounds in by_peer.items()]
    return sorted(rows, key=_place)


def _place(row: Row) -> tuple[int, bool, float]:
    first = (OURS, BESIDE).index(row.peer) if row.peer in (OURS, BESIDE) else 2
    return first, row.seconds is None, row.seconds or 0.0


def _row(peer: str, rounds: Sequence[Mapping[str, Any]], ours: float | None) -> Row:
    measured = [r for r in rounds if "seconds" in r]
    verdict = _verdict(rounds)
    if not measured:
        return Row(peer, verdict=verdict)
    seconds = [r["seconds"] for r in measured]
    middle = statistics.median(seconds)
    shares = [r["written"] / r["given"] for r in measured if r.get("written") is not None and r.get("given")]
    names = dict.fromkeys(name for r in measured for name in r.get("extra", {}))
    return Row(
        peer,
        rounds=len(measured),
        seconds=middle,
        low=min(seconds),
        high=max(seconds),
        ratio=middle / ours if ours else None,
        cpu=median(measured, "cpu"),
        peak=max((r["peak"] for r in measured if r.get("peak")), default=None),
        amplification=statistics.median(shares) if shares else None,
        commits=median(measured, "commits"),
        files=median(measured, "files"),
        read=median(measured, "read"),
        verdict=verdict,
        extra={
            name: value for name in names if (value := median([r.get("extra", {}) for r in measured], name)) is not None
        },
    )


def _good(result: Mapping[str, Any]) -> bool:
    return "seconds" in result and bool(result.get("right"))


def _verdict(rounds: Sequence[Mapping[str, Any]]) -> str:
    """The worst of all rounds: wrong, failed, missing, left out, same."""
    if any(r.get("right") is False for r in rounds):
        return "WRONG"
    for kind, words in (("failed", "failed"), ("missing", "missing")):
        for r in rounds:
            if kind in r:
                return f"{words}: {r[kind]}"
    if all("left_out" in r for r in rounds):
        return f"left out: {rounds[0]['left_out']}"
    return SAME
