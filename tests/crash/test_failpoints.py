"""At every failpoint the process is killed, and at every one the disk fails: the mirror is sound afterwards.

A case fails where its failpoint is not met, so the table in `docs/reference/failpoints.md` is true by being run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import preloaded
from tests.landing import MARKER, declare, folder, put, put_broken
from tests.model import ModelTable

from lakemirror import MirroredDatabase, failpoints
from lakemirror.delta.log import read_snapshot
from lakemirror.maintenance.compaction import merge_when_idle
from lakemirror.publisher import Landing
from lakemirror.publisher.sql import publish_sql
from lakemirror.storage import LocalStorage
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options
from lakemirror.verify.source_rows import Source

CHILD = """
import json, sys
import pyarrow as pa
from lakemirror import LakemirrorError, MirroredDatabase, failpoints
from lakemirror.maintenance.compaction import merge_when_idle
from lakemirror.publisher import Landing
from lakemirror.publisher.sql import publish_sql
from lakemirror.spark_session import session

def start(*_, **__):
    raise LakemirrorError("internal", "Spark was asked for")

session.start = start
database, act, name, settings = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
outcome = ""
try:
    if act == "sync":
        outcome = sorted(error.code for error in MirroredDatabase(database, **settings).sync().failed.values())
    elif act in ("pause", "resume", "resync", "replay", "restore"):
        outcome = getattr(MirroredDatabase(database), act)("orders").text
    elif act == "rest":
        outcome = merge_when_idle(f"{database}/Tables/orders", all_vectors=True)
    else:
        table = Landing(database).table("t", ["id"])
        exec(act)
except (LakemirrorError, OSError) as error:
    outcome = f"{type(error).__name__}: {error}"
print(json.dumps({"reached": failpoints.times_reached(name), "outcome": outcome}))
"""


def start(database: Path, act: str, name: str, mode: str, **settings: Any) -> dict[str, Any]:
    """Runs an act in a process of its own with a failpoint; what the process says, nothing where it was killed."""
    environment = {**os.environ, "LAKEMIRROR_FAILPOINT": f"{name}:1" + (":error" if mode == "error" else "")}
    words = [sys.executable, "-c", CHILD, str(database), act, name, json.dumps(settings)]
    done = preloaded.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if mode == "kill":
        assert done.returncode == -signal.SIGKILL, (name, done.stdout, done.stderr)
        return {}
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert said["reached"] >= 1, (name, said)
    return said


class Mirror:
    """One table, its publisher and its model."""

    def __init__(self, database: Path) -> None:
        self.database = database
        self.model = ModelTable(["id"])
        self.number = 0
        declare(database, "orders", ["id"])
        self.put({1: "a", 2: "b", 3: "c", 4: "d"}, 0)
        self.put({2: "B", 9: "i"}, 4)

    def put(self, rows: dict[int, str], marker: int, number: int | None = None) -> None:
        self.number = number or self.number + 1
        columns = {"id": list(rows), "v": list(rows.values()), MARKER: pa.array([marker] * len(rows), pa.int32())}
        put(self.database, "orders", self.number, columns)
        self.model.apply(("id", "v"), [(marker, {"id": k, "v": v}) for k, v in rows.items()])

    def sync(self, **settings: Any) -> None:
        result = MirroredDatabase(self.database, **settings).sync()
        assert not result.failed, result.failed

    def check(self, target: str = "orders", schema: str = "") -> None:
        """The table is sound, and its rows are the model's: counted by the model itself, and by the archived files."""
        storage = LocalStorage(self.database)
        report = verify_database(storage, ("orders",), Options(against_files=True), default_schema=schema)
        assert report.exit_code == 0 and report.tables[0].rows == len(self.model.rows), report
        place = self.database / "model.parquet"
        pq.write_table(
            pa.Table.from_pylist(self.model.rows, pa.schema([("id", pa.int64()), ("v", pa.string())])), place
        )
        options = Options(source=Source(str(place)))
        assert verify_database(storage, ("orders",), options, default_schema=schema).exit_code == 0


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("Spark was asked for")

    monkeypatch.setattr("lakemirror.spark_session.session.start", refuse)
    made = Mirror(tmp_path)
    made.sync()
    return made


