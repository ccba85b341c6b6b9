"""Runs cells (a peer in a scenario, once) in turn and keeps every result the moment it is there.

environments, data, once ─▶ round 1: A B C …, round 2: A B C … (a process and a time limit each)
                                              └─▶ results/*.json after every cell
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import process
from benchmarks.environments import Missing, ensure
from benchmarks.peers import PEERS
from benchmarks.reader import Reader
from benchmarks.scenarios import SCENARIOS, Data, Size

REPOSITORY = Path(__file__).parent.parent

Python = tuple[Path, Mapping[str, str]]
"""An interpreter and the variables that its peer needs."""


_WITHOUT_JVM = (
    "lakemirror",
    "lakemirror-process",
    "lakemirror-trusting",
    "delta-rs",
    "delta-rs-power",
    "ducklake",
    "duckdb",
    "copy",
)
_AT_HAND = ("lakemirror-spark", "plain-delta", "expert-delta")
_MOST_TELLING = ("S3", "S1", "S2", "S9")


@dataclass(frozen=True)
class Plan:
    """What is run: cells in order, and what a cell and all of them may take, in seconds."""

    scenarios: Mapping[str, Sequence[str]]  # peers, by scenario
    rounds: int = 2
    full: bool = False
    scale: float = 1.0
    limit: float = 180.0
    budget: float = 600.0

    def size(self, name: str) -> Size:
        """How large a scenario is made."""
        size = SCENARIOS[name].full if self.full else SCENARIOS[name].small
        if self.scale == 1.0:
            return size
        return replace(size, rows=int(size.rows * self.scale), changes=max(10, int(size.changes * self.scale)))

    def cells(self) -> Iterator[tuple[int, str, str]]:
        """Round, scenario, peer: a round holds every cell once, so that what changes on the machine meets all alike.

        For a run whose time is short, what starts no JVM comes first, in all scenarios; then what most people have, in
        the most telling ones first.
        """
        for number, stage in itertools.product(range(1, self.rounds + 1), range(4)):
            for scenario, peers in self.scenarios.items():
                for peer in peers:
                    if _stage(scenario, peer) == stage:
                        yield number, scenario, peer


def _stage(scenario: str, peer: str) -> int:
    if peer in _WITHOUT_JVM:
        return 0
    if peer in _AT_HAND:
        return 1 if scenario in _MOST_TELLING else 2
    return 3


def choose(only: Sequence[str]) -> dict[str, list[str]]:
    """The peers of every scenario that `only` names, as SCENARIO, SCENARIO/PEER or /PEER; all where it is empty.

    ValueError for a name that does not exist.
    """
    chosen: dict[str, list[str]] = {}
    for name, scenario in SCENARIOS.items():
        for peer in scenario.peers:
            if not only or any(_names(word, name, peer) for word in only):
                chosen.setdefault(name, []).append(peer)
    for word in only:
        if not any(_names(word, name, peer) for name, peers in chosen.items() for peer in peers):
            raise ValueError(f"{word} is no scenario, no SCENARIO/PEER and no /PEER; --list shows them")
    return chosen


def _names(word: str, scenario: str, peer: str) -> bool:
    wanted_scenario, _, wanted_peer = word.partition("/")
    return wanted_scenario in ("", scenario) and wanted_peer in ("", peer)


def run(plan: Plan, into: Path, say: Callable[[str], None], *, resume: bool = False) -> dict[str, Any]:
    """Runs what is not in `into` yet (with `resume`), and returns the report that `into` then holds."""
    report = _report(plan)
    if resume and into.exists():
        before = json.loads(into.read_text())
        report["results"] = before["results"]
        report["scenarios"] = {**before["scenarios"], **report["scenarios"]}
    done = {(r["round"], r["scenario"], r["peer"]) for r in report["results"] if "left_out" not in r}
    report["results"] = [r for r in report["results"] if (r["round"], r["scenario"], r["peer"]) in done]
    into.parent.mkdir(parents=True, exist_ok=True)
    pythons = {peer: _python(peer, say) for peer in sorted({p for peers in plan.scenarios.values() for p in peers})}
    hopeless: set[tuple[str, str]] = set()
    begun = time.monotonic()
    took: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory(prefix="lakemirror-bench-") as place, _reader() as reader:
        data: dict[str, Path] = {}
        for number, scenario, peer in plan.cells():
            if (number, scenario, peer) in done or (scenario, peer) in hopeless:
                continue
            say(f"round {number}: {scenario} {peer} …")
            left = plan.budget - (time.monotonic() - begun)
            if left <= took.get((scenario, peer), 0.0):
                result: dict[str, Any] = {"left_out": f"the time budget of {plan.budget:.0f} s is used up"}
            else:
                started = time.monotonic()
                limit = min(plan.limit, left)
                result = _cell(scenario, peer, pythons[peer], data, plan, Path(place), limit, reader)
                took[scenario, peer] = time.monotonic() - started
                say("  " + brief(result))
            if "failed" in result or "missing" in result:
                hopeless.add((scenario, peer))  # its row says so whatever later rounds find: they go to the others
            wall = round(time.monotonic() - begun, 1)
            report["results"].append({"round": number, "scenario": scenario, "peer": peer, "at": wall, **result})
            _write(into, report)
    return report


def brief(result: Mapping[str, Any]) -> str:
    """One result in a few words."""
    for kind in ("failed", "missing", "left_out"):
        if kind in result:
            return f"{kind.replace('_', ' ')}: {result[kind]}"
    return f"{result['seconds']:.2f} s" + ("" if result["right"] else ", WRONG")


def _python(peer: str, say: Callable[[str], None]) -> Python | Missing:
    """What runs a peer, made here and now, or why it cannot be had; no part of the time budget."""
    try:
        return ensure(PEERS[peer].environment)
    except Missing as reason:
        say(f"{peer} is missing: {reason}")
        return reason


def _cell(
    scenario: str, peer: str, python: Python | Missing, data: dict[str, Path], plan: Plan, place: Path, limit: float,
    reader: Reader | None,
) -> dict[str, Any]:  # fmt: skip
    if isinstance(python, Missing):
        return {"missing": str(python)}
    try:
        if scenario not in data:
            data[scenario] = _make(scenario, plan.size(scenario), place / "data")
    except Exception as error:
        return {"failed": f"the data could not be made: {type(error).__name__}: {error}"[:300]}
    folder = Path(tempfile.mkdtemp(prefix="peer-", dir=place))
    try:
        result = measure(*python, [scenario, peer, str(data[scenario]), str(folder / "tables")], limit)
        fresh = SCENARIOS[scenario].compares_reading
        return result if reader is None else read_by(reader, result, fresh=fresh, times=3 if plan.full or fresh else 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_by(reader: Reader, result: dict[str, Any], *, fresh: bool, times: int) -> dict[str, Any]:
    """The result with what Delta Spark finds in the peer's table, and how long it takes; as it is for other formats."""
    asked = result.pop("delta", None)
    if asked is None:
        return result
    try:
        found = reader.read(**asked, fresh=fresh, times=times)
    except RuntimeError as error:
        return {"failed": f"Delta Spark cannot read its table: {error}"[:300]}
    result |= {"read": round(found["read"], 3), "right": result["right"] and found["digest"] == result["digest"]}
    if fresh:
        result.setdefault("extra", {})["read to fresh"] = found["read"] / found["fresh"]
    return result


