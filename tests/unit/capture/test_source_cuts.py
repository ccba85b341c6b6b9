"""When a capture makes a cut: never while a table's files end elsewhere than the others'."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakemirror.landing_zone.zone import CUTS
from lakemirror.publisher import Landing, LandingTable
from lakemirror.publisher.capture import source_cuts
from lakemirror.publisher.capture.source_cuts import SourceCuts


@dataclass
class Stream:
    """What a cut asks a table for."""

    table: LandingTable
    position: int = 5
    final: bool = True

    def is_at(self, commit: int) -> bool:
        return self.final and self.position <= commit


@pytest.fixture
def streams(tmp_path: Path) -> dict[Any, Any]:
    tables = {("s", name): Landing(tmp_path).table(name, schema="s", keys=["id"]) for name in ("a", "b")}
    for table in tables.values():
        table.load([{"id": 1}])
    return {name: Stream(table) for name, table in tables.items()}


def cuts(tmp_path: Path, every: float = 1e-9, said: list[str] | None = None) -> SourceCuts:
    return SourceCuts(Landing(tmp_path).folder(CUTS), every, (said if said is not None else []).append)


def written(tmp_path: Path) -> list[Any]:
    return [json.loads(path.read_text()) for path in sorted((tmp_path / CUTS).glob("*.json"))]


def test_a_cut_has_the_source_s_position_and_time(tmp_path: Path, streams: Any) -> None:
    assert cuts(tmp_path).step(streams, 7, 1_700_000_000_123) == 1
    (manifest,) = written(tmp_path)
    assert manifest["tables"] == {"s.a": 1, "s.b": 1} and manifest["position"] == "7"
    assert manifest["time"] == "2023-11-14T22:13:20.123+00:00"


@pytest.mark.parametrize("change", [{"position": 8}, {"final": False}])
def test_no_cut_while_a_table_ends_elsewhere(tmp_path: Path, streams: Any, change: dict[str, Any]) -> None:
    made = cuts(tmp_path)
    vars(streams["s", "a"]).update(change)
    assert made.step(streams, 7, 0) is None
    vars(streams["s", "a"]).update(position=8, final=True)
    assert made.step(streams, 8, 0) == 1


def test_no_cut_while_a_table_must_be_loaded_again(tmp_path: Path, streams: Any) -> None:
    """The catalog is looked at last: it costs a query."""
    made, looks = cuts(tmp_path), list[str]()
    assert made.step(streams, 7, 0, lambda: bool(looks.append("must"))) is None
    assert made.step(streams, 4, 0, lambda: bool(looks.append("too early"))) is None
    assert made.step(streams, 7, 0) == 1 and looks == ["must"]


def test_a_cut_is_made_once_and_in_its_time(tmp_path: Path, streams: Any) -> None:
    made = cuts(tmp_path, every=0.2)
    assert made.step(streams, 7, 0) is None, "it is not due yet"
    time.sleep(0.2)
    assert made.step(streams, 7, 0) == 1
    assert made.step(streams, 7, 0, now=True) is None, "nothing has happened since"
    assert made.step(streams, 9, 0, now=True) == 2
    assert cuts(tmp_path, every=0).step(streams, 9, 0, now=True) is None, "switched off"
    assert made.step({}, 11, 0, now=True) is None


def test_values_that_were_read_again_are_counted(tmp_path: Path, streams: Any) -> None:
    made = cuts(tmp_path)
    find = made.counting(lambda _: lambda key: key)(("s", "a"))
    assert find({"id": 1}) == {"id": 1} and find({"id": 2})
    now = int(time.time() * 1000)
    assert made.step(streams, 7, now) == 1
    assert made.step(streams, 8, now + 60_000) == 2
    assert [each.get("reread", 0) for each in written(tmp_path)] == [2, 0]


def test_a_landing_zone_that_fails_costs_the_cut_alone(
    tmp_path: Path, streams: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    made = cuts(tmp_path, said=said)

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(source_cuts, "write_cut", fails)
        assert made.step(streams, 7, 0) is None
    assert said == ["no cut could be made: disk full; tried again"]
    assert made.step(streams, 7, 0) == 1