def _schema(mirror: Mirror) -> None:
    definition = {"properties": {"target": {"typeProperties": {"defaultSchema": "dbo"}}}}
    (mirror.database / "mirroring.json").write_text(json.dumps(definition))


_AT_ONCE = {"drop_after": 0}


def _vanish(mirror: Mirror) -> None:
    """The folder is gone, and one pass has missed it: the next one drops the table."""
    declare(mirror.database, "other", [])
    put(mirror.database, "other", 1, {"id": [1]})
    mirror.sync()
    shutil.rmtree(folder(mirror.database, "orders"))
    mirror.sync(**_AT_ONCE)


def _bad_file(mirror: Mirror) -> None:
    put_broken(mirror.database, "orders", mirror.number + 1)
    mirror.put({7: "g"}, 4, mirror.number + 2)


def _many(mirror: Mirror) -> None:
    for n in range(40):
        mirror.put({100 + n: "x"}, 0)


def _some(mirror: Mirror) -> None:
    mirror.put({3: "C"}, 1)
    mirror.put({4: "", 5: "e"}, 4)
    mirror.put({1: ""}, 2)


def _soft(mirror: Mirror) -> None:
    """Deletes become soft."""
    declare(mirror.database, "orders", ["id"], lakemirror={"deletes": "soft"})
    mirror.put({3: "C", 5: "e"}, 4)


PREPARED: dict[str, tuple[Callable[[Mirror], None], dict[str, Any]]] = {
    "quarantine.after-move": (_bad_file, {"on_bad_file": "quarantine"}),
    "move.before-move": (_schema, {}),
    "drop.before-move": (_vanish, _AT_ONCE),
    "drop.after-move": (_vanish, _AT_ONCE),
    "soft-deletes.before-commit": (_soft, {}),
    "merge.before-commit": (_many, {"batch_files": 1}),
}


@pytest.mark.parametrize("mode", ["kill", "error"])
@pytest.mark.parametrize("name", failpoints.NAMES)
def test_at_a_failpoint(mirror: Mirror, name: str, mode: str) -> None:
    prepare, settings = PREPARED.get(name, (_some, {}))
    prepare(mirror)
    said = start(mirror.database, "sync", name, mode, **settings)
    assert mode == "kill" or isinstance(said["outcome"], list), said  # of codes: the pass went to its end
    mirror.sync(**settings)
    if prepare is _vanish:
        mirror.sync(**_AT_ONCE)
        assert not (mirror.database / "Tables/orders").exists()
        return
    mirror.check(schema="dbo" if prepare is _schema else "")


@pytest.mark.parametrize("mode", ["kill", "error"])
def test_at_the_failpoint_of_a_compaction_at_rest(mirror: Mirror, mode: str) -> None:
    _some(mirror)
    mirror.sync()
    start(mirror.database, "rest", "merge.before-commit", mode)
    mirror.check()
    assert merge_when_idle(str(mirror.database / "Tables/orders"), all_vectors=True)
    mirror.check()
    snapshot = read_snapshot(mirror.database / "Tables/orders")
    assert snapshot is not None and not any("deletionVector" in add for add in snapshot.files.values())


def _quarantined(mirror: Mirror) -> None:
    """A bad file is set aside, later ones are applied, and somebody has corrected what is set aside."""
    _bad_file(mirror)
    mirror.sync(on_bad_file="quarantine")
    last = mirror.number
    corrected = last - 1
    mirror.put({8: "h"}, 4, corrected)
    mirror.number = last
    home = folder(mirror.database, "orders")
    name = f"{corrected:020}.parquet"
    (home / name).replace(home / "_QuarantinedFiles" / name)


def _applied(mirror: Mirror) -> None:
    _some(mirror)
    mirror.sync()


def _dropped(mirror: Mirror) -> None:
    _vanish(mirror)
    mirror.sync(**_AT_ONCE)
    assert not (mirror.database / "Tables/orders").exists()


def _paused(mirror: Mirror) -> None:
    MirroredDatabase(mirror.database).pause("orders")
    _some(mirror)


OF_ACTS: dict[str, tuple[Callable[[Mirror], None], str]] = {
    "pause": (_some, "pause"),
    "resume": (_paused, "resume"),
    "resync": (_applied, "resync"),
    "replay": (_quarantined, "replay"),
    "restore": (_dropped, "restore"),
    "act": (_paused, "resume"),
}