@contextlib.contextmanager
def _reader() -> Iterator[Reader | None]:
    """The reader of Delta tables; None where there is no Java."""
    try:
        python, variables = ensure("")
    except Missing:
        yield None
        return
    reader = Reader(python, _environment(variables), REPOSITORY)
    try:
        yield reader
    finally:
        reader.close()


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}


def _make(scenario: str, size: Size, store: Path) -> Path:
    store.mkdir(exist_ok=True)
    path = store / f"{scenario}.json"
    made: Data = SCENARIOS[scenario].make(store, size)
    made.write(path)
    os.sync()  # so that no cell waits for the disk to take this data
    return path


def measure(python: Path, variables: Mapping[str, str], arguments: Sequence[str], limit: float) -> dict[str, Any]:
    """Runs the worker; what it printed and its peak memory, or why there is nothing. Ends it after `limit` seconds."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            [str(python), "-m", "benchmarks.worker", *arguments],
            stdout=out,
            stderr=err,
            cwd=REPOSITORY,
            env=_environment(variables),
        )
        peak = process.Peak(child.pid)
        try:
            with peak:
                child.wait(limit)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done within {limit:.0f} s"}
        finally:
            process.end(child.pid)
            child.wait()
            process.settle(peak.members)  # a JVM outlives its Python for a moment
        lines = _lines(out)
        with contextlib.suppress(IndexError, json.JSONDecodeError):
            return {**json.loads(lines[-1]), "peak": peak.bytes}
        return {"failed": f"exit code {child.returncode}: {(_lines(err) or ['it said nothing'])[-1]}"[:300]}


def _lines(file: Any) -> list[str]:
    file.seek(0)
    return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]


def _report(plan: Plan) -> dict[str, Any]:
    scenarios = {
        name: {
            "title": one.title,
            "headline": one.headline,
            "timed": one.timed,
            "size": str(plan.size(name)),
        }
        for name, one in ((name, SCENARIOS[name]) for name in plan.scenarios)
    }
    return {"machine": machine(), "full": plan.full, "scenarios": scenarios, "results": []}


def machine() -> str:
    """The machine and the day, for whoever reads the figures later."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = "unknown processor"
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    python = f"Python {platform.python_version()}"
    day = time.strftime("%Y-%m-%d")
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {platform.system()}, {python}, {day}"


def _write(path: Path, report: Mapping[str, Any]) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(report, indent=1))
    fresh.replace(path)


def say(line: str) -> None:
    """Progress, on stderr."""
    print(line, file=sys.stderr, flush=True)
