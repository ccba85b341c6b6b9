"""What happened, as lines of a spool and rows of a table: each exactly once, whoever is killed when."""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pytest
from tests import preloaded
from tests.commands import CommandRunner
from tests.landing import declare, folder, put, put_broken

from lakemirror import MirroredDatabase
from lakemirror.cli import app, capture
from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.executions import execution_log, executions_table
from lakemirror.executions.execution import Execution, of_error, parse_line
from lakemirror.executions.execution_log import ExecutionLog, read_executions
from lakemirror.executions.executions_table import DAY, EXECUTIONS
from lakemirror.executions.published_executions import PUBLISHED, publish_execution
from lakemirror.landing_zone.zone import TableName
from lakemirror.publisher import Landing
from lakemirror.readers.table_readers import readable_tables
from lakemirror.settings.settings import Settings
from lakemirror.storage import LocalStorage
from lakemirror.storage.spool_file import SpoolFile

NOW = 1_790_000_000.0
SETTINGS = Settings(durability="process")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop/Files/LandingZone").mkdir(parents=True)
    return tmp_path / "shop"


def opened(shop: Path, **more: Any) -> MirroredDatabase:
    return MirroredDatabase(shop, engine="local", durability="process", settle=0.0, **more)


def a_log(shop: Path, settings: Settings = SETTINGS) -> ExecutionLog:
    return ExecutionLog(LocalStorage(shop), settings)


def happened(number: int, **more: Any) -> Execution:
    return Execution(time.time(), "Replicating", "", f"t{number}", 0.1, number, 7, 0.5, number, number, number, **more)


def rows(shop: Path) -> list[dict[str, Any]]:
    """The rows of the table as another reader finds them."""
    found: list[dict[str, Any]] = deltalake.DeltaTable(str(shop / EXECUTIONS)).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["Timestamp"])


def logged(shop: Path) -> Counter[str]:
    return Counter(each.table for each in read_executions(LocalStorage(shop), SETTINGS))


def carry_in_a_process(shop: Path, failpoint: str = "", code: str = "") -> int:
    """Carries what is spooled in a process of its own, which may be killed. Returns its exit code."""
    script = f"""
from lakemirror.executions.execution_log import ExecutionLog
from lakemirror.settings.settings import Settings
from lakemirror.storage import LocalStorage
log = ExecutionLog(LocalStorage({str(shop)!r}), Settings(durability="process"))
{code}
log.carry()
"""
    environment = {**os.environ, "LAKEMIRROR_FAILPOINT": failpoint}
    return preloaded.run([sys.executable, "-c", script], env=environment, check=False, timeout=60).returncode


