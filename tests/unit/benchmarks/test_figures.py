"""From rounds to rows: medians, spread, ratios, verdicts; the tables and the charts made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks import report
from benchmarks.chart import Bar, bars, lines
from benchmarks.figures import OURS, growth, percentile, slope, summary
from benchmarks.peers import PEERS


def measured(peer: str, seconds: float, **more: Any) -> dict[str, Any]:
    return {"scenario": "S3", "peer": peer, "seconds": seconds, "right": True, **more}


ROUNDS = [
    measured(OURS, 2.0, peak=100 * 2**20, written=300, given=100, extra={"p50, s": 1.0}),
    measured("plain-delta", 50.0),
    measured(OURS, 4.0, peak=200 * 2**20, written=100, given=100, extra={"p50, s": 2.0}),
    measured("plain-delta", 70.0),
    measured(OURS, 3.0, peak=150 * 2**20),
    measured("delta-rs", 1.0, right=False),
    {"scenario": "S3", "peer": "hudi", "missing": "no bundle"},
    {"scenario": "S3", "peer": "iceberg", "failed": "boom | bang"},
    {"scenario": "S3", "peer": "duckdb", "left_out": "no time"},
    {"scenario": "S1", "peer": OURS, "seconds": 9.0, "right": True},
]


def test_medians_spread_and_ratio_to_ours() -> None:
    rows = {row.peer: row for row in summary(ROUNDS, "S3")}
    ours, plain = rows[OURS], rows["plain-delta"]
    assert (ours.rounds, ours.seconds, ours.low, ours.high, ours.ratio) == (3, 3.0, 2.0, 4.0, 1.0)
    assert (plain.seconds, plain.low, plain.high, plain.ratio) == (60.0, 50.0, 70.0, 20.0)
    assert ours.peak == 200 * 2**20
    assert ours.amplification == 2.0  # the median of 3 and 1; the round that did not measure it does not count
    assert ours.extra == {"p50, s": 1.5}


def test_ours_first_then_the_fastest_then_those_without_a_time() -> None:
    order = [row.peer for row in summary(ROUNDS, "S3")]
    assert order == [OURS, "delta-rs", "plain-delta", "hudi", "iceberg", "duckdb"]
    slow = measured("lakemirror-process", 99.0)
    assert [row.peer for row in summary([*ROUNDS, slow], "S3")][:3] == [OURS, "lakemirror-process", "delta-rs"]


def test_every_peer_gets_its_verdict() -> None:
    verdicts = {row.peer: row.verdict for row in summary(ROUNDS, "S3")}
    assert verdicts == {
        OURS: "same",
        "plain-delta": "same",
        "delta-rs": "WRONG",
        "hudi": "missing: no bundle",
        "iceberg": "failed: boom | bang",
        "duckdb": "left out: no time",
    }


def test_one_bad_round_is_not_hidden_by_good_ones() -> None:
    wrong = [measured("x", 1.0), measured("x", 1.0, right=False)]
    failed = [measured("x", 1.0), {"scenario": "S3", "peer": "x", "failed": "boom"}]
    late = [measured("x", 1.0), {"scenario": "S3", "peer": "x", "left_out": "no time"}]
    assert [summary(rounds, "S3")[0].verdict for rounds in (wrong, failed, late)] == ["WRONG", "failed: boom", "same"]


def test_a_wrong_table_of_ours_is_no_measure_for_others() -> None:
    rows = summary([measured(OURS, 1.0, right=False), measured("x", 2.0)], "S3")
    assert [(row.verdict, row.ratio) for row in rows] == [("WRONG", None), ("same", None)]


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_percentile_is_the_nearest_rank(share: float, value: int) -> None:
    assert percentile([float(v) for v in range(100, 0, -1)], share) == value


def test_slope_is_the_power_by_which_time_grows() -> None:
    assert slope([(1, 2), (10, 20), (100, 200)]) == pytest.approx(1.0)
    assert slope([(1, 3), (10, 300)]) == pytest.approx(2.0)
    assert slope([(1, 5), (1000, 5)]) == pytest.approx(0.0)
    assert slope([(1, 5)]) is None


REPORT: dict[str, Any] = {
    "machine": "2 cores <&>",
    "full": False,
    "scenarios": {
        "S1": {"title": "initial", "headline": "time", "size": "1 row"},
        "S3": {"title": "backlog", "headline": "time", "size": "2 rows", "timed": "One pass."},
    },
    "results": ROUNDS,
}


def test_the_page_has_a_row_for_every_peer_and_no_broken_cell() -> None:
    page = report.page(REPORT)
    rows = [line for line in page.split("## S3")[1].splitlines() if line.startswith("|")]
    columns = len(report.PAGE_COLUMNS)
    assert len(rows) == 2 + 6
    assert all(line.replace("\\|", "").count("|") == columns + 1 for line in rows)
    assert "\n2 rows; time. One pass.\n" in page and "\n1 row; time.\n" in page
    assert all(f"| {peer.name} | {peer.what} |" in page for peer in PEERS.values() if peer.name != OURS)
    assert "WRONG" in page and "failed: boom \\| bang" in page and "missing: no bundle" in page


GROWTH: dict[str, Any] = {
    "machine": "2 cores",
    "titles": {"rows": "rows of the table", "tables": "table folders"},
    "points": [
        {"question": "rows", "line": "any key", "x": x, "seconds": [s, s, 50.0]}
        for x, s in ((1, 9.0), (10, 1.0), (100, 10.0))
    ]
    + [{"question": "tables", "line": "idle", "x": x, "seconds": [s]} for x, s in ((1, 1.0), (10, 20.0), (100, 400.0))],
}


def test_growth_is_told_by_its_larger_sizes_and_worse_than_linear_is_marked() -> None:
    linear, worse = growth(GROWTH["points"])
    assert linear.points == [(1, 9.0), (10, 1.0), (100, 10.0)]
    assert linear.slope is not None and worse.slope is not None
    assert linear.slope == pytest.approx(1.0)
    assert not linear.worse_than_linear
    assert worse.worse_than_linear
    table = "\n".join(report.growth_table(GROWTH))
    assert table.count("worse than linear") == 1


def test_reports_are_written_into_the_documents_and_leave_the_rest_alone(tmp_path: Path) -> None:
    docs = tmp_path / report.DOCS
    docs.mkdir(parents=True)
    for page in (tmp_path / "README.md", docs / "performance.md"):
        page.write_text(f"before\n{report.BEGIN}\nstale\n{report.END}\nafter\n")
    for made in (REPORT, GROWTH, REPORT, GROWTH):  # a second time changes nothing
        report.write(made, tmp_path)
    for page, says in ((tmp_path / "README.md", "benchmark.svg"), (docs / "performance.md", "any key")):
        text = page.read_text()
        assert text.startswith("before\n") and text.endswith("after\n") and "stale" not in text
        assert text.count(says) == 1
    assert all((docs / name).exists() for name in ("benchmark.md", "benchmark.svg", "growth.svg"))
    with pytest.raises(ValueError, match="figures"):
        report.between_marks("no marks", [])


def test_of_several_runs_the_last_one_that_has_a_scenario_counts() -> None:
    later = {**REPORT, "results": [measured(OURS, 0.5)]}
    both = report.joined([REPORT, later])
    assert [(row.peer, row.seconds) for row in summary(both["results"], "S3")] == [(OURS, 0.5)]
    assert [row.peer for row in summary(both["results"], "S1")] == [OURS]
    with pytest.raises(ValueError, match="another"):
        report.joined([REPORT, {**REPORT, "machine": "another"}])


def test_the_documents_have_the_marks() -> None:
    for page in ("README.md", "docs/explanation/performance.md"):
        assert report.between_marks((report.ROOT / page).read_text(), ["x"])


def test_the_terminal_shows_the_same_verdicts() -> None:
    text = report.terminal(REPORT)
    assert all(words in text for words in ("WRONG", "failed: boom", "missing: no bundle", "left out: no time", "20.0"))


def test_the_page_says_first_where_lakemirror_is_the_fastest_and_where_it_is_not() -> None:
    fast = [
        measured(OURS, 2.0),
        measured("delta-rs", 3.0),
        measured("ducklake", 1.0),
        measured("plain-delta", 1.0, right=False),
    ]
    slow = [{**measured(OURS, 2.0), "scenario": "S1"}, {**measured("delta-rs", 1.0), "scenario": "S1"}]
    page = report.page({**REPORT, "results": [*fast, *slow]})
    first = (
        "In 1 of 2 scenarios lakemirror is the fastest that makes a Delta table. Not in S1 (delta-rs: 0.5 of its time)."
    )
    assert page.splitlines()[2] == first


def test_the_readme_has_the_headline_figures() -> None:
    results = [
        measured(OURS, 2.0),
        measured("delta-rs", 5.0),
        measured("hudi", 2000.0),
        measured("iceberg", 1.0, right=False),
    ]
    lines = report.readme({**REPORT, "results": results})
    assert lines[0].startswith("In 1 of 1 scenarios")
    assert lines[2] == "- backlog (2 rows): **2.00 s**; delta-rs 2.5×, hudi 1,000×"


def test_the_chart_is_svg_and_leaves_out_who_is_wrong() -> None:
    text = report.chart(REPORT)
    ElementTree.fromstring(text)
    assert "plain-delta" in text and "delta-rs" not in text and "hudi" not in text


def test_bars_are_as_long_as_their_values() -> None:
    tree = ElementTree.fromstring(bars("t", "n", [("g", [Bar("a", 1.0, True), Bar("b", 4.0)])]))
    widths = [float(rect.attrib["width"]) for rect in tree.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert widths[1] == pytest.approx(4 * widths[0], rel=0.01)


def test_lines_need_no_points_and_stay_within_the_picture() -> None:
    tree = ElementTree.fromstring(lines("t", "n", [("none", [("a", [])]), ("some", [("b", [(1, 1), (100, 3)])])]))
    height = float(tree.attrib["viewBox"].split()[3])
    circles = list(tree.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 2
    assert all(0 <= float(c.attrib["cy"]) <= height and 0 <= float(c.attrib["cx"]) <= 860 for c in circles)
