"""`Landing.cut()`: a manifest after every file that it names and before any later one, on a disk and at a service."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Buffer, Landing
from lakemirror.publisher.folders.local_folder import LocalFolder
from lakemirror.publisher.sequence import Sequence


@pytest.fixture(params=["folder", "service"])
def landing(request: pytest.FixtureRequest, db: Path) -> Landing:
    return Landing(db) if request.param == "folder" else request.getfixturevalue("doors").landing(db)  # type: ignore[no-any-return]


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "shop"


def manifests(db: Path) -> list[Any]:
    return [json.loads(path.read_text()) for path in sorted((db / "Files/LandingZone/_cuts").glob("[0-9]*.json"))]


def test_a_cut_names_the_last_file_of_every_table(landing: Landing, db: Path) -> None:
    orders, items = landing.table("orders", keys=["id"]), landing.table("items", schema="s")
    orders.load([{"id": 1}])
    orders.upsert([{"id": 2}])
    items.insert([{"id": 1}])
    assert (landing.cut().number, landing.cut(["s.items", "none.yet"], position="7", time="noon").number) == (1, 2)
    first, second = manifests(db)
    assert first["tables"] == {"orders": 2, "s.items": 1} and set(first["files"]) == {"orders", "s.items"}
    assert second["tables"] == {"s.items": 1, "none.yet": 0}
    assert (second["position"], second["time"]) == ("7", "noon")
    assert not [path.name for path in (db / "Files/LandingZone/_cuts").iterdir() if not path.name[0].isdigit()]
    database = MirroredDatabase(db, engine="local")
    database.sync()
    assert database.cut(1).versions == {"orders": 0, "s.items": 0}
    assert database.cut().versions == {"s.items": 0}


def test_what_is_gathered_belongs_to_the_cut(landing: Landing, db: Path) -> None:
    table = landing.table("orders", keys=["id"], buffer=Buffer(seconds=3600))
    table.upsert([{"id": 1}])
    assert landing.cut().tables == {"orders": 1}


def test_applied_files_count(landing: Landing, db: Path) -> None:
    table = landing.table("orders", keys=["id"])
    table.load([{"id": 1}])
    MirroredDatabase(db, engine="local").sync()
    table.upsert([{"id": 2}])
    MirroredDatabase(db, engine="local").sync()
    assert landing.cut().tables == {"orders": 2}
    assert MirroredDatabase(db, engine="local").cut().versions == {"orders": 1}


def test_a_number_that_is_taken_is_left_alone(landing: Landing, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landing.table("orders", keys=["id"]).load([{"id": 1}])
    landing.cut()
    before = manifests(db)
    true = LocalFolder.names
    if type(landing.folder("x")) is not LocalFolder:
        pytest.skip("one kind of folder is enough")
    monkeypatch.setattr(
        LocalFolder, "names", lambda self, *given: [] if self.path.name == "_cuts" else true(self, *given)
    )
    assert landing.cut().number == 2
    assert manifests(db)[:1] == before


@pytest.mark.parametrize("name", ["", "_x", "a/b", "s._x", ".x"])
def test_names_that_are_no_table(landing: Landing, name: str) -> None:
    with pytest.raises(LakemirrorError, match="input-invalid"):
        landing.cut([name])


def test_no_publisher_numbers_a_file_within_a_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at a table and the manifest, another publisher waits."""
    tables = [Landing(tmp_path).table(name, keys=["id"]) for name in ("a", "b")]
    for table in tables:
        table.load([{"id": 1}])
    true, others = Sequence.newest, []

    def newest(self: Sequence) -> int:
        found = true(self)
        if not others:
            other = Landing(tmp_path).table("a")
            others.append(threading.Thread(target=other.upsert, args=([{"id": 2}],)))
            others[0].start()
            others[0].join(0.3)
        return found

    held = Landing(tmp_path)
    names = held._names()
    monkeypatch.setattr(Landing, "_names", lambda _: names)
    monkeypatch.setattr(Sequence, "newest", newest)
    assert held.cut().tables == {"a": 1, "b": 1}
    others[0].join()
    manifest = tmp_path / "Files/LandingZone/_cuts" / f"{1:020}.json"
    later = tmp_path / "Files/LandingZone/a" / f"{2:020}.parquet"
    assert manifest.stat().st_ctime_ns <= later.stat().st_ctime_ns
