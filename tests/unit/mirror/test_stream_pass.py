"""One pass of a streaming query, without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.databases import Database

from lakemirror.maintenance.idle_work import Pace
from lakemirror.publisher import Landing
from lakemirror.spark import mirror_stream

FRAME: Any = SimpleNamespace(sparkSession=None)


@pytest.fixture(autouse=True)
def no_work_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nor is there any of other tests in this process."""
    monkeypatch.setattr(mirror_stream, "_maintained", {})
    yield
    for maintenance in mirror_stream._maintained.values():
        maintenance.stop()


def test_idle_work_follows_later_passes(tmp_path: Path) -> None:
    """Not the first pass of a process, nor where the setting says no."""
    shop, orders = Database(str(tmp_path / "shop"), {}), Landing(tmp_path / "shop").table("orders", keys=["id"])
    orders.upsert([{"id": number} for number in range(100)])
    run = mirror_stream.Pass(shop.address, settings={"engine": "local"})
    run(FRAME, 0)
    (maintenance,) = mirror_stream._maintained.values()
    maintenance.pace = Pace(compact_after=1, quiet=0.0, rested=0.0)
    orders.delete([{"id": number} for number in range(50)])
    mirror_stream.Pass(shop.address, settings={"engine": "local", "maintenance": False})(FRAME, 1)
    assert maintenance._work is None
    deadline, number = time.monotonic() + 60, 2
    while "OPTIMIZE" not in operations(shop) and time.monotonic() < deadline:
        run(FRAME, number)
        time.sleep(0.05)
        number += 1
    assert operations(shop)[:2] == ["WRITE", "WRITE"] and "OPTIMIZE" in operations(shop)
    assert sorted(row[0] for row in shop.bag("orders").elements()) == list(range(50, 100))


def operations(shop: Database) -> list[str]:
    from deltalake import DeltaTable

    return [commit["operation"] for commit in reversed(DeltaTable(shop.table("orders")).history())]