@pytest.mark.parametrize("mode", ["kill", "error"])
@pytest.mark.parametrize("name", failpoints.OPERATION_NAMES)
def test_at_an_acts_failpoint(mirror: Mirror, name: str, mode: str) -> None:
    """The act done again goes on where it ended, though an engine has looked in between."""
    prepare, act = OF_ACTS[name.partition(".")[0]]
    prepare(mirror)
    said = start(mirror.database, act, name, mode)
    assert mode == "kill" or "failpoint" in said["outcome"] or name == "act.before-record", said
    MirroredDatabase(mirror.database).sync()
    again = getattr(MirroredDatabase(mirror.database), act)("orders")
    if act == "restore":
        found = verify_database(LocalStorage(mirror.database), ("orders",))
        assert found.tables[0].rows == len(mirror.model.rows), again
        mirror.model, mirror.number = ModelTable(["id"]), 0
        mirror.put({5: "only"}, 4)
    if act == "pause":
        before = read_snapshot(mirror.database / "Tables/orders")
        mirror.sync()
        after = read_snapshot(mirror.database / "Tables/orders")
        assert before is not None and after is not None and after.version == before.version
        MirroredDatabase(mirror.database).resume("orders")
    mirror.sync()
    mirror.check()
    assert not list((folder(mirror.database, "orders") / "_QuarantinedFiles").glob("*"))
    lines = (mirror.database / "Files/Monitoring/acts.jsonl").read_text().splitlines()
    assert all(json.loads(line)["table"] == "orders" for line in lines)


SNAPSHOT = "table.publish_snapshot(pa.table({'id': [1, 2], 'v': ['b', 'c']}))"
OTHER = "Landing(database).table('t', ['id']).upsert([{'id': 3, 'v': 1.5}])"
ACTS = {
    "publish.retyped": f"(table.types_before(), {OTHER}, table.upsert([{{'id': 4, 'v': 1}}]))",
    "publish.recreated": "(table.recreate_first(), table.upsert([{'id': 1, 'v': 'b'}, {'id': 2, 'v': 'c'}]))",
    "publish.dropped": "table.drop()",
    "snapshot.before-state": SNAPSHOT,
    "snapshot.between-states": SNAPSHOT,
    "watermark.before-state": "publish_sql(table, f'sqlite:///{database}/s.db', 'select * from s', watermark='id')",
}
"""What a publisher does to come to its failpoints; an insert where nothing is said."""


@pytest.mark.parametrize("mode", ["kill", "error"])
@pytest.mark.parametrize("name", failpoints.PUBLISHER_NAMES)
def test_at_a_publishers_failpoint(tmp_path: Path, name: str, mode: str) -> None:
    """What is published afterwards, and applied, is what was published last."""
    table = Landing(tmp_path).table("t", ["id"])
    if name in ("snapshot.before-state", "snapshot.between-states", "publish.dropped", "publish.recreated"):
        table.publish_snapshot(pa.table({"id": range(20_000), "v": ["a"] * 20_000}))
        table.publish_snapshot(pa.table({"id": range(20_000), "v": ["b"] + ["a"] * 19_999}))
    if name == "watermark.before-state":
        with sqlite3.connect(tmp_path / "s.db") as source:
            source.execute("create table s (id integer, v text)")
            source.execute("insert into s values (1, 'b'), (2, 'c')")
    act = ACTS.get(name, "table.upsert([{'id': 1, 'v': 'b'}, {'id': 2, 'v': 'c'}])")
    start(tmp_path, act, name, mode)
    table = Landing(tmp_path).table("t", ["id"])
    if name == "watermark.before-state":
        publish_sql(table, f"sqlite:///{tmp_path}/s.db", "select * from s", watermark="id")
    elif name == "publish.retyped":
        table.upsert([{"id": 4, "v": 1}])
    elif name.startswith("snapshot."):
        table.publish_snapshot(pa.table({"id": [1, 2], "v": ["b", "c"]}))
    else:
        table.upsert([{"id": 1, "v": "b"}, {"id": 2, "v": "c"}])
    assert not MirroredDatabase(tmp_path).sync().failed
    report = verify_database(LocalStorage(tmp_path), (), Options(against_files=True))
    assert report.exit_code == 0 and report.tables[0].rows == 2, report
