"""A table's goal of freshness, and who is told that it is missed."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from tests.commands import CommandRunner
from tests.landing import declare, folder, put

from lakemirror import MirroredDatabase
from lakemirror.cli import app
from lakemirror.errors import TableError
from lakemirror.landing_zone.metadata import parse_metadata
from lakemirror.publisher import Landing
from lakemirror.status.status import TableStatus
from lakemirror.status.status_reader import read_status
from lakemirror.status.table_metrics import DatabaseSeen, TableMetrics
from lakemirror.storage import LocalStorage


def shop(tmp_path: Path, goal: str, age: float) -> Path:
    """A database whose table `orders` has a file that waits for another one, and was written `age` seconds ago."""
    declare(tmp_path, "orders", ["id"], lakemirror={"freshness": goal})
    declare(tmp_path, "other", ["id"])
    for table in ("orders", "other"):
        put(tmp_path, table, 1, {"id": [1]})
        late = put(tmp_path, table, 3, {"id": [3]})
        os.utime(late, (time.time() - age, time.time() - age))
    MirroredDatabase(tmp_path, engine="local", durability="process").sync()
    return tmp_path


def run(*words: Any) -> tuple[int, str]:
    done = CommandRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout


@pytest.mark.parametrize(("goal", "is_missed"), [("30s", True), ("2m", False)])
def test_status_says_and_check_fails(tmp_path: Path, goal: str, is_missed: bool) -> None:
    database = shop(tmp_path, goal, 60.0)
    assert run("status", database, "--check")[0] == (3 if is_missed else 0)
    code, text = run("status", database)
    assert code == 0, "only --check asks"
    assert bool(re.search(r"orders: misses its freshness: 6\d s behind, its goal is 30 s", text)) == is_missed
    assert "other: misses" not in text
    orders, other = json.loads(run("status", database, "--json")[1])["tables"]
    assert orders["freshnessSeconds"] == (30.0 if goal == "30s" else 120.0)
    assert orders["freshnessMissed"] is is_missed
    assert "freshnessMissed" not in other
    stored = read_status(LocalStorage(database))
    assert stored is not None
    assert stored.tables[0].misses_goal(time.time()) is is_missed, "the page and the metrics read this"


def test_a_goal_that_is_met_again(tmp_path: Path) -> None:
    database = shop(tmp_path, "1s", 60.0)
    put(database, "orders", 2, {"id": [2]})
    MirroredDatabase(database, engine="local", durability="process").sync()
    assert run("status", database, "--check")[0] == 0


def test_a_goal_stays_while_the_folder_cannot_be_looked_at(tmp_path: Path) -> None:
    database = shop(tmp_path, "1s", 60.0)
    MirroredDatabase(database).pause("orders")
    MirroredDatabase(database, engine="local", durability="process").sync()
    assert run("status", database, "--check")[0] == 3


def test_the_metrics() -> None:
    now = time.time()
    table = TableStatus("", "Replicating", "orders", pending_files=1, oldest_pending=now - 60, freshness=30.0,
                        late_changes=2, ignored_deletes=3)  # fmt: skip
    registry = CollectorRegistry()
    registry.register(
        TableMetrics(lambda: [DatabaseSeen("", "shop", "Running", (table, replace(table, table="b", freshness=0.0)))])
    )
    text = generate_latest(registry).decode()
    labels = '{database="shop",schema="",table="%s",workspace=""}'
    assert f"lakemirror_table_freshness_goal_seconds{labels % 'orders'} 30.0" in text
    assert f"lakemirror_table_freshness_missed{labels % 'orders'} 1.0" in text
    assert f"lakemirror_table_freshness_missed{labels % 'b'} 0.0" in text
    assert f"lakemirror_table_late_changes_total{labels % 'orders'} 2.0" in text
    assert f"lakemirror_table_ignored_deletes_total{labels % 'orders'} 3.0" in text


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("500ms", 0.5), ("5 m", 300.0), ("1.5h", 5400.0), ("1d", 86_400.0)]
)
def test_durations(text: str, seconds: float) -> None:
    content = {"lakemirror": {"freshness": text}}
    assert parse_metadata(json.dumps(content).encode(), "orders/_metadata.json").options.freshness == seconds


@pytest.mark.parametrize("value", ["30", "soon", 30, "0s", "-1s", True, ["30s"], "99999d", "1s\n2s"])
def test_what_is_no_duration(value: Any) -> None:
    content = {"lakemirror": {"freshness": value}}
    with pytest.raises(TableError, match=r"lakemirror.freshness must be a duration"):
        parse_metadata(json.dumps(content).encode(), "orders/_metadata.json")


def test_a_publisher_leaves_the_goal_alone(tmp_path: Path) -> None:
    declare(tmp_path, "orders", ["id"], lakemirror={"freshness": "30s"})
    table = Landing(tmp_path).table("orders", keys=["id"])
    table.declare(deletes="soft")
    table.declare()
    content = json.loads((folder(tmp_path, "orders") / "_metadata.json").read_text())
    assert content["lakemirror"] == {"freshness": "30s"}
    table.upsert([{"id": 1}])
    table.recreate()
    content = json.loads((folder(tmp_path, "orders") / "_metadata.json").read_text())
    assert content["lakemirror"] == {"freshness": "30s"}
