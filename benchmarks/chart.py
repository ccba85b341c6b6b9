"""Charts as SVG text: bars for peers, lines for growth. Pure; readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH = 860
_LABEL, _END = 130, 90  # room for names on the left, for figures on the right
_LINE = 20
_OURS, _OTHER = "#d9480f", "#748ffc"
_COLOURS = ("#d9480f", "#4263eb", "#2b8a3e", "#9c36b5", "#e67700", "#0b7285")


@dataclass(frozen=True)
class Bar:
    """One bar."""

    name: str
    value: float
    ours: bool = False


def bars(title: str, note: str, groups: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    """A group of bars under each other per scenario, each group to its own scale."""
    parts: list[str] = []
    y = 56
    for heading, group in groups:
        parts.append(_text(10, y, heading, weight="bold"))
        y += 8
        largest = max(bar.value for bar in group) or 1.0
        for bar in group:
            length = max(1.0, (WIDTH - _LABEL - _END) * bar.value / largest)
            colour = _OURS if bar.ours else _OTHER
            parts.append(_text(_LABEL - 8, y + 14, bar.name, anchor="end", weight="bold" if bar.ours else "normal"))
            parts.append(f'<rect x="{_LABEL}" y="{y + 3}" width="{length:.1f}" height="14" rx="2" fill="{colour}"/>')
            parts.append(_text(_LABEL + length + 6, y + 14, f"{_figure(bar.value)} s"))
            y += _LINE
        y += 26
    return _svg(title, note, y, parts)


def lines(
    title: str, note: str, panels: Sequence[tuple[str, Sequence[tuple[str, Sequence[tuple[float, float]]]]]]
) -> str:
    """A panel per question, both axes logarithmic: a line that rises as steeply as the dotted one is linear growth."""
    parts: list[str] = []
    y = 56
    height = 170
    for heading, series in panels:
        points = [point for _, line in series for point in line if min(point) > 0]
        if not points:
            continue
        parts.append(_text(10, y, heading, weight="bold"))
        y += 14
        left, right = _LABEL, WIDTH - _END - 60
        xs, ys = [math.log10(p[0]) for p in points], [math.log10(p[1]) for p in points]
        x0, x1 = min(xs), max(max(xs), min(xs) + 0.3)
        y0, y1 = min(ys) - 0.1, max(max(ys), min(ys) + x1 - x0) + 0.1

        def at(
            point: tuple[float, float], box: tuple[float, ...] = (x0, x1, y0, y1, left, right, y)
        ) -> tuple[float, float]:
            bx0, bx1, by0, by1, bl, br, by = box
            across = bl + (br - bl) * (math.log10(point[0]) - bx0) / (bx1 - bx0)
            return across, by + height - height * (math.log10(point[1]) - by0) / (by1 - by0)

        parts.append(
            f'<rect x="{left}" y="{y}" width="{right - left}" height="{height}" fill="none" stroke="#ced4da"/>'
        )
        first = min(points)
        end = (10**x1, first[1] * 10**x1 / first[0])
        (ax, ay), (bx, by) = at(first), at(end)
        parts.append(f'<path d="M{ax:.1f} {ay:.1f}L{bx:.1f} {by:.1f}" stroke="#868e96" stroke-dasharray="3 4"/>')
        for number, (name, line) in enumerate(series):
            colour = _COLOURS[number % len(_COLOURS)]
            placed = [at(point) for point in line if min(point) > 0]
            path = "L".join(f"{px:.1f} {py:.1f}" for px, py in placed)
            parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in placed]
            parts.append(_text(placed[-1][0] + 8, placed[-1][1] + 4, name, colour=colour))
        for value in sorted({p[0] for p in points}):
            parts.append(_text(at((value, first[1]))[0], y + height + 15, _figure(value), anchor="middle"))
        for value in (min(points, key=lambda p: p[1])[1], max(points, key=lambda p: p[1])[1]):
            parts.append(_text(left - 8, at((first[0], value))[1] + 4, f"{_figure(value)} s", anchor="end"))
        y += height + 50
    return _svg(title, note, y, parts)


def _figure(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    if value >= 10_000:
        return f"{value / 1_000:g} k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", colour: str = "") -> str:
    style = f"font-weight:{weight}" + (f";fill:{colour}" if colour else "")  # the page's style wins over attributes
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{style}">{escape(text)}</text>'


def _svg(title: str, note: str, height: float, parts: Sequence[str]) -> str:
    style = (
        "text{font:13px system-ui,sans-serif;fill:#212529}"
        ".page{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#dee2e6}.page{fill:#0d1117}}"
    )
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">',
        f"<title>{escape(title)}</title><style>{style}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height:.0f}"/>',
        _text(10, 20, title, weight="bold"),
        _text(10, 38, note, colour="#868e96"),
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"
