"""A process that is killed, or a disk that fails, at any place of an apply with history tables: each has all, once."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time as time_
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests import preloaded
from tests.change_tables import UNCHANGED, expected, expected_versions, held, held_versions, marked, put_at
from tests.landing import declare, folder, put
from tests.table_rows import read_table, table_rows

from lakemirror import LakemirrorError, MirroredDatabase
from lakemirror.maintenance.late_days import forget_old
from lakemirror.mirror.table_log import TableLog, read_table_log
from lakemirror.storage import LocalStorage
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options

CHILD = """
import sys
from lakemirror import MirroredDatabase, failpoints
from lakemirror.mirror import table_state
table_state.FIRST_PAUSES = (0.01,) * 3
MirroredDatabase(sys.argv[1], batch_files=2).sync()
print(failpoints.times_reached(sys.argv[2]))
"""

MET = [
    "history.after-commit",
    "identity.before-marker",
    "apply.before-write",
    "apply.before-commit",
    "commit.before-checksum",
    "apply.after-commit",
    "archive.before-move",
    "archive.between-moves",
]
OF_COMMITS = ("apply.before-commit", "commit.before-checksum", "apply.after-commit", "history.after-commit")
SOME = ((("scd2", "changes"), (2, 4)), (("changes",), (3,)))
ALL = ((("scd2", "changes"), tuple(range(1, 7))), (("changes", "scd2"), (2, 5)), (("changes",), tuple(range(1, 5))))
"""Modes of the history tables, and the commits, of two batches, at which the process ends."""


def tables(database: Path) -> list[TableLog]:
    """What the logs of the mirrored table and of its history tables say."""
    found = [read_table_log(str(path.parent)) for path in (database / "Tables").glob("*/_delta_log")]
    return [each for each in found if each is not None]


def check_archived(database: Path) -> None:
    """No file is archived that one of the tables does not have."""
    archived = [int(path.name[:20]) for path in folder(database, "t").glob("_ProcessedFiles/*.parquet")]
    if archived:
        assert max(archived) <= min(each.position.number for each in tables(database) if each.position), archived


@pytest.mark.parametrize("mode", ["kill", pytest.param("error", marks=pytest.mark.full)])
@pytest.mark.parametrize("name", MET)
@pytest.mark.parametrize("ways", [SOME, pytest.param(ALL, marks=pytest.mark.full)], ids=["some", "all"])
def test_killed_at_a_failpoint(tmp_path: Path, name: str, mode: str, ways: Any) -> None:
    """The second batch is another one than that of the first process: a file came in between."""
    if ways is SOME:
        ways = [(modes, times[: 1 if mode == "error" else None]) for modes, times in ways]
    cases = [(modes, time) for modes, times in ways for time in (times if name in OF_COMMITS else (1,))]
    for modes, time in cases[: 1 if mode == "error" and ways is not ALL and name not in OF_COMMITS else None]:
        if time > 2 * len(modes) + 2 * (name != "history.after-commit"):
            continue  # so often a place is met by two batches
        database = tmp_path / f"{len(modes)}-{modes[0]}-{time}"
        declare(database, "t", ["id"], lakemirror={"history": list(modes)})
        put_at(database, "t", 1, {"id": [1, 2], "v": ["a", "b"]})
        put_at(database, "t", 2, marked([4, 2], id=[1, 2], v=["A", None]))
        put_at(database, "t", 3, marked([4], id=[3], v=["c"]))
        environment = {**os.environ, "LAKEMIRROR_FAILPOINT": f"{name}:{time}" + (":error" if mode == "error" else "")}
        words = [sys.executable, "-c", CHILD, str(database), name]
        done = preloaded.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
        if mode == "kill":
            assert done.returncode == -signal.SIGKILL, (time, done.stdout, done.stderr)
        else:
            assert done.returncode == 0 and int(done.stdout.splitlines()[-1]) >= time, done.stderr
        check_archived(database)
        put_at(database, "t", 4, marked([1], id=[3], v=["C"]))
        result = MirroredDatabase(database).sync()
        assert not result.failed, (time, result.failed)
        assert held(database, "t__changes") == expected(database, "t"), time
        assert table_rows(database, "t") == {(1, "A"): 1, (3, "C"): 1}, time
        if "scd2" in modes:
            wanted = expected_versions(database, "t", ["id"], {"history": list(modes)})
            assert held_versions(database, "t__history") == wanted, time
        assert len({each.position for each in tables(database)}) == 1 and len(tables(database)) == 1 + len(modes)
        MirroredDatabase(database).sync()
        assert [path.name for path in folder(database, "t").glob("*.parquet")] == [f"{4:020}.parquet"]


MERGING = """
import sys
from pathlib import Path
from tests.change_tables import put_at
from lakemirror import MirroredDatabase
for number in range(2, 12):
    put_at(Path(sys.argv[1]), "t", number, {"id": [number, 1], "n": [number] * 2, "v": ["z", str(number)]})
    MirroredDatabase(sys.argv[1]).sync()
