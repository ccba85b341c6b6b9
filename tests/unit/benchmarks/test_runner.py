"""The runner: what is chosen, in which turn, and that nothing a peer does ends the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks import runner
from benchmarks.environments import Missing
from benchmarks.figures import BESIDE, OURS
from benchmarks.peers import PEERS
from benchmarks.peers.lakemirror import NotWaiting
from benchmarks.process import Meter, Peak, family, processes, settle
from benchmarks.scenarios import SCENARIOS, Data, Size

from lakemirror.settings.settings import read_definition, resolve
from lakemirror.storage.place import storage_of


def test_rounds_go_through_all_cells_in_turn() -> None:
    peers = {"S5": ["plain-delta"], "S1": ["lakemirror", "hudi", "plain-delta"], "S3": ["lakemirror", "plain-delta"]}
    plan = runner.Plan(peers, rounds=2)
    once = [("S1", "lakemirror"), ("S3", "lakemirror"), ("S1", "plain-delta"), ("S3", "plain-delta"),
            ("S5", "plain-delta"), ("S1", "hudi")]  # fmt: skip
    assert [(s, p) for _, s, p in plan.cells()] == once * 2
    assert [n for n, _, _ in plan.cells()] == [1] * 6 + [2] * 6


def test_only_takes_scenarios_peers_and_both() -> None:
    assert runner.choose(["S3/delta-rs", "S9"]) == {"S3": ["delta-rs"], "S9": list(SCENARIOS["S9"].peers)}
    assert set(runner.choose(["/hudi"])) == {name for name, s in SCENARIOS.items() if "hudi" in s.peers}
    assert runner.choose([]) == {name: list(s.peers) for name, s in SCENARIOS.items()}
    for wrong in ("S11", "S3/nobody", "S10/hudi"):
        with pytest.raises(ValueError, match=wrong):
            runner.choose(["S3", wrong])


def test_every_scenario_names_peers_that_there_are_ours_among_them() -> None:
    for scenario in SCENARIOS.values():
        assert set(scenario.peers) <= set(PEERS) and scenario.peers[:2] == (OURS, BESIDE), scenario.name
        assert scenario.timed.endswith(".") and scenario.timed in runner._report(runner.Plan({scenario.name: []}))[
            "scenarios"][scenario.name]["timed"], "the page says what is timed"  # fmt: skip


def test_process_durability_is_the_database_s_own_also_for_the_command(tmp_path: Path) -> None:
    peer = NotWaiting(tmp_path / "db")
    peer.command()
    assert resolve(read_definition(storage_of(tmp_path / "db"))).durability == "process"
    assert resolve({}).durability == "power"


def test_data_come_back_as_they_were_written(tmp_path: Path) -> None:
    data = Data(Size(5, 2, 3, pause=0.5), [tmp_path / "a"], [tmp_path / "b"], ["extra1"], [1, 2])
    data.write(tmp_path / "data.json")
    assert Data.read(tmp_path / "data.json") == data


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the worker of a peer finds, by peer; an Exception is raised when its environment is asked for."""
    outcomes: dict[str, object] = {}

    def ensure(environment: str) -> tuple[Path, dict[str, str]]:
        if isinstance(outcomes.get(environment), Exception):
            raise outcomes[environment]  # type: ignore[misc]
        return Path(sys.executable), {}

    def measure(python: Path, variables: object, arguments: list[str], limit: float) -> object:
        return outcomes[arguments[1]]

    monkeypatch.setattr(runner, "ensure", ensure)
    monkeypatch.setattr(runner, "measure", measure)
    return outcomes


def test_what_fails_or_is_missing_is_recorded_and_the_run_goes_on(tmp_path: Path, cells: dict[str, object]) -> None:
    cells["hudi"] = Missing("no bundle")
    cells["plain-delta"] = {"failed": "boom"}
    cells["lakemirror"] = {"seconds": 1.0, "right": True}
    plan = runner.Plan({"S3": ["hudi", "plain-delta", "lakemirror"]}, rounds=2, scale=0.001)
    runner.run(plan, tmp_path / "results.json", lambda line: None)
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    found = {r["peer"]: r for r in results}
    assert [r["peer"] for r in results] == ["lakemirror", "plain-delta", "hudi", "lakemirror"]  # no second try
    assert found["hudi"]["missing"] == "no bundle"
    assert found["plain-delta"]["failed"] == "boom"
    assert found["lakemirror"]["seconds"] == 1.0


def test_what_the_budget_does_not_reach_is_left_out_and_resumed_later(tmp_path: Path, cells: dict[str, object]) -> None:
    cells["lakemirror"] = {"seconds": 1.0, "right": True}
    chosen = {"S3": ["lakemirror"]}
    into = tmp_path / "results.json"
    late = runner.run(runner.Plan(chosen, rounds=1, scale=0.001, budget=-1.0), into, lambda line: None)
    assert "budget" in late["results"][0]["left_out"]
    plan = runner.Plan(chosen, rounds=1, scale=0.001)
    again = runner.run(plan, into, lambda line: None, resume=True)
    assert [r.get("seconds") for r in again["results"]] == [1.0]
    cells["lakemirror"] = {"seconds": 99.0, "right": True}
    kept = runner.run(plan, into, lambda line: None, resume=True)
    assert [r.get("seconds") for r in kept["results"]] == [1.0]
    more = runner.run(runner.Plan({"S1": ["lakemirror"]}, 1, scale=0.001), into, lambda line: None, resume=True)
    assert list(more["scenarios"]) == ["S3", "S1"] and len(more["results"]) == 2


def test_a_worker_that_hangs_or_dies_is_told_with_its_reason(tmp_path: Path) -> None:
    def python(body: str) -> Path:
        script = tmp_path / "python"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        return script

    assert runner.measure(python("sleep 60 & wait"), {}, [], 0.3) == {"failed": "not done within 0 s"}
    assert runner.measure(python("echo cannot >&2; exit 3"), {}, [], 10) == {"failed": "exit code 3: cannot"}
    assert runner.measure(python("exit 4"), {}, [], 10) == {"failed": "exit code 4: it said nothing"}
    good = runner.measure(python("echo noise; echo '{\"seconds\": 1.5}'"), {}, [], 10)
    assert good["seconds"] == 1.5


def test_what_a_worker_leaves_behind_is_ended() -> None:
    parent = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 0.5"])
    with Peak(parent.pid, pause=0.05) as peak:
        parent.wait()
    left = [pid for pid in peak.members if pid != parent.pid and pid in processes()]
    assert left, "the sleep outlives the shell"
    settle(peak.members, patience=0.2)
    until = time.monotonic() + 10
    while set(left) & {pid for pid, one in processes().items() if one.memory} and time.monotonic() < until:
        time.sleep(0.05)
    assert not set(left) & {pid for pid, one in processes().items() if one.memory}


def test_another_process_with_the_same_id_is_left_alone() -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        settle({other.pid: processes()[other.pid].began - 1}, patience=0.0)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_the_meter_counts_what_is_written_and_the_peak_what_is_held(tmp_path: Path) -> None:
    with Meter() as meter, Peak(os.getpid(), pause=0.01) as peak:
        held = bytearray(os.urandom(1)) * 60_000_000
        (tmp_path / "file").write_bytes(held[:5_000_000])
        until = time.monotonic() + 10
        while peak.bytes < 60_000_000 and time.monotonic() < until:
            time.sleep(0.01)
    assert 5_000_000 <= meter.written < 6_000_000
    assert meter.seconds > 0
    assert peak.bytes >= 60_000_000
    assert os.getpid() in family(os.getpid(), processes())
