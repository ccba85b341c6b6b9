"""What a user does and sees, through the command line alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests import preloaded
from tests.landing import MARKER, declare, folder, put, put_broken
from tests.table_rows import table_rows

ENVIRONMENT = {**os.environ, "LAKEMIRROR_MASTER": "local[2]", "LAKEMIRROR_DROP_AFTER": "0", "COLUMNS": "200"}


def lakemirror(*words: object) -> subprocess.CompletedProcess[str]:
    return preloaded.run(
        [sys.executable, "-m", "lakemirror.cli", *map(str, words)],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


def states(database: Path) -> dict[str, dict[str, Any]]:
    found = json.loads(lakemirror("status", database, "--json").stdout)
    return {t["normalizedTableName"]: t for t in found["tables"]}


def test_four_bad_tables_of_ten_stop_nobody_else_and_are_mended_by_one_file_each(tmp_path: Path) -> None:
    for n in range(10):
        declare(tmp_path, f"t{n}", ["id"])
        put(tmp_path, f"t{n}", 1, {"id": [1, 2], "v": ["a", "b"]})
    first = lakemirror("sync", tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.count("1 file, 2 changes, 1 commit") == 10

    good = {"id": [2, 3], "v": ["B", "c"], MARKER: pa.array([1, 4], pa.int32())}
    for n in range(10):
        put(tmp_path, f"t{n}", 2, good)
    put(tmp_path, "t0", 2, {**good, MARKER: pa.array([1, 7], pa.int32())})
    put(tmp_path, "t1", 2, {**good, "id": ["2", "3"]})
    whole = put(tmp_path, "t2", 2, good)
    put_broken(tmp_path, "t2", 2, whole.read_bytes()[:-20])
    declare(tmp_path, "t3", [])

    second = lakemirror("sync", tmp_path)
    assert second.returncode == 3
    assert second.stdout.count("1 file, 2 changes, 1 commit") == 6
    after = {(1, "a"): 1, (2, "B"): 1, (3, "c"): 1}
    for n in range(4, 10):
        assert table_rows(tmp_path, f"t{n}") == after
    for n in range(4):
        assert table_rows(tmp_path, f"t{n}") == {(1, "a"): 1, (2, "b"): 1}

    found = states(tmp_path)
    file = f"{2:020}.parquet"
    for table, code, says in (
        ("t0", "row-marker-invalid", ["row 2", "'7'", file]),
        ("t1", "type-changed", ["'id'", "string", "bigint", file]),
        ("t2", "file-unreadable", [file]),
        ("t3", "key-columns-changed", ["[id]", "[]"]),
    ):
        assert found[table]["status"] == "Failed"
        assert found[table]["errorCode"] == code
        assert found[table]["errorHint"]
        for part in says:
            assert part in found[table]["errorMessage"], (table, part, found[table]["errorMessage"])
    assert all(found[f"t{n}"]["status"] == "Replicating" for n in range(4, 10))
    shown = lakemirror("status", tmp_path)
    assert shown.returncode == 3
    assert "row-marker-invalid" in shown.stdout

    for n in range(3):
        (folder(tmp_path, f"t{n}") / file).unlink()
        put(tmp_path, f"t{n}", 2, good)
    declare(tmp_path, "t3", ["id"])
    third = lakemirror("sync", tmp_path)
    assert (third.returncode, third.stderr) == (0, "")
    for n in range(4):
        assert table_rows(tmp_path, f"t{n}") == after
    assert lakemirror("status", tmp_path).returncode == 0


def test_tables_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "Files/LandingZone/_scratchPad").mkdir(parents=True)
    (tmp_path / "mirroring.json").write_text(
        json.dumps({"properties": {"target": {"typeProperties": {"defaultSchema": "dbo"}}}})
    )
    for table in ("stays", "goes", "again", "sales.customers", "old"):
        put(tmp_path, table, 1, {"id": [1]})
    put(tmp_path, "old", 2, {"id": [2]})
    declare(tmp_path, "waits", ["id"])
    assert lakemirror("sync", tmp_path).returncode == 0
    assert sorted(p.name for p in (tmp_path / "Tables/dbo").iterdir()) == ["again", "goes", "old", "stays"]
    assert table_rows(tmp_path, "sales.customers") == {(1,): 1}
    assert states(tmp_path)["waits"]["status"] == "Initialized"

    shutil.rmtree(folder(tmp_path, "goes"))
    shutil.rmtree(folder(tmp_path, "again"))
    put(tmp_path, "again", 1, {"other": ["x"]})
    folder(tmp_path, "old").rename(folder(tmp_path, "new"))
    put(tmp_path, "new", 3, {"id": [3]})
    put(tmp_path, "stays", 3, {"id": [3]})
    assert lakemirror("sync", tmp_path).returncode == 0
    assert (tmp_path / "Tables/dbo/goes").exists(), "one miss is not enough"
    last = lakemirror("sync", tmp_path)
    assert "Tables/dbo/goes: dropped" in last.stdout
    assert sorted(p.name for p in (tmp_path / "Tables/dbo").iterdir()) == ["again", "stays"]
    assert any((tmp_path / "Files/_DroppedTables/dbo").glob("goes-*"))
    assert table_rows(tmp_path, "dbo.again") == {("x",): 1}
    found = states(tmp_path)
    assert found["stays"]["waitingFor"]["what"] == "number 2"
    assert found["new"]["waitingFor"]["what"] == "number 1, which is in _ProcessedFiles"
    assert any(w["code"] == "folder-renamed" for w in found["new"]["warnings"])

    put(tmp_path, "stays", 2, {"id": [2]})
    declare(tmp_path, "new", [])
    put(tmp_path, "new", 1, {"id": [1]})
    assert lakemirror("sync", tmp_path).returncode == 0
    assert table_rows(tmp_path, "dbo.stays") == {(1,): 1, (2,): 1, (3,): 1}
    assert table_rows(tmp_path, "dbo.new") == {(1,): 1, (2,): 1, (3,): 1}
    resting = folder(tmp_path, "stays") / "_ProcessedFiles"
    assert sorted(p.name for p in resting.iterdir()) == [f"{1:020}.parquet", f"{2:020}.parquet"]
    assert (folder(tmp_path, "stays") / f"{3:020}.parquet").exists(), "the newest stays"


def test_run_takes_what_arrives_and_stops_when_told(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1], "v": ["a"]})
    with subprocess.Popen(
        [sys.executable, "-m", "lakemirror.cli", "run", str(tmp_path)],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as engine:  # fmt: skip
        try:
            _until(lambda: _position(tmp_path) == 1, 90)
            put(tmp_path, "t", 2, {"id": [1, 2], "v": ["A", "b"], MARKER: pa.array([1, 0], pa.int32())})
            _until(lambda: _position(tmp_path) == 2, 30)
            put(tmp_path, "u", 1, {"id": [1]})
            _until(lambda: (tmp_path / "Tables/u/_delta_log").exists(), 30)
            replicator = json.loads((tmp_path / "Files/Monitoring/replicator.json").read_text())
            assert replicator.pop("process")["pid"] == engine.pid
            assert replicator == {"status": "Running", "errorCode": "", "errorMessage": ""}
            engine.send_signal(signal.SIGTERM)
            out, err = engine.communicate(timeout=60)
        finally:
            engine.kill()
    assert (engine.returncode, out) == (0, "")
    assert "t: 1 file, 1 change, now at 1" in err
    assert table_rows(tmp_path, "t") == {(1, "A"): 1, (2, "b"): 1}
    assert json.loads((tmp_path / "Files/Monitoring/replicator.json").read_text())["status"] == "Stopped"


def test_nothing_to_do_starts_no_java(tmp_path: Path) -> None:
    (tmp_path / "Files/LandingZone").mkdir(parents=True)
    broken = {**ENVIRONMENT, "JAVA_HOME": "/nowhere", "PATH": ""}
    for words in (["sync"], ["status"], ["status", "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "lakemirror.cli", *words, str(tmp_path)],
            env=broken, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    missing = lakemirror("sync", tmp_path / "nothing")
    assert missing.returncode == 2
    assert "database-missing" in missing.stderr


def _position(database: Path) -> int:
    tables = database / "Files/Monitoring/tables.json"
    if not tables.exists():
        return 0
    return next((t["position"] for t in json.loads(tables.read_text())["tables"] if t["sourceTableName"] == "t"), 0)


def _until(condition: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)