"""


@pytest.mark.parametrize("mode", ["kill", "error"])
def test_killed_while_open_versions_are_merged(tmp_path: Path, mode: str) -> None:
    """The merge is left out, or made by a later apply; its files do not stay."""
    options = {"sequence": "n", "history": "scd2"}
    declare(tmp_path, "t", ["id"], lakemirror=options)
    put_at(tmp_path, "t", 1, {"id": [1], "n": [1], "v": ["a"]})
    environment = {
        **os.environ,
        "LAKEMIRROR_FAILPOINT": "merge.before-commit" + (":1:error" if mode == "error" else ""),
    }
    words = [sys.executable, "-c", MERGING, str(tmp_path)]
    done = preloaded.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == (-signal.SIGKILL if mode == "kill" else 0), done.stderr
    last = len([path for path in folder(tmp_path, "t").rglob("*.parquet") if path.name[:20].isdigit()])
    for number in range(last + 1, last + 5):
        put_at(tmp_path, "t", number, {"id": [number, 1], "n": [number] * 2, "v": ["z", str(number)]})
        result = MirroredDatabase(tmp_path).sync()
        assert not result.failed, result.failed
    assert held_versions(tmp_path, "t__history") == expected_versions(tmp_path, "t", ["id"], options)
    log = [json.loads(line) for path in sorted((tmp_path / "Tables/t__history/_delta_log").glob("*.json"))
           for line in path.read_text().splitlines()]  # fmt: skip
    assert any(action.get("commitInfo", {}).get("operation") == "OPTIMIZE" for action in log), "nothing was merged"
    named = {action["add"]["path"] for action in log if "add" in action}
    assert {path.name for path in (tmp_path / "Tables/t__history").glob("*.parquet")} <= named


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize(
    ("name", "time"), [("history.after-commit", 1), ("history.after-commit", 3), ("apply.before-commit", 5)]
)
def test_killed_where_deletes_are_remembered(tmp_path: Path, name: str, time: int, deletes: str) -> None:
    """Late changes, their deletes and a table of changes: what came before the kill counts once."""
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": "n", "deletes": deletes, "history": "changes"})
    put(tmp_path, "t", 1, marked([4, 4, 4], id=[1, 2, 3], n=[1, 5, 1], v=["a", "b", "c"]))
    put(tmp_path, "t", 2, marked([4, 2], id=[1, 1], n=[3, 4], v=["late or not", None]))
    put(tmp_path, "t", 3, marked([2, 4, 2], id=[3, 1, 2], n=[7, 2, 4], v=[None, "late", None]))
    environment = {**os.environ, "LAKEMIRROR_FAILPOINT": f"{name}:{time}"}
    words = [sys.executable, "-c", CHILD, str(tmp_path), name]
    done = preloaded.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, (done.stdout, done.stderr)
    put(tmp_path, "t", 4, marked([4, 4], id=[1, 3], n=[4, 6], v=["equal", "late"]))
    result = MirroredDatabase(tmp_path).sync()
    assert not result.failed, result.failed
    assert held(tmp_path, "t__changes") == expected(tmp_path, "t")
    living = {(row["id"], row["n"], row["v"]) for row in read_table(tmp_path / "Tables/t").to_pylist()
              if not row.get("__deleted")}  # fmt: skip
    assert living == {(1, 4, "equal"), (2, 5, "b")}
    deleted = sorted((row["id"], row["n"]) for row in read_table(tmp_path / "Tables/t__late").to_pylist())
    assert deleted == [(1, 4), (2, 4), (3, 7)]
    tables = json.loads((tmp_path / "Files/Monitoring/tables.json").read_text())["tables"]
    assert tables[0]["metrics"]["lateChanges"] == 3


def put_in_order(database: Path, number: int) -> None:
    """Late changes, and partial rows whose values depend on what came before them in the same batch."""
    names = {1: [[], [], []], 2: [["w"], [], ["v"]], 3: [[], ["w"], []], 4: [["w"], [], ["v"]]}[number]
    rows = {
        1: marked([4, 4, 4], id=[1, 1, 2], n=[1, 9, 5], v=["a", "c", "x"], w=["p", "r", "s"]),
        2: marked([1, 4, 1], id=[1, 1, 2], n=[5, 3, 7], v=["b", "z", None], w=[None, "q", "t"]),
        3: marked([2, 1, 4], id=[1, 1, 2], n=[7, 8, 6], v=[None, "y", "x"], w=[None, None, "s"]),
        4: marked([1, 2, 1], id=[1, 2, 1], n=[4, 9, 12], v=["k", None, None], w=[None, None, "u"]),
    }[number]
    put_at(database, "t", number, rows.append_column(UNCHANGED, pa.array(names, pa.list_(pa.string()))))


def all_rows(database: Path) -> dict[str, list[str]]:
    """Of each table its rows, without times of an apply."""
    found = {}
    for path in (database / "Tables").glob("*/_delta_log"):
        table = read_table(path.parent)
        names = [name for name in table.column_names if name not in ("__applied_at", "__deleted_at")]
        found[path.parent.name] = sorted(map(repr, table.select(names).to_pylist()))
    return found


IN_ORDER = [("history.after-commit", 1), ("history.after-commit", 2), ("apply.after-commit", 2),
            ("apply.before-commit", 4), ("history.after-commit", 3), ("archive.before-move", 1)]  # fmt: skip


@pytest.mark.parametrize("deletes", ["hard", pytest.param("soft", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("name", "time"),
    [pytest.param(*case, marks=pytest.mark.full) if at > 2 else case for at, case in enumerate(IN_ORDER)],
)
def test_killed_where_versions_have_a_sequence(tmp_path: Path, name: str, time: int, deletes: str) -> None:
    """All tables are as without the kill, also what is remembered: partial rows have the values of their arrival, also
    where only a version has them."""
    database, control = tmp_path / "database", tmp_path / "control"
    for each in (database, control):
        declare(each, "t", ["id"], lakemirror={"sequence": "n", "deletes": deletes, "history": ["scd2", "changes"]})
        put_in_order(each, 1)
        assert not MirroredDatabase(each).sync().failed
        assert forget_old(str(each / "Tables/t__late"), now=time_.time() + 8 * 86_400)
        for number in (2, 3):
            put_in_order(each, number)
    environment = {**os.environ, "LAKEMIRROR_FAILPOINT": f"{name}:{time}"}
    words = [sys.executable, "-c", CHILD, str(database), name]
    done = preloaded.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, (done.stdout, done.stderr)
    check_archived(database)
    for each in (database, control):
        put_in_order(each, 4)
        result = MirroredDatabase(each, batch_files=1).sync()
        assert not result.failed, result.failed
    assert all_rows(database) == all_rows(control)
    assert len({each.position.number for each in tables(database) if each.position}) == 1
    assert not verify_database(LocalStorage(database), (), Options(against_files=True)).exit_code


def test_only_the_table_that_is_behind_is_caught_up(tmp_path: Path) -> None:
    """Files found by their times: after the kill an older file comes, and the batch of one table is first."""
    declare(tmp_path, "t", ["id"], lakemirror={"history": "changes"},
            fileDetectionStrategy="LastUpdateTimeFileDetection")  # fmt: skip
    for number in (1, 2):
        put(tmp_path, "t", number, {"id": [number]}).rename(folder(tmp_path, "t") / f"file-{number}.parquet")
    environment = {**os.environ, "LAKEMIRROR_FAILPOINT": "history.after-commit"}
    words = [sys.executable, "-c", CHILD, str(tmp_path), "history.after-commit"]
    preloaded.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert not (tmp_path / "Tables/t/_delta_log" / f"{0:020}.json").exists()
    older = put(tmp_path, "t", 3, {"id": [3]})
    os.utime(older, (1_600_000_000, 1_600_000_000))
    older.rename(folder(tmp_path, "t") / "file-3.parquet")
    result = MirroredDatabase(tmp_path, batch_files=1).sync()
    assert not result.failed, result.failed
    files = sorted(row[0] for row in held(tmp_path, "t__changes"))
    assert files == ["file-1.parquet", "file-2.parquet", "file-3.parquet"]
    assert table_rows(tmp_path, "t") == {(1,): 1, (2,): 1, (3,): 1}
    log = (tmp_path / "Tables/t/_delta_log" / f"{0:020}.json").read_text().splitlines()
    manifest = json.loads(json.loads(log[0])["commitInfo"]["userMetadata"])["lakemirror"]
    assert manifest["file"] == "file-1.parquet", "the batch that the table of changes has comes first"


def killed(database: Path, name: str, time: int = 1) -> None:
    """A pass of batches of two files, which ends at a failpoint."""
    environment = {**os.environ, "LAKEMIRROR_FAILPOINT": f"{name}:{time}"}
    words = [sys.executable, "-c", CHILD, str(database), name]
    done = preloaded.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, (done.stdout, done.stderr)


def put_back(kept: Path, path: Path) -> None:
    shutil.copy2(kept, path)


OTHER_ROWS: dict[str, Any] = {"other": marked([4, 4], id=[1, 5], v=["X", "Y"]), "fewer": marked([4], id=[1], v=["X"])}
BETWEEN = [
    (["changes"], "history.after-commit", 1),
    (["scd2", "changes"], "history.after-commit", 1),
    (["scd2", "changes"], "history.after-commit", 2),
    (["scd2", "changes"], "apply.before-commit", 3),
]


@pytest.mark.parametrize("rows", OTHER_ROWS)
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(("modes", "name", "time"), BETWEEN)
def test_a_file_is_replaced_between_two_commits(
    tmp_path: Path, modes: list[str], name: str, time: int, number: int, rows: str
) -> None:
    """The mirrored table does not take another content than its history: it stops, and goes on with the earlier file,
    or with the other one once the history is dropped."""
    database, kept = tmp_path / "database", tmp_path / "kept"
    declare(database, "t", ["id"], lakemirror={"history": modes})
    put_at(database, "t", 1, {"id": [1, 2], "v": ["a", "b"]})
    put_at(database, "t", 2, marked([4, 2], id=[1, 2], v=["A", None]))
    path = folder(database, "t") / f"{number:020}.parquet"
    put_back(path, kept)
    killed(database, name, time)
    put_at(database, "t", number, OTHER_ROWS[rows])
    before = all_rows(database)
    for _ in range(2):  # files before the other one are applied
        failed = MirroredDatabase(database).sync().failed["t"]
        assert failed.code == "file-replaced" and str(failed.file).endswith(path.name)
        now = all_rows(database)
        assert now.get("t", []) == (["{'id': 1, 'v': 'a'}", "{'id': 2, 'v': 'b'}"] if number == 2 else [])
        assert {each: now[each] for each in before} == before
    if number == 2:
        with pytest.raises(LakemirrorError, match="applied another file under this name"):
            MirroredDatabase(database).build_history("t")
    assert "history drop" in failed.hint and f"Tables/t__{'history' if 'scd2' in modes else 'changes'}" in str(failed)
    again = tmp_path / "again"
    shutil.copytree(database, again, copy_function=shutil.copy2)
    put_back(kept, path)
    assert not MirroredDatabase(database).sync().failed
    assert held(database, "t__changes") == expected(database, "t")
    assert table_rows(database, "t") == {(1, "A"): 1}
    MirroredDatabase(again).drop_history("t")
    assert not MirroredDatabase(again).sync().failed
    assert held(again, "t__changes") == expected(again, "t", since=number)
    if number == 1:
        assert table_rows(again, "t") == ({(1, "A"): 1, (5, "Y"): 1} if rows == "other" else {(1, "A"): 1})
        for each in (database, again) if "scd2" in modes else ():
            assert held_versions(each, "t__history") == expected_versions(each, "t", ["id"], {"history": modes})
    else:
        assert table_rows(again, "t") == {(1, "X"): 1, (2, "b"): 1} | ({(5, "Y"): 1} if rows == "other" else {})


def test_a_file_is_written_again_between_two_commits(tmp_path: Path) -> None:
    """The message has the time with which the same content is applied."""
    declare(tmp_path, "t", ["id"], lakemirror={"history": "scd2"})
    path = put_at(tmp_path, "t", 1, {"id": [1], "v": ["a"]})
    size = path.stat().st_size
    killed(tmp_path, "history.after-commit")
    path.write_bytes(path.read_bytes())
    failed = MirroredDatabase(tmp_path).sync().failed["t"]
    times = re.findall(rf": {size} bytes of (\S+); this one has {size} bytes of (\S+)$", failed.message)
    assert failed.code == "file-replaced" and len(times) == 1 and "touch -d" in failed.hint
    subprocess.run(["touch", "-d", times[0][0], path], check=True)
    assert not MirroredDatabase(tmp_path).sync().failed
    assert table_rows(tmp_path, "t") == {(1, "a"): 1}
    assert held_versions(tmp_path, "t__history") == expected_versions(tmp_path, "t", ["id"], {"history": "scd2"})


def test_a_file_is_deleted_between_two_commits(tmp_path: Path) -> None:
    """A missing number is waited for. Files found by their times have none: the table stops until the file is back."""
    database, kept = tmp_path / "database", tmp_path / "kept"
    declare(database, "numbered", ["id"], lakemirror={"history": "changes"})
    declare(database, "timed", ["id"], lakemirror={"history": "changes"},
            fileDetectionStrategy="LastUpdateTimeFileDetection")  # fmt: skip
    path = put_at(database, "numbered", 1, {"id": [1], "v": ["a"]})
    killed(database, "history.after-commit")
    put_back(path, kept)
    path.unlink()
    put_at(database, "numbered", 2, {"id": [2], "v": ["b"]})
    found = MirroredDatabase(database).sync()
    assert not found.failed and not (database / "Tables/numbered/_delta_log" / f"{0:020}.json").exists()
    put_back(kept, path)
    for number in (1, 2):
        put_at(database, "timed", number, {"id": [number], "v": ["a"]})
    assert not MirroredDatabase(database, batch_files=2).sync().failed
    assert held(database, "numbered__changes") == expected(database, "numbered")
    assert table_rows(database, "numbered") == {(1, "a"): 1, (2, "b"): 1}


@pytest.mark.parametrize("gone", [(1,), (2,), (1, 2), (1, 2, 3)])
def test_a_file_found_by_its_time_is_deleted_between_two_commits(tmp_path: Path, gone: tuple[int, ...]) -> None:
    """The mirrored table does not go on without it, whichever of the batch it is, and whatever comes behind."""
    declare(tmp_path, "t", ["id"], lakemirror={"history": "changes"},
            fileDetectionStrategy="LastUpdateTimeFileDetection")  # fmt: skip
    for number in (1, 2):
        put_at(tmp_path, "t", number, {"id": [number], "v": ["a"]})
    killed(tmp_path, "history.after-commit")
    if 3 not in gone:
        put_at(tmp_path, "t", 3, {"id": [3], "v": ["a"]})
    kept = {path: path.rename(tmp_path / path.name) for path in sorted(folder(tmp_path, "t").glob("*.parquet"))
            if int(path.name[:20]) in gone}  # fmt: skip
    for _ in range(2):
        failed = MirroredDatabase(tmp_path).sync().failed["t"]
        assert failed.code == "file-replaced" and "t__changes" in str(failed)
        assert not (tmp_path / "Tables/t/_delta_log" / f"{0:020}.json").exists()
    for path, aside in kept.items():
        aside.rename(path)
    assert not MirroredDatabase(tmp_path, batch_files=1).sync().failed
    assert held(tmp_path, "t__changes") == expected(tmp_path, "t")
    assert sum(table_rows(tmp_path, "t").values()) == (2 if 3 in gone else 3)


def test_a_file_is_replaced_before_the_memory_of_late_changes_is_passed(tmp_path: Path) -> None:
    """That memory is a table too: it is moved away, and begins again."""
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": "n"})
    put(tmp_path, "t", 1, marked([4, 4], id=[1, 2], n=[1, 1]))
    assert not MirroredDatabase(tmp_path).sync().failed
    put(tmp_path, "t", 2, marked([2], id=[1], n=[5]))
    killed(tmp_path, "history.after-commit")
    put(tmp_path, "t", 2, marked([2], id=[2], n=[5]))
    failed = MirroredDatabase(tmp_path).sync().failed["t"]
    assert failed.code == "file-replaced" and "Tables/t__late" in str(failed) and "Move that table away" in failed.hint
    (tmp_path / "Tables/t__late").rename(tmp_path / "away")
    assert not MirroredDatabase(tmp_path).sync().failed
    put(tmp_path, "t", 3, marked([4, 4], id=[1, 2], n=[2, 3]))
    assert not MirroredDatabase(tmp_path).sync().failed
    assert table_rows(tmp_path, "t") == {(1, 2): 1}


def test_a_copy_of_a_database_goes_on_between_two_commits(tmp_path: Path) -> None:
    """A copy has new times: its files are those of the history nevertheless."""
    database = tmp_path / "database"
    declare(database, "t", ["id"], lakemirror={"history": "changes"})
    put_at(database, "t", 1, {"id": [1], "v": ["a"]})
    put_at(database, "t", 2, {"id": [2], "v": ["b"]})
    killed(database, "history.after-commit")
    copied = shutil.copytree(database, tmp_path / "copied", copy_function=shutil.copyfile)
    assert not MirroredDatabase(copied).sync().failed
    assert table_rows(copied, "t") == {(1, "a"): 1, (2, "b"): 1}
    assert held(copied, "t__changes") == expected(copied, "t")


def switched(database: Path, *options: Any) -> None:
    """Passes with these options of history one after the other."""
    for history in options:
        declare(database, "t", ["id"], lakemirror={"history": history})
        assert not MirroredDatabase(database).sync().failed


BOTH = ["scd2", "changes"]
ACTS: dict[str, Callable[[Path], object]] = {
    "resync": lambda database: MirroredDatabase(database).resync("t"),
    "drop": lambda database: MirroredDatabase(database).drop_history("t"),
    "off": lambda database: switched(database, [], BOTH),
    "renamed": lambda database: switched(
        database, [{"mode": "scd2", "name": "past"}, {"mode": "changes", "name": "log"}], BOTH
    ),
}


@pytest.mark.parametrize("time", [1, 2])
@pytest.mark.parametrize("act", ACTS)
def test_an_act_while_a_table_is_behind(tmp_path: Path, act: str, time: int) -> None:
    """Each table has the file once, or says that it lacks it; a build makes all of them whole."""
    declare(tmp_path, "t", ["id"], lakemirror={"history": BOTH})
    put_at(tmp_path, "t", 1, {"id": [1, 2], "v": ["a", "b"]})
    assert not MirroredDatabase(tmp_path).sync().failed
    put_at(tmp_path, "t", 2, marked([4, 2], id=[1, 2], v=["A", None]))
    killed(tmp_path, "history.after-commit", time)
    with pytest.raises(LakemirrorError, match="is being written"):
        MirroredDatabase(tmp_path).build_history("t")
    ACTS[act](tmp_path)
    put_at(tmp_path, "t", 3, marked([1], id=[3], v=["C"]))
    result = MirroredDatabase(tmp_path).sync()
    assert not result.failed, result.failed
    assert table_rows(tmp_path, "t") == {(1, "A"): 1, (3, "C"): 1}
    lacks = time == 1 and act in ("off", "renamed")
    assert [each.code for each in MirroredDatabase(tmp_path).status().tables[0].warnings] == ["history-gap"] * lacks
    changes = expected(tmp_path, "t", since=2 if act == "drop" else 1)
    if lacks:
        changes = Counter({row: 1 for row in changes if row[0] != f"{2:020}.parquet"})
    assert held(tmp_path, "t__changes") == changes
    if act != "drop":
        assert held_versions(tmp_path, "t__history") == expected_versions(tmp_path, "t", ["id"], {"history": BOTH})
    if act == "renamed":
        assert held(tmp_path, "log") == expected(tmp_path, "t", since=2) - expected(tmp_path, "t", since=3)
    if act != "resync":  # its earlier identity is one of another folder
        MirroredDatabase(tmp_path).build_history("t")
        assert held(tmp_path, "t__changes") == expected(tmp_path, "t")
        assert held_versions(tmp_path, "t__history") == expected_versions(tmp_path, "t", ["id"], {"history": BOTH})
