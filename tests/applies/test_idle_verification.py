"""Idle verification: findings are warnings of the status; what has not changed is left alone; a stop is quick."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from tests.landing import declare, put

from lakemirror import MirroredDatabase
from lakemirror.landing_zone.zone import TableName
from lakemirror.storage import LocalStorage
from lakemirror.verify import idle, verify_database
from lakemirror.verify.idle import IdleVerification

NAME = TableName("", "t")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2]})
    assert not MirroredDatabase(tmp_path).sync().failed
    return tmp_path


def step(verification: IdleVerification) -> bool:
    """One step, waited for."""
    verification._not_before = 0.0
    if verification.verify_step([NAME], "") is None:
        return False
    assert verification._work is not None
    verification._work.result(10)
    return True


def test_a_sound_table_has_no_warning_and_is_looked_at_once(database: Path) -> None:
    verification = IdleVerification(LocalStorage(database))
    assert step(verification) and verification.warnings == []
    assert not step(verification)
    verification.stop()
    assert verification.verify_step([NAME], "") is None


def test_a_finding_is_a_warning_until_it_is_gone(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "AGAIN", 0.0)
    path = next((database / "Tables/t").glob("*.parquet"))
    data = path.read_bytes()
    path.unlink()
    verification = IdleVerification(LocalStorage(database))
    assert step(verification)
    assert [(w.code, w.file) for w in verification.warnings] == [("verify-file-missing", f"Tables/t/{path.name}")]
    path.write_bytes(data)
    assert step(verification) and verification.warnings == []
    verification.stop()


def test_run_shows_findings_in_the_status(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemirror.mirror.loop._QUIET", 0.0)
    next((database / "Tables/t").glob("*.parquet")).unlink()
    stop = threading.Event()
    engine = threading.Thread(target=MirroredDatabase(database, maintenance=False, poll_idle=0.05).run, args=(stop,))
    engine.start()
    until = time.monotonic() + 20
    found: list[str] = []
    while not found and time.monotonic() < until:
        time.sleep(0.05)
        path = database / "Files/Monitoring/replicator.json"
        found = [w["code"] for w in json.loads(path.read_bytes()).get("warnings", [])] if path.exists() else []
    stop.set()
    engine.join(20)
    assert found == ["verify-file-missing"]
    assert [w.code for w in MirroredDatabase(database).status().warnings] == found


def test_a_folder_that_was_made_again_and_is_not_applied_yet_is_no_finding(database: Path) -> None:
    """The engine knows it, and is about to replace the rows."""
    marker = database / "Files/LandingZone/t/_mirror.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "id": "0" * 32}))
    assert {finding.code for finding in verify_database(LocalStorage(database)).findings} == {"verify-identity-foreign"}
    verification = IdleVerification(LocalStorage(database))
    assert step(verification) and verification.warnings == []
    verification.stop()
