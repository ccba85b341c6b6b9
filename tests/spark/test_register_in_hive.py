"""`register` into a real Hive metastore, in Spark's own process (Derby) and by Thrift; another process opens it
afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hive_metastore import metastore

SCENARIO = Path(__file__).with_name("hive_scenario.py")
OTHERS = {"reg.viewed", "reg.alias", "reg.said"}
ORDERS, NEW, CUSTOMERS = (f"spark_catalog.{name}" for name in ("reg.orders", "reg.new", "sales.customers"))


@pytest.fixture(params=["derby", "thrift"])
def words(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """What names the metastore for the scenario."""
    if request.param == "derby":
        yield []
    else:
        with metastore(tmp_path / "server") as address:
            yield [address]


def run(place: Path, what: str, words: list[str]) -> dict[str, Any]:
    command = [sys.executable, str(SCENARIO), str(place), what, *words]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=place, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    said: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return said


def did(step: dict[str, Any]) -> tuple[list[str], list[str], list[str]]:
    return sorted(step["created"]), step["changed"], step["dropped"]


@pytest.mark.full
def test_entries_of_a_hive_metastore_follow_the_mirror(tmp_path: Path, words: list[str]) -> None:
    said = run(tmp_path, "first", words)
    made, again, new = said["made"], said["again"], said["new"]
    assert did(made) == ([ORDERS, CUSTOMERS], [], []) and not made["failed"]
    assert made["entries"].keys() == {"reg.orders", "sales.customers", *OTHERS}
    assert did(again) == ([], [], []) and again["entries"] == made["entries"]
    assert did(new) == ([NEW], [], [])
    assert {name: error["code"] for name, error in new["failed"].items()} == {"viewed": "catalog-name-taken"}
    assert said["widened"] == [[1, None], [2, "tea"]]
    assert said["of recreated"] == [["a"]]
    assert did(said["moved"]) == ([], [NEW], []) and said["of moved"] == [[5]]
    assert did(said["dropped"]) == ([], [], [ORDERS])
    last = said["dropped"]["entries"]
    assert last.keys() == {"reg.new", "sales.customers", *OTHERS}
    for step in ("again", "new", "recreated", "moved", "dropped"):
        assert {name: said[step]["entries"][name] for name in OTHERS} == {
            name: made["entries"][name] for name in OTHERS
        }
    afterwards = run(tmp_path, "later", words)
    assert afterwards["found"] == afterwards["again"]["entries"] == last
    assert did(afterwards["again"]) == ([], [], [])
    assert (afterwards["customers"], afterwards["said"]) == ([[1], [2]], [[7]])
