"""`make bench`: scenarios S1 to S10, lakemirror and its peers in turn, as a table on the terminal.

python -m benchmarks                        what fits into ten minutes, the most telling first
python -m benchmarks --full                 the sizes of the README's figures; hours
python -m benchmarks --only S3/lakemirror --only /delta-rs
python -m benchmarks --list                 scenarios, sizes, peers
python -m benchmarks --page                 and write the page, the chart and the README's figures
python -m benchmarks.report RESULTS.json    the page and the charts in docs/ from results
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks import runner
from benchmarks.peers import PEERS
from benchmarks.report import ROOT, terminal, write
from benchmarks.scenarios import SCENARIOS

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="large tables, three rounds, no time budget")
    parser.add_argument("--only", action="append", default=[], metavar="SCENARIO/PEER", help="may be repeated")
    parser.add_argument("--rounds", type=int, help="times that every cell runs (2; 3 with --full)")
    parser.add_argument("--budget", type=float, help="seconds for all (600; none with --full); the rest is left out")
    parser.add_argument("--limit", type=float, help="seconds for one cell (180; 7200 with --full)")
    parser.add_argument("--scale", type=float, default=1.0, help="rows and changes times this")
    parser.add_argument("--into", type=Path, help="where results are written after every cell")
    parser.add_argument("--resume", action="store_true", help="keep what --into holds already, run the rest")
    parser.add_argument("--page", action="store_true", help="write docs/explanation/benchmark.md, its chart, README")
    parser.add_argument("--list", action="store_true", help="say what there is, run nothing")
    given = parser.parse_args()
    if given.list:
        _list(given.full)
        return
    try:
        chosen = runner.choose(given.only)
    except ValueError as error:
        parser.error(str(error))
    plan = runner.Plan(
        chosen,
        rounds=given.rounds or (3 if given.full else 2),
        full=given.full,
        scale=given.scale,
        limit=given.limit or (7200.0 if given.full else 180.0),
        budget=given.budget or (float("inf") if given.full else 600.0),
    )
    into = given.into or RESULTS / f"{'full' if given.full else 'small'}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    report = runner.run(plan, into, runner.say, resume=given.resume)
    print(terminal(report))
    runner.say(f"results: {into}")
    if given.page:
        write(report, ROOT)


def _list(full: bool) -> None:
    for name, scenario in SCENARIOS.items():
        print(f"{name:4} {scenario.title}: {scenario.full if full else scenario.small}")
        print(f"     {', '.join(scenario.peers)}")
    print()
    for peer in PEERS.values():
        print(f"{peer.name:13} {peer.what}")


if __name__ == "__main__":
    main()
