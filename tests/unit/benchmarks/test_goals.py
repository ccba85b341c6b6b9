"""The page of goals: which figures are compared with which goals, and that what was not measured is not met."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.goals import goals, measured_in, page

MACHINE = "2 cores"


def growth(index: float, build: float = 40.0) -> dict[str, Any]:
    """Results of the question `uuids`, with one time for each number of rows."""
    lines = {"no index": 1.0, "building the index": build, "index": index, "index, first apply of a process": index * 2}
    points = [
        {"question": "uuids", "line": line, "x": rows, "seconds": [seconds]}
        for line, seconds in {**lines, "while the index is built": 0.9}.items()
        for rows in (1_000_000, 10_000_000, 100_000_000)
    ]
    figures = [
        {"question": "uuids", "name": name, "x": 100_000_000, "value": value}
        for name, value in (("index on the disk", 1.9e9), ("memory of building the index", 3e8))
    ]
    return {"machine": MACHINE, "titles": {"uuids": "rows"}, "points": points, "figures": figures}


def bench(**seconds: float) -> dict[str, Any]:
    """Results of S6, in seconds by peer, with names that use _ for -."""
    results = [
        {"round": 1, "scenario": "S6", "peer": peer.replace("_", "-"), "seconds": value, "right": True, "peak": 3e8}
        for peer, value in seconds.items()
    ]
    scenario = {"title": "many tables", "size": "1,000 tables, 10 files of 100 changes", "headline": "time"}
    return {"machine": MACHINE, "scenarios": {"S6": scenario}, "results": results}


WATCHING = {
    "machine": MACHINE,
    "watching": {"tables": 10_000, "share": 0.013, "seen": [0.004] * 19 + [0.2], "committed": [0.1] * 20},
}


def verdicts(*reports: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Figure and verdict of each goal."""
    measured = measured_in(reports)
    return {what: (figure, met) for what, _, figure, met in (goal.shown(measured) for goal in goals())}


def test_each_goal_is_compared_with_its_own_figure() -> None:
    found = verdicts(growth(0.07), bench(lakemirror=10.0, delta_rs=59.0, delta_rs_power=61.0), WATCHING)
    expected = {
        "1,000 changes, UUID keys, 10 M rows, warm": ("0.070 s", "yes"),
        "the first apply of a new process, 100 M rows": ("0.140 s", "yes"),
        "building the index of 100 M UUIDs in idle time": ("40 s", "yes"),
        "that index on the disk": ("1,900 MB", "yes"),
        "memory of building it, beside what the process holds": ("300 MB", "**no**"),
        "an apply while it is built, times one without an index": ("0.90", "yes"),
        "slope of the time of an apply, 1 M to 100 M rows": ("0.00", "yes"),
        "1,000 tables of 10 files: delta-rs, synced as lakemirror is, times lakemirror": ("6.1", "yes"),
        "the same, delta-rs that syncs nothing": ("5.9", "**no**"),
        "10,000 tables, nothing to do, `run`: share of one core": ("1.30 %", "yes"),
        "a fresh file there is seen after its rename, 95 % within": ("4.0 ms", "yes"),
        "memory of all processes, S6": ("300 MB", "yes"),
    }
    assert {what: found[what] for what in expected} == expected


def test_a_figure_beyond_its_goal_is_not_met() -> None:
    found = verdicts(growth(0.16, build=61.0))
    assert found["1,000 changes, UUID keys, 100 M rows, warm"] == ("0.160 s", "**no**")
    assert found["building the index of 100 M UUIDs in idle time"] == ("61 s", "**no**")


def test_what_was_not_measured_or_is_wrong_counts_as_not_measured() -> None:
    wrong = bench(lakemirror=10.0, delta_rs_power=90.0)
    wrong["results"][1]["right"] = False
    found = verdicts(wrong)
    assert {met for _, met in found.values()} == {"not measured", "yes"}
    assert [what for what, (_, met) in found.items() if met == "yes"] == ["memory of all processes, S6"]


def test_ten_thousand_tables_are_not_claimed_of_fewer() -> None:
    few = {**WATCHING, "watching": {**WATCHING["watching"], "tables": 200}}  # type: ignore[dict-item]
    assert "200 tables, nothing to do" in page(measured_in([few]))


def test_smaller_runs_do_not_count() -> None:
    small = bench(lakemirror=10.0, delta_rs_power=90.0)
    small["scenarios"]["S6"]["size"] = "20 tables, 5 files of 100 changes"
    short = growth(0.01)
    short["points"] = [point for point in short["points"] if point["x"] < 100_000_000]
    found = verdicts(small, short)
    for what in ("1,000 tables of 10 files: delta-rs, synced as lakemirror is, times lakemirror",
                 "memory of all processes, S6", "slope of the time of an apply, 1 M to 100 M rows"):  # fmt: skip
        assert found[what] == ("–", "not measured")


def test_results_of_two_machines_do_not_make_one_page() -> None:
    with pytest.raises(ValueError, match="more than one machine"):
        measured_in([growth(0.1), {**WATCHING, "machine": "64 cores"}])


def test_the_page_names_every_goal_and_has_the_tables_of_the_peers() -> None:
    text = page(measured_in([growth(0.07), bench(lakemirror=10.0, delta_rs_power=61.0), WATCHING]))
    assert all(goal.what in text for goal in goals())
    assert "| delta-rs-power | 61.00 | 6.1 |" in text
    assert "## S6: many tables" in text and "100,000,000 rows" in text
    assert f"of {len(goals())} goals are met." in text