def test_an_apply_is_a_row_with_its_figures(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(shop, "sales.orders", ["id"])
    before = time.time()
    sizes = [put(shop, "sales.orders", n, {"id": [n, n + 1], "x": ["a", "b"]}).stat().st_size for n in (1, 2)]
    opened(shop).sync()
    put(shop, "sales.orders", 3, {"id": [1], "x": ["c"]})
    opened(shop).sync()
    first, second = opened(shop).log()
    assert (first.operation, first.name, first.rows, first.size) == ("Snapshotting", "sales.orders", 4, sum(sizes))
    assert (first.first, first.last, first.version, first.engine) == (1, 2, 0, "local")
    assert (second.operation, second.first, second.last, second.version) == ("Replicating", 3, 3, 1)
    assert before - 0.01 <= first.ended <= second.ended <= time.time() + 0.01
    assert first.lag is not None
    assert 0 < first.seconds <= first.lag + 0.01 < 60
    assert not (shop / EXECUTIONS).exists(), "lines are batched"

    monkeypatch.setattr(execution_log, "EVERY", 0.0)
    put(shop, "sales.orders", 4, {"id": [9], "x": ["d"]})
    opened(shop).sync()
    found = rows(shop)
    assert [row["PositionTo"] for row in found] == [2, 3, 4]
    assert found[0]["SourceSchemaName"] == "sales"
    assert found[0]["SourceTableName"] == "orders"
    assert found[0]["ProcessedRows"] == 4
    assert found[0]["ReplicatorBatchLatency"] == first.lag
    assert found[0]["Timestamp"].timestamp() == pytest.approx(first.ended, abs=1e-6)
    assert [each.last for each in opened(shop).log("sales.orders")] == [2, 3, 4]
    assert opened(shop).log("orders") == []


def test_errors_and_drops_are_rows(shop: Path) -> None:
    declare(shop, "good", ["id"])
    declare(shop, "bad", ["id"])
    put(shop, "good", 1, {"id": [1]})
    put_broken(shop, "bad", 1)
    opened(shop).sync()
    for path in sorted(folder(shop, "good").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    folder(shop, "good").rmdir()
    for _ in range(2):
        opened(shop, drop_after=0.0).sync()
    found = {each.operation: each for each in opened(shop).log()}
    assert found["FailTable"].table == "bad"
    assert found["FailTable"].error_code == "file-unreadable"
    assert found["FailTable"].error_type == "UserError"
    assert found["RemoveTable"].name == "good"
    assert len(opened(shop).log("good")) == 2
    assert Counter(each.operation for each in opened(shop).log("bad")) == {"FailTable": 3}, "each pass tries anew"


@pytest.mark.parametrize("failpoint", ["", "commit.before-checksum"])
def test_a_kill_between_the_commit_and_the_spool_doubles_nothing(shop: Path, failpoint: str) -> None:
    log = a_log(shop)
    for number in range(5):
        log.record(happened(number))
    del log
    for killed in (bool(failpoint), False):  # right after the commit, the spool is as before
        assert carry_in_a_process(shop, failpoint) == (-9 if killed else 0)
        assert logged(shop) == {f"t{n}": 1 for n in range(5)}
    assert carry_in_a_process(shop, code=f"log.record({repr_of(happened(5))})") == 0
    assert logged(shop) == {f"t{n}": 1 for n in range(6)}
    assert len(rows(shop)) == 6


def test_a_kill_before_the_commit_loses_nothing(shop: Path) -> None:
    code = f"""
import os, signal
for n in range(3):
    log.record({repr_of(happened(1))})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert carry_in_a_process(shop, code=code) == -9
    assert logged(shop) == {"t1": 3}
    a_log(shop).carry()
    assert len(rows(shop)) == 3
    assert logged(shop) == {"t1": 3}


def repr_of(execution: Execution) -> str:
    return f"__import__('lakemirror.executions.execution').executions.execution.{execution!r}"


def test_several_processes_at_once(shop: Path) -> None:
    script = f"import sys; sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}\n"
    script += f"import test_execution_log as here\nhere.busy({str(shop)!r})"
    running = [preloaded.Popen([sys.executable, "-c", script]) for _ in range(3)]
    assert [each.wait(60) for each in running] == [0, 0, 0]
    a_log(shop).carry()
    assert logged(shop) == {f"t{n}": 3 for n in range(40)}
    assert len(rows(shop)) == 120


def busy(shop: str) -> None:
    """What one of several processes does."""
    log = a_log(Path(shop))
    for number in range(40):
        log.record(happened(number))
        if number % 7 == 0:
            log.carry()


def test_what_a_commit_that_lost_five_races_leaves_stays_spooled(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(shop)
    log.record(happened(1))

    def lost(*_: Any, **__: Any) -> int:
        raise LakemirrorError("concurrent-commit", "another program committed first")

    with monkeypatch.context() as patched:
        patched.setattr("lakemirror.executions.executions_table.commit", lost)
        log.carry()
    assert logged(shop) == {"t1": 1}
    assert not list((shop / EXECUTIONS).rglob("*.json"))
    log.carry()
    assert len(rows(shop)) == 1


def test_lines_that_come_while_others_are_carried(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(shop)
    log.record(happened(1))
    before = execution_log.append

    def meanwhile(*given: Any, **more: Any) -> int:
        log.record(happened(2))
        return before(*given, **more)

    monkeypatch.setattr(execution_log, "append", meanwhile)
    log.carry()
    assert logged(shop) == {"t1": 1, "t2": 1}
    assert len(rows(shop)) == 1
    monkeypatch.setattr(execution_log, "append", before)
    log.carry()
    assert len(rows(shop)) == 2


def test_a_torn_line_is_left_out_and_the_next_process_goes_on(shop: Path) -> None:
    log = a_log(shop)
    log.record(happened(1))
    del log
    path = shop / "Files/Monitoring/executions/0.jsonl"
    with path.open("ab") as file:
        file.write(happened(2).line()[:30])
    log = a_log(shop)
    log.record(happened(3))
    assert logged(shop) == {"t1": 1, "t3": 1}
    log.carry()
    log.record(happened(4))
    log.carry()
    assert [row["SourceTableName"] for row in rows(shop)] == ["t1", "t3", "t4"]


def test_a_spool_that_is_deleted_is_another_one(shop: Path) -> None:
    log = a_log(shop)
    log.record(happened(1))
    log.carry()
    (shop / "Files/Monitoring/executions/0.jsonl").unlink()
    log.record(happened(2))
    log.carry()
    assert [row["SourceTableName"] for row in rows(shop)] == ["t1", "t2"]


def test_no_folder_of_a_deleted_database_comes_back(shop: Path) -> None:
    log = a_log(shop)
    (shop / "Files/LandingZone").rmdir()
    (shop / "Files").rmdir()
    log.record(happened(1))
    log.carry()
    assert not list(shop.iterdir())


def test_old_days_go_and_young_ones_stay(shop: Path) -> None:
    log = a_log(shop)
    for days in (40, 31, 29, 0):
        log.record(happened(days)._replace(ended=time.time() - 86_400 * days))
    log.carry()
    log.record(happened(1))
    log.carry()
    assert {row["SourceTableName"] for row in rows(shop)} == {"t29", "t0", "t1"}
    log = a_log(shop, Settings(executions_days=2))
    log.record(happened(2))
    log.carry()
    assert {row["SourceTableName"] for row in rows(shop)} == {"t0", "t1", "t2"}


def test_it_can_be_switched_off(shop: Path) -> None:
    declare(shop, "orders", ["id"])
    put(shop, "orders", 1, {"id": [1]})
    opened(shop, executions_days=0).sync()
    assert not (shop / "Files/Monitoring/executions").exists()
    assert opened(shop).log() == []


def test_it_is_no_mirrored_table(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_log, "EVERY", 0.0)
    for name in ("executions", "orders"):
        declare(shop, name, ["id"])
        put(shop, name, 1, {"id": [1]})
    opened(shop, drop_after=0.0).sync()
    assert (shop / EXECUTIONS / "_delta_log").is_dir()
    for schema in ("", "dbo", ""):  # the table `executions` moves, the table of executions stays
        again = opened(shop, drop_after=0.0, default_schema=schema)
        result = again.sync()
        assert result.dropped == []
        assert {table.name for table in again.status().tables} == {"executions", "orders"}
        prefix = f"{schema}." if schema else ""
        assert {each.name for each in readable_tables(shop)} == {f"{prefix}executions", f"{prefix}orders"}
    assert {row["OperationName"] for row in rows(shop)} == {"Snapshotting"}


def test_many_appends_leave_few_files(shop: Path) -> None:
    log = a_log(shop)
    for number in range(100):
        log.record(happened(number))
        log.carry()
    assert logged(shop) == {f"t{n}": 1 for n in range(100)}
    snapshot = read_snapshot(str(shop / EXECUTIONS))
    assert snapshot is not None
    assert snapshot.version > 100, "merges are versions, too"
    assert len(snapshot.files) <= 40


def test_a_table_of_somebody_else_is_left_alone(shop: Path, caplog: pytest.LogCaptureFixture) -> None:
    import pyarrow as pa

    caplog.set_level(logging.WARNING, "lakemirror")
    (shop / "Tables/_lakemirror").mkdir(parents=True)
    deltalake.write_deltalake(str(shop / EXECUTIONS), pa.table({"a": [1]}))
    log = a_log(shop)
    log.record(happened(1))
    log.carry()
    assert "is not lakemirror's table of executions" in caplog.text
    assert deltalake.DeltaTable(str(shop / EXECUTIONS)).version() == 0


def test_no_secret_gets_in() -> None:
    error = LakemirrorError("storage-unavailable", "s3://user:hunter2@host/bucket: refused")
    found = of_error(TableName("", "t"), error, NOW)
    assert "hunter2" not in found.error_message
    assert found.error_message == "s3://***@host/bucket: refused"
    assert found.error_type == "SystemError"


@pytest.mark.parametrize("line", [b"", b"{}", b"[1]", b"[" * 10_000, b'["x","","","",0,0,0,null,0,0,0,"","",""]'])
def test_a_line_that_makes_no_sense(line: bytes) -> None:
    assert parse_line(line) is None


def test_a_line_comes_back_as_it_was() -> None:
    found = happened(3, error_code="x", error_message="täble \udc80 \n")
    assert parse_line(found.line()) == found
    assert b"\n" not in found.line()


def test_a_full_spool_refuses(shop: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "lakemirror")
    monkeypatch.setattr("lakemirror.storage.spool_file.MOST_BYTES", 300)
    log = a_log(shop)
    for number in range(20):
        log.record(happened(number))
    assert 1 < sum(logged(shop).values()) < 20
    assert "is full" in caplog.text


def test_a_link_is_not_followed(shop: Path, tmp_path: Path) -> None:
    (shop / "Files/Monitoring").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (shop / "Files/Monitoring/executions").symlink_to(tmp_path / "elsewhere")
    log = a_log(shop)
    log.record(happened(1))
    log.carry()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_command(shop: Path) -> None:
    declare(shop, "orders", ["id"])
    put(shop, "orders", 1, {"id": [1, 2]})
    opened(shop).sync()
    log = a_log(shop)
    log.record(happened(8)._replace(ended=time.time() - 3 * 86_400))
    run = CommandRunner().invoke

    text = run(app, ["log", str(shop)]).output
    assert "Snapshotting  orders  file 1, 2 changes, version 0, by local" in text
    assert "t8" not in text
    assert "t8" in run(app, ["log", str(shop), "--since", "7d"]).output
    (found,) = json.loads(run(app, ["log", str(shop), "orders", "--json"]).stdout)
    assert (found["SourceTableName"], found["PositionTo"], found["TableVersion"]) == ("orders", 1, 0)
    log.carry()
    assert set(found) | {DAY} == set(of_table(shop))
    assert "nothing happened" in run(app, ["log", str(shop), "none"]).output
    assert run(app, ["log", str(shop), "--since", "soon"]).exit_code == 2
    assert "database-missing" in run(app, ["log", str(shop / "no")]).output


def of_table(shop: Path) -> list[str]:
    snapshot = read_snapshot(str(shop / EXECUTIONS))
    assert snapshot is not None
    return [field["name"] for field in snapshot.metadata.schema["fields"]]


def test_a_line_costs_little(shop: Path) -> None:
    """An apply takes more than 10 ms of a processor; a line must be far below one per cent of it."""
    log = a_log(shop)
    log.record(happened(0))
    best = 1.0
    for _ in range(5):
        begun = time.process_time()
        for number in range(200):
            log.record(happened(number))
        best = min(best, (time.process_time() - begun) / 200)
    assert best < 100e-6, best


def test_a_held_spool_is_nobody_elses(shop: Path) -> None:
    first, second = a_log(shop), a_log(shop)
    first.record(happened(1))
    second.record(happened(2))
    assert sorted(p.name for p in (shop / "Files/Monitoring/executions").iterdir()) == ["0.jsonl", "1.jsonl"]
    second.carry()
    assert logged(shop) == {"t1": 1, "t2": 1}
    assert len(rows(shop)) == 1, "the other one's lines stay until it ends"
    del first
    second.carry()
    assert len(rows(shop)) == 2
    assert isinstance(second._spool, SpoolFile)


def test_a_dropped_feature_is_a_row(shop: Path) -> None:
    declare(shop, "sales.orders", ["id"])
    for number in (1, 2):
        put(shop, "sales.orders", number, {"id": [1, 2], "__rowMarker__": [4, 4]})
        opened(shop).sync()
    table = shop / "Tables/sales/orders"
    assert CommandRunner().invoke(app, ["features", "drop", str(table), "deletionVectors", "--yes"]).exit_code == 0
    (found,) = [each for each in opened(shop).log() if each.operation == "DropFeature"]
    assert (found.name, found.error_message, found.error_code) == ("sales.orders", "deletionVectors", "")
    table.rename(shop.parent / "elsewhere")
    assert not (shop.parent / "Files").exists()


def test_a_capture_is_two_rows_with_its_error(shop: Path) -> None:
    with pytest.raises(LakemirrorError), capture._recorded(str(shop), "web"):
        raise LakemirrorError("input-invalid", "postgresql://me:secret@db/shop is not there")
    begun, ended = opened(shop).log("web")
    assert (begun.operation, begun.error_code) == ("Capture", "")
    assert (ended.error_code, ended.error_message) == ("input-invalid", "postgresql://***@db/shop is not there")


def test_maintenance_is_a_row(shop: Path) -> None:
    declare(shop, "orders", ["id"])
    for number in range(1, 34):
        put(shop, "orders", number, {"id": [number]})
        opened(shop, batch_files=1).sync()
    found = [each for each in opened(shop).log() if each.operation == "Compact"]
    assert found
    assert found[0].table == "orders"
    assert found[0].rows >= 2


def test_replaced_files_are_removed(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executions_table, "_KEPT", 0.0)
    monkeypatch.setattr("lakemirror.maintenance.vacuum.UNNAMED_AFTER", 0.0)
    log = a_log(shop)
    for number in range(33):
        log.record(happened(number))
        log.carry()
    snapshot = read_snapshot(str(shop / EXECUTIONS))
    assert snapshot is not None
    assert len(list((shop / EXECUTIONS).glob(f"{DAY}=*/*.parquet"))) <= 3
    assert logged(shop) == {f"t{n}": 1 for n in range(33)}


@pytest.mark.full
def test_a_month_of_ten_thousand_tables_fits_into_200_mb(shop: Path) -> None:
    """One complete day, an apply of each table an hour, carried every five minutes; days of a month are as it is.

    All that is not of the day's last version is counted once: commits, and files that were merged."""
    chance, tables, carries = random.Random(3), 10_000, 24 * 12
    log, midnight = a_log(shop), (time.time() // 86_400 - 1) * 86_400
    for carry in range(carries):
        hour, part = divmod(carry, 12)
        for table in range(part, tables, 12):
            execution = Execution(
                round(midnight + carry * 300 + chance.random() * 300, 3), "Replicating", "sales", f"orders_{table}",
                round(chance.lognormvariate(-3, 1), 3), int(chance.lognormvariate(5, 2)) + 1,
                int(chance.lognormvariate(9, 1)), round(1 + chance.random() * 30, 3),
                720 + hour * 5 + chance.randrange(5), 725 + hour * 5, 200 + hour, "local",
            )  # fmt: skip
            log.record(execution)
        log.carry()
    snapshot = read_snapshot(str(shop / EXECUTIONS))
    assert snapshot is not None
    day = sum(add["size"] for add in snapshot.files.values())
    there = sum(path.stat().st_size for path in (shop / EXECUTIONS).rglob("*") if path.is_file())
    month = 30 * day + there - day
    print(f"{day / tables / 24:.1f} bytes a row in {len(snapshot.files)} files, a month {month / 1e6:.0f} MB")
    assert deltalake.DeltaTable(str(shop / EXECUTIONS)).to_pyarrow_table(columns=["PositionTo"]).num_rows == tables * 24
    assert month <= 200e6


def test_what_a_capture_publishes_is_logged_once(shop: Path) -> None:
    """As through a service: lines come in the landing zone, say only how a capture went, and are in the table once."""
    declare(shop, "orders", ["id"])
    place = Landing(shop).folder(PUBLISHED)
    for seconds in (0.0, 3.5):
        publish_execution(place, Execution(time.time(), "Capture", "", "web", seconds))
    assert [each.seconds for each in opened(shop).log("web")] == [0.0, 3.5]
    executions = a_log(shop)
    for _ in range(2):
        executions.carry()
    assert [row["DurationSeconds"] for row in rows(shop)] == [0.0, 3.5]
    publish_execution(place, Execution(time.time(), "Capture", "", "web", 0.0, error_code="capture-taken"))
    publish_execution(place, Execution(time.time(), "RemoveTable", "", "web"))
    assert [each.error_code for each in opened(shop).log("web")] == ["", "", "capture-taken"]
    executions.carry()
    assert len(rows(shop)) == 3 and len(opened(shop).log("web")) == 3
    for number in range(250):
        publish_execution(place, Execution(time.time(), "Capture", "", "web", float(number)))
    executions.carry()
    (file,) = (shop / PUBLISHED).iterdir()
    assert len(file.read_bytes().splitlines()) == 201 and len(rows(shop)) == 3 + 200
    file.write_text("no head\n[1]\n")
    (shop / PUBLISHED / "other.jsonl").write_bytes(b"x" * (2 << 20))
    executions.carry()
    assert len(opened(shop).log("web")) == 203
