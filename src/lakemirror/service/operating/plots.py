"""Plots of the last day as inline SVG: no script, nothing from elsewhere, labels as text beside the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _HEIGHT = 5, 100  # of a bin and of a plot, in units of the picture


def day_plots(day: Mapping[str, Any] | None) -> str:
    """The plots of `DayRows.plot`; one sentence while they are read (None), or where nothing happened."""
    if day is None:
        return '<h2>The last day</h2><p class="soft">The plots are being read.</p>'
    rows, half, most, errors = (day[name] for name in ("rowsAMinute", "lagP50Seconds", "lagP95Seconds", "errors"))
    if not any(rows) and not any(errors) and not any(each is not None for each in half):
        return '<h2>The last day</h2><p class="soft">Nothing was applied, and nothing failed.</p>'
    lags = [each for each in most if each is not None]
    worst = max(lags, default=0.0)
    total, minutes = sum(errors), day["secondsABin"] / 60
    figures = [
        _figure(f"Rows a minute, at most {_shown(max(rows))}", _bars(rows, ""), day),
        _figure(
            f"Seconds from a change file to its apply, at most {_shown(worst)}: "
            '<span class="key half">half of all within</span> <span class="key most">95 of 100 within</span>',
            _line(most, worst, "most") + _line(half, worst, "half"),
            day,
        ),
    ]
    if total:
        figures.append(_figure(f"Errors: {total:,}", _bars(errors, "error"), day))
    else:
        figures.append('<p class="soft">No errors.</p>')
    return f'<h2>The last day</h2>{"".join(figures)}<p class="soft">Each point is {minutes:g} minutes.</p>'


def _shown(value: float) -> str:
    """The greatest value of a plot, which is not 0."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _figure(caption: str, shapes: str, day: Mapping[str, Any]) -> str:
    begin, end = (f"{day[name][:16].replace('T', ' ')} UTC" for name in ("from", "to"))
    plain = caption.partition(":")[0] if "<" in caption else caption
    width = _WIDTH * len(day["errors"])
    return (
        f'<figure><figcaption>{caption}</figcaption><svg role="img" aria-label="{escape(plain)}" '
        f'viewBox="0 0 {width} {_HEIGHT}" preserveAspectRatio="none">{shapes}</svg>'
        f'<p class="axis"><span>{begin}</span><span>{end}</span></p></figure>'
    )


def _bars(values: Sequence[float], kind: str) -> str:
    most = max(values) or 1
    name = f' class="{kind}"' if kind else ""
    return "".join(
        f'<rect{name} x="{_WIDTH * place}" y="{_HEIGHT - height:.1f}" width="{_WIDTH - 1}" height="{height:.1f}"/>'
        for place, value in enumerate(values)
        if value and (height := max(2.0, _HEIGHT * value / most))
    )


def _line(values: Sequence[float | None], most: float, kind: str) -> str:
    """A line through the values, broken where there is none; a value between two gaps is a small bar."""
    shapes, run = [], list[str]()
    for place, value in enumerate([*values, None]):
        if value is not None:
            run.append(f"{_WIDTH * place + _WIDTH / 2:g},{_HEIGHT - 2 - (_HEIGHT - 4) * value / (most or 1):.1f}")
            continue
        if len(run) == 1:
            x, y = (float(each) for each in run[0].split(","))
            shapes.append(f'<rect class="{kind}" x="{x - 2:g}" y="{y - 2:.1f}" width="4" height="4"/>')
        elif run:
            shapes.append(f'<polyline class="{kind}" points="{" ".join(run)}"/>')
        run = []
    return "".join(shapes)
