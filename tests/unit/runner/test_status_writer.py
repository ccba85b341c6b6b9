"""When the status is written, where writing it takes long: a database of many tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakemirror.landing_zone.zone import LANDING_ZONE, TableName, Zone
from lakemirror.mirror import status_writer, table_states
from lakemirror.mirror.status_writer import StatusWriter
from lakemirror.mirror.table_state import TableState
from lakemirror.mirror.table_states import TableStates
from lakemirror.status import status as monitoring
from lakemirror.status.status_reader import last_status, read_status
from lakemirror.storage import LocalStorage, local

ORDERS = TableName("", "orders")


class Clock:
    """Monotonic seconds; each write of a file takes `each`."""

    def __init__(self, each: float) -> None:
        self.now, self.each, self.writes = 1000.0, each, 0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(0.2)
    write = local._put

    def slow(folder: int, name: str, data: bytes) -> None:
        clock.now += clock.each
        clock.writes += 1
        write(folder, name, data)

    monkeypatch.setattr(local, "_put", slow)
    monkeypatch.setattr(status_writer, "time", clock)
    return clock


class Database:
    """The parts of a running database that its status is made from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / LANDING_ZONE).mkdir(parents=True)
        self.scheduler: Any = SimpleNamespace(
            zone=Zone({}, []),
            tables=TableStates((), [], 0.0),
            at_work=0,
            dropped=SimpleNamespace(warnings=[]),
        )
        self.scheduler.tables.by_name[ORDERS] = TableState()
        self.writer = StatusWriter(LocalStorage(folder), monitoring.DatabaseStatus("Stopped"))

    def at(self, number: int) -> None:
        states = self.scheduler.tables.by_name
        states[ORDERS] = replace(states[ORDERS], position=number)

    def write(self, status: str = "Running") -> int:
        """The position of the table in the status after it was to be written."""
        self.writer.write(status, self.scheduler)
        written = json.loads((self.folder / monitoring.TABLES).read_text())
        return int(written["tables"][0]["position"])


def test_a_status_that_takes_long_to_write_leaves_most_of_the_time_to_applies(tmp_path: Path, clock: Clock) -> None:
    database = Database(tmp_path)
    database.at(1)
    assert database.write() == 1
    for number in (2, 3):
        clock.now += 1.0
        database.at(number)
        assert database.write() == 1, "the write before took 0.4 s: the next one comes after ten times that"
    clock.now += 2.5
    assert database.write() == 3


def test_the_last_status_of_an_engine_is_written_at_once(tmp_path: Path, clock: Clock) -> None:
    database = Database(tmp_path)
    database.write()
    database.at(5)
    assert database.write("Stopped") == 5


def test_nothing_is_written_or_computed_again_while_no_table_changes(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(tmp_path)
    database.at(1)
    database.write()
    writes = clock.writes
    monkeypatch.setattr(table_states, "table_status", None)
    clock.now += 6.0
    assert database.write() == 1
    assert clock.writes == writes


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"tables": 3}'])
@pytest.mark.parametrize("file", [monitoring.TABLES, monitoring.REPLICATOR])
@pytest.mark.parametrize("tables", [0, 1])
def test_what_an_earlier_process_left_damaged_is_written_again(
    tmp_path: Path, content: bytes, file: str, tables: int
) -> None:
    """A power cut may leave a status file empty."""
    storage = LocalStorage(tmp_path)

    def a_process(database: Database) -> None:
        database.scheduler.tables.by_name = dict([(ORDERS, TableState())][:tables])
        database.writer = StatusWriter(storage, last_status(storage))
        database.writer.write("Stopped", database.scheduler)

    database = Database(tmp_path)
    a_process(database)
    storage.write(file, content)
    a_process(database)
    found = read_status(storage)
    assert found is not None and (found.status, len(found.tables)) == ("Stopped", tables)
    assert len(json.loads(storage.read(monitoring.TABLES))["tables"]) == tables
