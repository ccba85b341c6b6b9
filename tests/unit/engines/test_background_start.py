"""Spark's start in the background: nobody waits for it, and nothing stops where it fails. Spark is a double."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.landing import MARKER, declare, put
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase, api
from lakemirror.engines import background_start, engine
from lakemirror.engines.background_start import AGAIN, BackgroundStart, reason_against
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.mirror import scheduler
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import machine_memory

JOB = LakemirrorError("spark-job-failed", "a worker was killed")


@pytest.fixture(autouse=True)
def _room_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_start, "has_pyspark", lambda: True)
    monkeypatch.setattr(background_start, "free_memory", lambda: None)


def fails() -> object:
    raise SetupError("java-missing", "no Java 17 found")


def asked(start: Callable[[], object], now: float = 0.0) -> BackgroundStart:
    begun = BackgroundStart(Settings(), start)
    begun.ask(now)
    assert begun.thread is not None
    begun.thread.join(10)
    return begun


def test_it_is_starting_until_it_is_ready() -> None:
    go = threading.Event()
    begun = BackgroundStart(Settings(), lambda: go.wait(10))
    assert (begun.is_starting, begun.is_ready, begun.reason) == (False, False, "")
    begun.ask()
    first = begun.thread
    begun.ask()
    assert (begun.is_starting, begun.is_ready, begun.thread) == (True, False, first)
    go.set()
    assert first is not None
    first.join(10)
    assert (begun.is_starting, begun.is_ready, begun.reason) == (False, True, "")


def test_a_start_that_fails_is_tried_again_later() -> None:
    tries: list[float] = []
    begun = asked(lambda: tries.append(0) or fails())  # type: ignore[func-returns-value]
    assert not begun.is_starting and "no Java 17 found" in begun.reason
    begun.ask(begun._failed_at + AGAIN - 1)
    assert len(tries) == 1
    begun.ask(begun._failed_at + AGAIN + 1)
    assert begun.thread is not None
    begun.thread.join(10)
    assert len(tries) == 2


def test_a_process_that_gets_no_thread_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("can't start")))
    begun = BackgroundStart(Settings(), lambda: None)
    begun.ask()
    assert not begun.is_starting and "can't start" in begun.reason


def test_work_that_began_before_spark_was_given_up_goes_on() -> None:
    begun = asked(lambda: None)
    before = time.monotonic()
    assert begun.give_up(JOB, before) and not begun.is_ready and "a worker was killed" in begun.reason
    assert begun.give_up(JOB, before), "a table that used the same Spark"
    assert not begun.give_up(JOB, time.monotonic()), "a table that only Spark can apply"


def test_a_machine_without_pyspark_or_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reason_against(Settings()) == ""
    monkeypatch.setattr(background_start, "free_memory", lambda: 1 << 30)
    assert reason_against(Settings()).startswith("1.0 GiB of memory are free, and it may take ")
    monkeypatch.setattr(background_start, "has_pyspark", lambda: False)
    assert reason_against(Settings()) == "PySpark is not installed"
    begun = BackgroundStart(Settings(), fails)
    begun.ask()
    assert begun.thread is None and begun.reason == "PySpark is not installed"


def test_free_memory_is_that_of_the_container(tmp_path: Path) -> None:
    assert machine_memory.free_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:  4000 kB\n")
    assert machine_memory.free_memory(tmp_path) == 4000 * 1024
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    assert machine_memory.free_memory(tmp_path) == 4000 * 1024
    (group / "memory.max").write_text("3000000\n")
    (group / "memory.current").write_text("2500000\n")
    (group / "memory.stat").write_text("anon 1\ninactive_file 1000000\nactive_file 200000\n")
    assert machine_memory.free_memory(tmp_path) == 3000000 - 1300000


class Seen:
    """What was applied: engine, reason and files of each commit. `after_first` is called in the first one."""

    def __init__(self, after_first: Callable[[], None] = lambda: None) -> None:
        self.commits: list[tuple[str, str, int]] = []
        self._after_first = after_first

    def applied(self, name: Any, applied: Any) -> None:
        self.commits.append((applied.engine, applied.engine_reason, len(applied.batch.files)))
        if len(self.commits) == 1:
            self._after_first()

    def failed(self, name: Any, error: Any) -> None: ...

    def dropped(self, target: str) -> None: ...


class Double(LocalEngine):
    """A Spark engine that threads carry out, or that fails with `error`."""

    name = "spark"
    error: Exception | None = None

    def run(self, work: Any) -> Any:
        if self.error is not None:
            raise self.error
        return super().run(work)


def join() -> None:
    for thread in [each for each in threading.enumerate() if each.name == "spark-start"]:
        thread.join(10)


@pytest.fixture
def backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Six files of a table, of which each is a batch while Spark starts; Spark is a double that starts when told."""
    declare(tmp_path, "t", ["id"])
    for number in range(1, 7):
        put(tmp_path, "t", number, {"id": [1, number], "n": [number, number], MARKER: [4, 4]})
    monkeypatch.setattr(engine, "WHILE_STARTING", 1)
    monkeypatch.setattr("lakemirror.mirror.planner.WHILE_STARTING", 1)
    yield tmp_path
    join()


