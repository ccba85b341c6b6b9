"""The demo's output from plain rows."""

from __future__ import annotations

import io

import pytest
from flights.show import MirroredTable, bar, delays, mirrored_tables
from rich.console import Console, RenderableType


def printed(shown: RenderableType) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(shown)
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]


def test_tables_and_rates() -> None:
    lines = printed(
        mirrored_tables([MirroredTable("flights", 328521, 367, 1032526, 10.0), MirroredTable("x", 0, 0, 0, 0, False)])
    )
    assert lines[-2].split() == ["flights", "328,521", "367", "1,032,526", "10.0", "103,253", "yes"]
    assert lines[-1].split() == ["x", "0", "0", "0", "0.0", "–", "no"]


def test_months() -> None:
    lines = printed(delays([(1, 200, 100, 0, 0, 0, 1200), (2, 100, 50, 0, 0, 0, -300), (3, 1, 0, 0, 0, 0, 0)]))
    january, february, march = lines[-3:]
    assert january.split()[:2] == ["Jan", "200"] and "+12.0 min" in january
    assert february.split()[:2] == ["Feb", "100"] and "-6.0 min" in february
    assert january.count("█") == 2 * february.count("█") == 8 + 16
    assert march.split()[:2] == ["Mar", "1"] and march.endswith("–")


def test_carriers_with_names() -> None:
    lines = printed(delays([("UA", 1, 1, 0, 0, 0, 5), ("9E", 1, 1, 0, 0, 0, 5)], {"UA": "United"}))
    assert lines[-2].startswith("  UA United")
    assert lines[-1].startswith("  9E ")
    assert "carrier" in lines[1]


def test_no_rows_at_all() -> None:
    assert printed(delays([]))


@pytest.mark.parametrize(
    ("value", "largest", "width", "shown"),
    [
        (0, 10, 4, ""),
        (10, 10, 4, "████"),
        (5, 10, 4, "██"),
        (1, 1000, 4, "▏"),
        (3, 8, 1, "▍"),
        (-1, 5, 4, ""),
        (0, 0, 4, ""),
    ],
)
def test_bars(value: float, largest: float, width: int, shown: str) -> None:
    assert bar(value, largest, width) == shown
