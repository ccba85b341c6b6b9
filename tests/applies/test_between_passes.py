"""What an engine leaves to others between two passes: their files and folders, and complete status files."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from pathlib import Path

import pytest
from tests.landing import declare, folder, put, put_broken

from lakemirror import MirroredDatabase
from lakemirror.mirror.scheduler import Scheduler
from lakemirror.settings.settings import Settings
from lakemirror.storage import LocalStorage


def open_files(below: Path) -> list[str]:
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.append(str(each.readlink()))
    return [path for path in found if path.startswith(str(below))]


@pytest.mark.skipif(sys.platform != "linux", reason="open files are listed under /proc")
def test_no_file_of_a_publisher_is_open(tmp_path: Path) -> None:
    """Also where a file was bad, waits or is delimited text: a publisher's delete frees the space at once."""
    declare(tmp_path, "t", ["id"])
    declare(tmp_path, "text", fileFormat="CSV", lakemirror={"complete": "rename"})
    (folder(tmp_path, "text") / f"{1:020}.csv").write_text("id\r\n1\r\n")
    put(tmp_path, "t", 1, {"id": [1]})
    put_broken(tmp_path, "bad", 1)
    put_broken(tmp_path, "young", 1, age=0.0)
    scheduler = Scheduler(LocalStorage(tmp_path), Settings(engine="local", maintenance=False), lambda _: None)  # type: ignore[arg-type, return-value]
    with (folder(tmp_path, "t") / f"{1:020}.parquet").open():
        assert len(open_files(tmp_path)) == 1, "this test sees open files"
    for _ in range(2):
        scheduler.tick()
        assert scheduler.wait()
        assert open_files(tmp_path / "Files/LandingZone") == []
    assert {str(name): state.position for name, state in scheduler.states.items()} == {
        "t": 1, "text": 1, "bad": 0, "young": 0,
    }  # fmt: skip
    shutil.rmtree(folder(tmp_path, "t"))
    assert scheduler.stop()


def test_a_status_file_is_replaced_not_written_into(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1]})
    MirroredDatabase(tmp_path, maintenance=False).sync()
    place = tmp_path / "Files/Monitoring/tables.json"
    with place.open() as before:
        put(tmp_path, "t", 2, {"id": [2]})
        MirroredDatabase(tmp_path, maintenance=False).sync()
        assert json.load(before)["tables"][0]["position"] == 1, "who began to read sees the old content to its end"
    assert json.loads(place.read_text())["tables"][0]["position"] == 2
    assert sorted(each.name for each in place.parent.iterdir()) == ["executions", "replicator.json", "tables.json"]
