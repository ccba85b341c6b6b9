"""When a streaming query makes its next pass: the offsets of its source, without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakemirror.api import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing

arrivals = pytest.importorskip("lakemirror.spark.arrivals", reason="PySpark 4.0 or newer is not installed")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets so many seconds pass."""
    now = [1000.0]

    class Time:
        @staticmethod
        def monotonic() -> float:
            return now[0]

    monkeypatch.setattr(arrivals, "time", Time)

    def wait(seconds: float) -> None:
        now[0] += seconds

    return wait


class Query:
    """Asks as Spark does; a new offset is followed by a pass."""

    def __init__(self, folder: Path, wait: Callable[[float], None]) -> None:
        self.database = MirroredDatabase(folder, engine="local", drop_after=0)
        self.reader = arrivals.ArrivalsReader(str(folder))
        self.last: dict[str, Any] = self.reader.initialOffset()
        self._wait = wait

    def trigger(self, seconds: float = 1.0) -> list[str] | None:
        """The files of a batch, by table and number; None if there was no batch."""
        self._wait(seconds)
        start, end = self.last, self.reader.latestOffset()
        if end == start:
            return None
        self.last = end
        (partition,) = self.reader.partitions(start, end)
        rows = list(self.reader.read(partition))
        assert (end["files"], end["bytes"]) == (len(rows), sum(row[2] for row in rows))
        assert all(Path(self.database.storage.uri(row[1])).stat().st_size == row[2] for row in rows)
        self.database.sync()
        return sorted(f"{table} {int(Path(file).stem)}" for table, file, _ in rows)


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path / "shop")


def test_a_batch_for_what_came(landing: Landing, tmp_path: Path, clock: Callable[[float], None]) -> None:
    orders = landing.table("orders", keys=["id"])
    orders.upsert([{"id": 1}])
    query = Query(tmp_path / "shop", clock)
    assert query.trigger() == ["orders 1"]
    assert query.trigger() == [], "the folder has a marker now"
    assert query.trigger() is None
    orders.upsert([{"id": 2}])
    orders.upsert([{"id": 3}])
    landing.table("new", schema="s").insert([{"id": 1}])
    assert query.trigger() == ["orders 2", "orders 3", "s.new 1"]
    query.trigger()
    assert query.trigger() is None
    assert Query(tmp_path / "shop", clock).trigger() is not None, "each start is a pass"


def test_a_batch_for_other_changes(landing: Landing, tmp_path: Path, clock: Callable[[float], None]) -> None:
    orders = landing.table("orders", keys=["id"])
    orders.upsert([{"id": 1}])
    query = Query(tmp_path / "shop", clock)
    while query.trigger() is not None:
        pass

    def is_followed() -> bool:
        followed = query.trigger() is not None
        while query.trigger() is not None:
            pass
        return followed

    assert not is_followed()
    (tmp_path / "shop/mirroring.json").write_text("{}")
    assert is_followed()
    (orders.folder / "_paused.json").write_text("{}")
    assert query.trigger() is not None
    (orders.folder / "_paused.json").unlink()
    assert is_followed()
    (orders.folder / "_mirror.json").unlink()
    assert is_followed(), "the folder was made again"
    orders.drop()
    assert query.trigger() == []
    assert query.trigger(arrivals.IDLE) == [], "retention"
    (tmp_path / "shop/Files/LandingZone").rename(tmp_path / "away")
    with pytest.raises(LakemirrorError, match="no Files/LandingZone"):
        query.trigger()


def test_a_batch_while_something_waits(landing: Landing, tmp_path: Path, clock: Callable[[float], None]) -> None:
    """Every two seconds, or as seldom as passes are slow."""
    orders = landing.table("orders")
    orders.insert([{"id": 1}])
    orders.insert([{"id": 2}])
    gap = orders.folder / f"{2:020}.parquet"
    gap.rename(orders.folder / f"{3:020}.parquet")
    query = Query(tmp_path / "shop", clock)
    assert query.trigger() == ["orders 1", "orders 3"]
    assert query.trigger() == [], "a marker"
    taken = [query.trigger(0.5) is not None for _ in range(8)]
    assert taken == [False, False, False, True] * 2
    query.trigger(100.0)
    query.trigger(10.0)
    assert query.trigger(29.0) is None
    assert query.trigger(2.0) == []
