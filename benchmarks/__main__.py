"""`make bench`: a backlog of change files on a loaded table, every peer in turn, as a table on the terminal.

python -m benchmarks            1 million rows, 10 change files: about two minutes
python -m benchmarks --full     5 million rows, 20 change files: about ten minutes
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.data import Size, make
from benchmarks.peers import PEERS

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--full", action="store_true", help="5 million rows and 20 files instead of 1 million and 10")
    parser.add_argument("--rounds", type=int, default=1, help="times that every peer runs")
    parser.add_argument("--peers", default=",".join(PEERS), help="comma separated")
    parser.add_argument("--clustered", action="store_true", help="changes hit recent keys alone")
    parser.add_argument("--rows", type=int, help="rows of the table")
    parser.add_argument("--files", type=int, help="change files of the backlog")
    given = parser.parse_args()
    size = Size(
        given.rows or (5_000_000 if given.full else 1_000_000),
        given.files or (20 if given.full else 10),
        10_000,
        given.clustered,
    )
    peers = given.peers.split(",")
    results: dict[str, list[dict[str, Any]]] = {peer: [] for peer in peers}
    report = {"machine": _machine(), "size": size.__dict__, "results": results}
    RESULTS.mkdir(exist_ok=True)
    name = RESULTS / f"backlog-{size.rows}x{size.files}.json"
    with tempfile.TemporaryDirectory(prefix="lakemirror-bench-data-") as place:
        make(Path(place) / "data", size)
        for number in range(given.rounds):
            for peer in peers:
                print(f"round {number + 1} of {given.rounds}: {peer} …", file=sys.stderr, flush=True)
                results[peer].append(_measure(peer, Path(place) / "data"))
                name.write_text(json.dumps(report, indent=1))  # what was measured is kept, however the run ends
    _print(report)


def _measure(peer: str, data: Path) -> dict[str, Any]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.worker", peer, str(data)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    peak = [0]
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, peak, done))
    watcher.start()
    out, err = process.communicate()
    done.set()
    watcher.join()
    if process.returncode:
        return {"failed": err.strip().splitlines()[-1] if err.strip() else f"exit {process.returncode}"}
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return {**found, "peak": peak[0]}


def _watch(root: int, peak: list[int], done: threading.Event) -> None:
    """The largest resident memory of a process and all below it, in bytes."""
    while not done.wait(0.2):
        parents: dict[int, int] = {}
        memory: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                parents[int(entry.name)] = int(fields[1])
                memory[int(entry.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        family, grown = {root}, True
        while grown:
            children = {pid for pid, parent in parents.items() if parent in family and pid not in family}
            family |= children
            grown = bool(children)
        peak[0] = max(peak[0], sum(memory.get(pid, 0) for pid in family))


def _print(report: dict[str, Any]) -> None:
    size, results = report["size"], report["results"]
    print(f"{size['rows']:,} rows, {size['files']} change files of {size['changes']:,} changes; {report['machine']}")
    right = next((r[0]["digest"] for r in results.values() if r and "digest" in r[0]), None)
    ours = _median(results.get("lakemirror", []), "changes")
    print(f"{'peer':14}{'load, s':>10}{'changes, s':>12}{'spread':>16}{'ratio':>8}{'peak, MB':>10}  table")
    for peer, rounds in results.items():
        if any("failed" in r for r in rounds):
            print(f"{peer:14}  failed: {next(r['failed'] for r in rounds if 'failed' in r)}")
            continue
        seconds = [r["changes"] for r in rounds]
        ratio = f"{statistics.median(seconds) / ours:.1f}" if ours else "–"
        spread = f"{min(seconds):.1f}–{max(seconds):.1f}"
        same = "same" if all(r["digest"] == right for r in rounds) else "WRONG"
        peak = max(r["peak"] for r in rounds) // 2**20
        print(
            f"{peer:14}{_median(rounds, 'load'):>10.1f}{statistics.median(seconds):>12.1f}{spread:>16}{ratio:>8}"
            f"{peak:>10,}  {same}"
        )


def _median(rounds: list[dict[str, Any]], name: str) -> float:
    values = [r[name] for r in rounds if name in r]
    return statistics.median(values) if values else 0.0


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, {time.strftime('%Y-%m-%d')}"


if __name__ == "__main__":
    main()