ROWS = Counter([(1, 6), *((number, number) for number in range(2, 7))])


def test_what_has_not_begun_when_spark_is_ready_goes_to_spark(backlog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(engine.Engines, "_spark", lambda self: go.wait(10) and Double())
    seen = Seen(lambda: (go.set(), join())[0])  # type: ignore[func-returns-value]
    assert not MirroredDatabase(backlog, spark_from_bytes=10).sync(seen).failed
    assert [(name, files) for name, _, files in seen.commits] == [("local", 1), ("spark", 5)]
    assert "Spark is starting" in seen.commits[0][1] and seen.commits[1][1].endswith("wait, and Spark has started")
    (shown,) = MirroredDatabase(backlog).status().tables
    assert (shown.engine, shown.engine_reason) == ("spark", seen.commits[1][1])
    assert table_rows(backlog, "t") == ROWS


def test_nobody_waits_for_a_start_that_takes_long(backlog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(engine.Engines, "_spark", lambda self: go.wait(60))
    seen = Seen()
    assert not MirroredDatabase(backlog, spark_from_bytes=10).sync(seen).failed
    go.set()
    assert [(name, files) for name, _, files in seen.commits] == [("local", 1)] * 6
    assert table_rows(backlog, "t") == ROWS


@pytest.mark.parametrize("how", ["no Java", "no memory"])
def test_a_start_that_fails_stops_nothing(how: str, backlog: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "no memory":
        monkeypatch.setattr(background_start, "free_memory", lambda: 0)
    monkeypatch.setattr(api, "_start_spark", lambda *_, **__: fails())
    seen = Seen(join)
    assert not MirroredDatabase(backlog, spark_from_bytes=10).sync(seen).failed
    said = "Spark cannot help: " + ("0.0 GiB of memory" if how == "no memory" else "java-missing: no Java 17")
    assert {name for name, *_ in seen.commits} == {"local"} and said in seen.commits[-1][1]
    assert table_rows(backlog, "t") == ROWS


@pytest.mark.parametrize("error", [JOB, ConnectionError("Spark's process has ended")])
def test_a_spark_that_fails_at_its_work_is_given_up(
    error: Exception, backlog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Double, "error", error)
    go = threading.Event()
    monkeypatch.setattr(engine.Engines, "_spark", lambda self: go.wait(10) and Double())
    seen = Seen(lambda: (go.set(), join())[0])  # type: ignore[func-returns-value]
    assert not MirroredDatabase(backlog, spark_from_bytes=10).sync(seen).failed
    assert [(name, files) for name, _, files in seen.commits] == [("local", 1), ("local", 5)]
    assert str(error) in seen.commits[-1][1]
    assert table_rows(backlog, "t") == ROWS


@pytest.mark.parametrize("settings", [{}, {"engine": "local", "spark_from_bytes": 1}])
def test_below_the_limit_and_with_engine_local_nothing_starts(
    settings: dict[str, Any], backlog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler.Engines, "_spark", lambda self: pytest.fail("Spark is started"))
    seen = Seen()
    assert not MirroredDatabase(backlog, **settings).sync(seen).failed
    assert [(name, files) for name, _, files in seen.commits] == [("local", 6)]
    assert not [each for each in threading.enumerate() if each.name == "spark-start"]


def test_all_tables_of_the_pass_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[int] = []
    monkeypatch.setattr(scheduler.Engines, "preference", lambda self: asked_for.append(sum(self._waiting.values())))
    for name in ("a", "b", "c"):
        declare(tmp_path, name, ["id"])
        put(tmp_path, name, 1, {"id": list(range(1000))}, compression="zstd")
    one = (tmp_path / "Files/LandingZone/a" / f"{1:020}.parquet").stat().st_size
    assert not MirroredDatabase(tmp_path, parallel_tables=1).sync().failed
    assert len(asked_for) == 3
    assert max(asked_for) > 2 * one, "tables that wait behind the one that is applied"
