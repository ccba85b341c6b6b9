"""`run --register`: the catalog's entries are made again when a table is new or dropped, and errors end nothing."""

from __future__ import annotations

import logging
import queue
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from lakemirror import MirroredDatabase
from lakemirror.cli.run_log import RunLog
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.readers import catalog_follower
from lakemirror.readers.catalog_entries import Registered
from lakemirror.readers.catalog_follower import CatalogFollower


def test_it_registers_when_tables_come_and_go(tmp_path: Path) -> None:
    told = queue.Queue[Any]()
    calls: list[set[str]] = []

    def register() -> Registered:
        calls.append({each.name for each in (tmp_path / "Tables").glob("*")})
        if len(calls) == 1:
            raise RuntimeError("the metastore is away")
        return Registered()

    follower = CatalogFollower(register, told.put)
    follower.start()
    first = told.get(timeout=10)
    assert isinstance(first, LakemirrorError) and "the metastore is away" in first.message
    database = MirroredDatabase(tmp_path, engine="local", drop_after=0)
    orders = Landing(tmp_path).table("orders", ["id"])
    orders.insert([{"id": 1}])
    database.sync(follower)
    assert isinstance(told.get(timeout=10), Registered)
    assert calls[-1] == {"orders"}
    orders.insert([{"id": 2}])
    database.sync(follower)
    assert told.empty() and len(calls) == 2  # the table is known
    shutil.rmtree(tmp_path / "Files/LandingZone/orders")
    for _ in range(2):  # the second pass that misses the folder drops the table
        database.sync(follower)
    assert isinstance(told.get(timeout=10), Registered)
    assert calls[-1] == set()
    follower.stop(10)
    assert not [t for t in threading.enumerate() if t.name == "catalog"]


def test_it_tries_again_without_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_follower, "AGAIN", 0.01)
    told = queue.Queue[Any]()
    follower = CatalogFollower(Registered, told.put)
    follower.start()
    assert [type(told.get(timeout=10)) for _ in range(3)] == [Registered] * 3
    follower.stop(10)


def test_each_error_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    said = RunLog(tmp_path, "text")
    root.handlers[:], root.level = before  # those of the log of a run have replaced pytest's
    caplog.set_level(logging.INFO, "lakemirror.run")
    taken = Registered(created=["c.s.new"], failed={"orders": LakemirrorError("catalog-name-taken", "held by a view")})
    said.registered(taken)
    said.registered(Registered(failed=dict(taken.failed)))
    said.registered(LakemirrorError("catalog-refused", "away"))
    said.registered(taken)
    messages = [record.getMessage() for record in caplog.records]
    assert [sum(word in each for each in messages) for word in ("c.s.new: created", "held by a view", "away")] == [
        2,
        2,
        1,
    ]
