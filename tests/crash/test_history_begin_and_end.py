"""History tables begin, go on and end in commits of their own, and deleted rows are removed in one.

A kill or a failing disk at each place leaves tables that the next pass completes, as one pass would have made them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests import preloaded
from tests.change_tables import BEGUN, expected, expected_versions, held, held_versions, marked, put_at
from tests.landing import declare, folder, put
from tests.table_rows import read_table, table_rows

from lakemirror import MirroredDatabase, failpoints
from lakemirror.delta.log import read_snapshot
from lakemirror.mirror import step
from lakemirror.mirror.table_log import read_table_log
from lakemirror.storage import LocalStorage
from lakemirror.verify.proof import Options, verify_database

CHILD = """
import sys
from lakemirror import LakemirrorError, MirroredDatabase, failpoints
database, place, act = MirroredDatabase(sys.argv[1], drop_after=0), sys.argv[2], sys.argv[3]
try:
    if act == "purge":
        database.resync("t", purge_deleted=True)
    else:
        database.sync()
except (LakemirrorError, OSError):
    pass
print(failpoints.times_reached(place))
"""

HISTORY: dict[str, Any] = {"lakemirror": {"history": ["scd2", "changes"]}}


def sync(database: Path) -> None:
    result = MirroredDatabase(database, drop_after=0).sync()
    assert not result.failed, result.failed


def begins(database: Path) -> None:
    declare(database, "t", ["id"])
    put_at(database, "t", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    sync(database)
    declare(database, "t", ["id"], **HISTORY)
    put_at(database, "t", 2, marked([4, 2], id=[1, 2], v=["A", None]))


def goes_on(database: Path) -> None:
    """The option was off while rows changed."""
    declare(database, "t", ["id"], **HISTORY)
    put_at(database, "t", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    sync(database)
    declare(database, "t", ["id"])
    put_at(database, "t", 2, marked([4, 2], id=[1, 2], v=["A", None]))
    sync(database)
    declare(database, "t", ["id"], **HISTORY)
    put_at(database, "t", 3, marked([4], id=[3], v=["C"]))


def made_again(database: Path) -> None:
    declare(database, "t", ["id"], **HISTORY)
    put_at(database, "t", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    sync(database)
    shutil.rmtree(folder(database, "t"))
    declare(database, "t", ["id"], **HISTORY)
    put_at(database, "t", 1, {"id": [1], "v": ["a"]}, 5)


def made_again_in_order(database: Path) -> None:
    """With a sequence: the rows come with sequences of before."""
    for value, moment in (("a", 0), ("b", 5)):
        if moment:
            sync(database)
            shutil.rmtree(folder(database, "t"))
        declare(database, "t", ["id"], lakemirror={"history": ["scd2", "changes"], "sequence": "n"})
        put_at(database, "t", 1, {"id": [1, 2], "n": [3, 4], "v": [value, value]}, moment)


def dropped(database: Path) -> None:
    declare(database, "t", ["id"], **HISTORY)
    put_at(database, "t", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    declare(database, "other", [])
    put(database, "other", 1, {"id": [1]})
    sync(database)
    shutil.rmtree(folder(database, "t"))
    sync(database)  # which misses it


def soft(database: Path) -> None:
    declare(database, "t", ["id"], lakemirror={"deletes": "soft"})
    put_at(database, "t", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    put_at(database, "t", 2, marked([2], id=[2], v=[None]))
    sync(database)
    declare(database, "t", ["id"], lakemirror={"deletes": "hard"})


CASES: list[tuple[str, int, Callable[[Path], None]]] = [
    ("history.keys-read", 1, begins),
    ("history.before-begin", 1, begins),
    ("history.before-begin", 2, begins),
    ("history.after-begin", 1, begins),
    ("history.after-begin", 2, begins),
    ("history.before-begin", 1, goes_on),
    ("history.after-begin", 1, goes_on),
    ("history.before-end", 1, made_again),
    ("history.before-end", 1, made_again_in_order),
    ("history.after-commit", 1, made_again_in_order),
    ("history.after-commit", 3, made_again_in_order),
    ("history.before-end", 1, dropped),
    ("purge.before-commit", 1, soft),
]


def rows(database: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    """Of each table its rows, without times that are of an apply or of a drop."""
    found = {}
    for path in (database / "Tables").glob("*/_delta_log"):
        table = read_table(path.parent)
        kept = [name for name in table.column_names if name not in ("__applied_at", "__END_AT")]
        values = [*table.select(kept).to_pylist()]
        if "__END_AT" in table.column_names:
            for row, end in zip(values, table["__END_AT"].to_pylist(), strict=True):
                row["end"] = (
                    None
                    if end is None
                    else "now"
                    if isinstance(end, datetime) and end > BEGUN + timedelta(hours=12)
                    else end
                )
        found[path.parent.name] = Counter(repr(sorted(row.items())) for row in values)
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("mode", ["kill", pytest.param("error", marks=pytest.mark.full)])
@pytest.mark.parametrize(("name", "time", "prepare"), CASES)
def test_at_a_failpoint(tmp_path: Path, name: str, time: int, prepare: Callable[[Path], None], mode: str) -> None:
    database, control = tmp_path / "database", tmp_path / "control"
    prepare(database)
    shutil.copytree(database, control)
    act = "purge" if name.startswith("purge") else "sync"
    environment = {**os.environ, "LAKEMIRROR_FAILPOINT": f"{name}:{time}" + (":error" if mode == "error" else "")}
    words = [sys.executable, "-c", CHILD, str(database), name, act]
    done = preloaded.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if mode == "kill":
        assert done.returncode == -signal.SIGKILL, (done.stdout, done.stderr)
    else:
        assert done.returncode == 0 and int(done.stdout.splitlines()[-1]) >= time, done.stderr
    for each in (database, control):
        if act == "purge":
            MirroredDatabase(each).resync("t", purge_deleted=True)
        sync(each)
    assert rows(database) == rows(control)
    for path in (database / "Tables").glob("*/_delta_log"):
        others = control / "Tables" / path.parent.name / "_delta_log"
        assert len(list(path.glob("*.json"))) == len(list(others.glob("*.json"))), path
    assert not list(database.glob("Tables/*/.lakemirror-*")), "work folders of the killed process"
    if mode == "error" and prepare is not dropped:  # after a kill, a later pass removes what no version names
        for table in ("t", "t__history", "t__changes"):
            at = [set((each / "Tables" / table).glob("*.parquet")) for each in (database, control)]
            assert len(at[0]) == len(at[1]), table


def test_every_place_of_history_is_met() -> None:
    assert {name for name, *_ in CASES} == set(failpoints.HISTORY_NAMES)


@pytest.mark.parametrize("count", [12, pytest.param(60, marks=pytest.mark.full)])
def test_two_engines_at_once(tmp_path: Path, count: int) -> None:
    """Each change is once in each table, whoever committed it."""
    declare(tmp_path, "t", ["id"], **HISTORY)
    for number in range(1, count + 1):
        rows = marked([4, 2, 0], id=[number % 5, (number + 2) % 5, 100 + number], v=[number] * 3)
        put_at(tmp_path, "t", number, rows)
    code = "import sys; from lakemirror import MirroredDatabase as D; D(sys.argv[1], batch_files=1).sync()"
    words = [sys.executable, "-c", code, str(tmp_path)]
    engines = [preloaded.Popen(words, stderr=subprocess.PIPE) for _ in range(2)]
    for each in engines:
        _, told = each.communicate(timeout=150)
        assert each.returncode == 0, told
    sync(tmp_path)
    assert held(tmp_path, "t__changes") == expected(tmp_path, "t")
    assert held_versions(tmp_path, "t__history") == expected_versions(
        tmp_path, "t", ["id"], {"history": ["scd2", "changes"]}
    )
    positions = [read_table_log(str(tmp_path / "Tables" / each)) for each in ("t", "t__history", "t__changes")]
    assert {each.position.number for each in positions if each and each.position} == {count}


def test_a_target_that_fails_stops_its_table_alone(tmp_path: Path) -> None:
    """A CHECK constraint of a history table: no table gets the batch, no file is archived, other tables go on."""
    for name in ("t", "other"):
        declare(tmp_path, name, ["id"], **HISTORY)
        put(tmp_path, name, 1, {"id": [1], "v": ["a"]})
    sync(tmp_path)
    path = tmp_path / "Tables/t__history"
    snapshot = read_snapshot(path)
    assert snapshot is not None
    before = dict.fromkeys(("t", "t__changes"), snapshot.version)
    metadata = json.loads(json.dumps(snapshot.metadata.value))
    metadata["configuration"]["delta.constraints.small"] = "v < 'b'"
    log = path / "_delta_log" / f"{snapshot.version + 1:020}.json"
    protocol = {**snapshot.protocol.to_action()["protocol"]}
    protocol["writerFeatures"] = sorted({*protocol.get("writerFeatures", ()), "checkConstraints"})
    actions = [{"commitInfo": {"operation": "ADD CONSTRAINT"}}, {"protocol": protocol}, {"metaData": metadata}]
    log.write_text("\n".join(map(json.dumps, actions)))
    for name in ("t", "other"):
        put(tmp_path, name, 2, {"id": [2], "v": ["z"]})
    failed = MirroredDatabase(tmp_path).sync().failed
    assert list(failed) == ["t"] and failed["t"].code == "table-feature-unsupported"
    assert "t__history" in failed["t"].message
    for each, version in before.items():
        found = read_snapshot(tmp_path / "Tables" / each)
        assert found is not None and found.version == version, each
    assert not list(folder(tmp_path, "t").glob("_ProcessedFiles/*"))
    assert table_rows(tmp_path, "other") == {(1, "a"): 1, (2, "z"): 1}
    again = {**metadata, "configuration": dict(snapshot.metadata.value["configuration"])}
    log.with_name(f"{snapshot.version + 2:020}.json").write_text(
        json.dumps({"commitInfo": {"operation": "DROP CONSTRAINT"}}) + "\n" + json.dumps({"metaData": again})
    )
    sync(tmp_path)
    assert held(tmp_path, "t__changes") == expected(tmp_path, "t") and table_rows(tmp_path, "t")[(2, "z")] == 1


@pytest.mark.parametrize("deletes", ["soft", "hard"])
@pytest.mark.parametrize("name", ["apply.before-commit", "apply.after-commit"])
def test_the_apply_after_deleted_rows_were_removed(tmp_path: Path, name: str, deletes: str) -> None:
    soft(tmp_path)
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": deletes})
    MirroredDatabase(tmp_path).resync("t", purge_deleted=True)
    put_at(tmp_path, "t", 3, marked([4, 2], id=[4, 3], v=["d", None]))
    words = [sys.executable, "-c", CHILD, str(tmp_path), name, "sync"]
    environment = {**os.environ, "LAKEMIRROR_FAILPOINT": f"{name}:1"}
    done = preloaded.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, (done.stdout, done.stderr)
    sync(tmp_path)
    rows = sorted((row["id"], row["v"], row.get("__deleted")) for row in read_table(tmp_path / "Tables/t").to_pylist())
    assert rows == ([(1, "a", False), (3, "c", True), (4, "d", False)] if deletes == "soft" else
                    [(1, "a", None), (4, "d", None)])  # fmt: skip
    report = verify_database(LocalStorage(tmp_path), (), Options(against_files=True))
    assert not [each for each in report.findings if each.severity == "error"], report.findings


BUCKETS = """
import os, signal, sys
from lakemirror import MirroredDatabase
from lakemirror.engines import version_buckets, write_versions
from lakemirror.engines.local_engine import LocalEngine
LocalEngine.read_small = lambda *_: None
version_buckets._COPIES = 1 << 20
left, written = int(sys.argv[2]), write_versions.write_rows
def write_rows(*given, **more):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return written(*given, **more)
write_versions.write_rows = write_rows
MirroredDatabase(sys.argv[1]).sync()
"""


@pytest.mark.parametrize("written", [0, 7])
def test_killed_while_buckets_of_versions_are_written(
    tmp_path: Path, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the batch counts; the next process applies it once, and no bucket stays."""
    monkeypatch.setattr(step, "is_first_look", lambda _: True)
    declare(tmp_path, "t", ["id"], **HISTORY)
    put_at(tmp_path, "t", 1, {"id": list(range(200)), "v": ["a"] * 200})
    sync(tmp_path)
    put_at(tmp_path, "t", 2, marked([4, 2] * 50, id=list(range(100)), v=["b"] * 100))
    words = [sys.executable, "-c", BUCKETS, str(tmp_path), str(written)]
    dead = preloaded.run(words, capture_output=True, timeout=60)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    assert list(tmp_path.rglob("fold-*")), "it died while its buckets were there"
    sync(tmp_path)
    assert held_versions(tmp_path, "t__history") == expected_versions(tmp_path, "t", ["id"], {})
    assert held(tmp_path, "t__changes") == expected(tmp_path, "t")
    assert not list(tmp_path.rglob("fold-*"))
