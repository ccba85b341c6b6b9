"""Acts on one table: each may be repeated, each leaves a table that the next passes bring to the model's rows."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, folder, put, put_broken
from tests.table_rows import read_table

from lakemirror import MirroredDatabase, failpoints
from lakemirror.errors import LakemirrorError
from lakemirror.mirror.operations import NOTED, folder_named
from lakemirror.mirror.standstill import check_none_came_back, paused_for
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options


def sync(database: Path, **settings: Any) -> Any:
    return MirroredDatabase(database, maintenance=False, engine="local", drop_after=0, **settings).sync()


def change(database: Path, number: int, ids: list[int], marker: int = 4, table: str = "t") -> Path:
    values = [f"{number}-{each}" for each in ids]
    return put(database, table, number, {"id": ids, "v": values, MARKER: pa.array([marker] * len(ids), pa.int32())})


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A table of three files, one after another: 1, 2 and 3 are applied, 1 and 2 moved aside."""
    declare(tmp_path, "t", ["id"])
    for number, ids in enumerate(([1, 2], [2, 3], [4]), start=1):
        change(tmp_path, number, ids)
        assert not sync(tmp_path).failed
    return tmp_path


ROWS = [(1, "1-1"), (2, "2-2"), (3, "2-3"), (4, "3-4")]


def test_resync_is_the_way_out_of_a_restore(mirror: Path) -> None:
    deltalake.DeltaTable(mirror / "Tables/t").restore(0)
    change(mirror, 4, [5])
    assert sync(mirror).failed["t"].code == "table-restored"
    done = MirroredDatabase(mirror).resync("t")
    assert done.files == 2
    assert not sync(mirror).failed
    assert living(mirror) == [*ROWS, (5, "4-5")]
    sound(mirror)


def test_resync_twice_and_after_it_was_interrupted(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakemirror.mirror import operations

    with monkeypatch.context() as patched:
        patched.setattr(operations, "_bring_back", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            MirroredDatabase(mirror).resync("t")
    assert not sync(mirror).failed
    assert living(mirror) == ROWS, "the table waits for number 1, and nothing is lost"
    for _ in range(2):
        assert MirroredDatabase(mirror).resync("t").changed
    assert not sync(mirror).failed
    assert living(mirror) == ROWS
    assert MirroredDatabase(mirror).resync("t").changed
    assert not sync(mirror).failed
    assert living(mirror) == ROWS
    sound(mirror)


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_resync_that_ends_between_two_files_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitioned: bool
) -> None:
    declare(tmp_path, "t", ["id"], isPartitionEnabled=partitioned)
    for number in (1, 2, 3):
        for part in ("/p=a", "/p=b") if partitioned else ("",):
            rows_ = {"id": [number], "v": [f"{number}-{part}"], MARKER: pa.array([4], pa.int32())}
            put(tmp_path, f"t{part}", number, rows_)
            assert not sync(tmp_path).failed
    before = living(tmp_path)
    monkeypatch.setattr(failpoints, "_reached", {})
    with monkeypatch.context() as patched:
        patched.setenv("LAKEMIRROR_FAILPOINT", "resync.between-returns:1:error")
        with pytest.raises((OSError, LakemirrorError)):
            MirroredDatabase(tmp_path).resync("t")
    for _ in range(2):
        assert not sync(tmp_path).failed
        assert living(tmp_path) == before
    assert MirroredDatabase(tmp_path).resync("t").changed
    assert not sync(tmp_path).failed
    assert living(tmp_path) == before
    sound(tmp_path)


def test_a_lost_table_comes_back(mirror: Path) -> None:
    shutil.rmtree(mirror / "Tables/t")
    MirroredDatabase(mirror).resync("t")
    assert not sync(mirror).failed
    assert living(mirror) == ROWS


def test_without_its_files_nothing_is_touched(mirror: Path) -> None:
    archived = sorted((folder(mirror, "t") / "_ProcessedFiles").iterdir())
    archived[1].unlink()
    before = (folder(mirror, "t") / "_mirror.json").read_bytes()
    with pytest.raises(LakemirrorError) as failure:
        MirroredDatabase(mirror).resync("t")
    assert failure.value.code == "archive-incomplete" and "first number 2" in failure.value.message
    assert (folder(mirror, "t") / "_mirror.json").read_bytes() == before
    assert archived[0].exists()


def test_files_without_numbers_cannot_be_put_in_order(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], fileDetectionStrategy="LastUpdateTimeFileDetection")
    with pytest.raises(LakemirrorError) as failure:
        MirroredDatabase(tmp_path).resync("t")
    assert failure.value.code == "archive-incomplete" and "no numbers" in failure.value.message


def test_partitions_are_made_again(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], isPartitionEnabled=True)
    for number in (1, 2):
        for part in ("p=a", "p=b"):
            rows_ = {"id": [number], "v": [f"{number}-{part}"]}
            put(tmp_path, f"t/{part}", number, {**rows_, MARKER: pa.array([4], pa.int32())})
            assert not sync(tmp_path).failed
    before = living(tmp_path)
    MirroredDatabase(tmp_path).resync("t")
    assert not sync(tmp_path).failed
    assert living(tmp_path) == before and before


def test_a_paused_table_waits_and_others_go_on(mirror: Path) -> None:
    declare(mirror, "u", ["id"])
    database = MirroredDatabase(mirror)
    assert database.pause("t").changed and not database.pause("t").changed
    change(mirror, 4, [5])
    change(mirror, 1, [1], table="u")
    assert not sync(mirror).failed
    assert living(mirror) == ROWS and living(mirror, "u") == [(1, "1-1")]
    table = next(each for each in database.status().tables if each.name == "t")
    assert table.pending_files == 1 and [w.code for w in table.warnings] == ["table-paused"]
    assert database.resume("t").changed and not database.resume("t").changed
    assert not sync(mirror).failed
    assert living(mirror) == [*ROWS, (5, "4-5")]


def test_a_quarantined_file_is_applied_in_its_place(mirror: Path) -> None:
    bad = put_broken(mirror, "t", 4)
    change(mirror, 5, [1, 6])
    assert not sync(mirror, on_bad_file="quarantine").failed
    assert living(mirror)[0] == (1, "5-1")
    aside = folder(mirror, "t") / "_QuarantinedFiles" / bad.name
    assert aside.exists()
    good = change(mirror, 9, [1, 2], table="made")
    shutil.copy(good, aside)
    shutil.rmtree(folder(mirror, "made"))
    database = MirroredDatabase(mirror)
    done = database.replay("t")
    assert done.files == 1 and "applied again from number 1" in done.text
    assert not sync(mirror).failed
    assert living(mirror) == [(1, "5-1"), (2, "9-2"), (3, "2-3"), (4, "3-4"), (6, "5-6")], "later changes stay later"
    assert not database.replay("t").changed
    assert not list((folder(mirror, "t") / "_QuarantinedFiles").iterdir())
    sound(mirror)


def test_a_quarantined_file_that_is_the_next_needs_no_resync(mirror: Path) -> None:
    bad = put_broken(mirror, "t", 4)
    assert not sync(mirror, on_bad_file="quarantine").failed
    aside = folder(mirror, "t") / "_QuarantinedFiles" / bad.name
    good = change(mirror, 4, [7])
    good.replace(aside)
    assert "from number 1" not in MirroredDatabase(mirror).replay("t", bad.name).text
    version = deltalake.DeltaTable(mirror / "Tables/t").version()
    assert not sync(mirror).failed
    assert living(mirror) == [*ROWS, (7, "4-7")]
    assert deltalake.DeltaTable(mirror / "Tables/t").version() == version + 1


@pytest.mark.parametrize("history", [(), ("changes", "scd2")], ids=["plain", "history"])
def test_a_file_that_comes_back_while_the_next_one_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: tuple[str, ...]
) -> None:
    """The apply has looked before: it looks again, so the file is not passed over."""
    from lakemirror.mirror import step

    declare(tmp_path, "t", ["id"], lakemirror={"history": list(history)} if history else {})
    change(tmp_path, 1, [1])
    bad = put_broken(tmp_path, "t", 2)
    assert not sync(tmp_path, on_bad_file="quarantine").failed
    change(tmp_path, 2, [2]).replace(folder(tmp_path, "t") / "_QuarantinedFiles" / bad.name)
    change(tmp_path, 3, [3])
    true = step.run

    def replays(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(step, "run", true)
        written = true(*given, **more)
        assert MirroredDatabase(tmp_path).replay("t", bad.name).files == 1
        return written

    monkeypatch.setattr(step, "run", replays)
    for _ in range(2):
        assert not sync(tmp_path).failed
    for name in ("t", "t__changes", "t__history")[: len(history) + 1]:
        rows = read_table(tmp_path / "Tables" / name)
        assert sorted(rows["v"].to_pylist()) == ["1-1", "2-2", "3-3"], name
    assert not (folder(tmp_path, "t") / "_paused.json").exists()


def test_a_file_does_not_come_back_where_one_of_the_tables_is_past_it(
    mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(mirror, "t", ["id"], lakemirror={"history": "changes"})
    change(mirror, 4, [5])
    assert not sync(mirror).failed
    bad = put_broken(mirror, "t", 5)
    assert not sync(mirror, on_bad_file="quarantine").failed
    change(mirror, 6, [6])

    def dies(name: str) -> None:
        if name == "history.after-commit":
            raise LakemirrorError("table-unreadable", "the table of changes is ahead")

    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reach", dies)
        assert sync(mirror).failed
    (folder(mirror, "t") / "_paused.json").write_text("{}")
    with pytest.raises(LakemirrorError) as raised:
        MirroredDatabase(mirror).replay("t", bad.name)
    assert raised.value.code == "history-has-no-place"
    assert (folder(mirror, "t") / "_QuarantinedFiles" / bad.name).exists()
    assert (folder(mirror, "t") / "_paused.json").exists(), "a user's own pause stays"


@pytest.mark.parametrize("history", [(), ("changes", "scd2")], ids=["plain", "history"])
@pytest.mark.parametrize("moment", ["before-folder", "before-rows", "before-commit"])
def test_a_file_that_comes_back_while_the_table_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: tuple[str, ...], moment: str
) -> None:
    """There is no version yet that the replay could take: the apply gives way, or the replay."""
    from lakemirror.mirror import apply, step

    declare(tmp_path, "t", ["id"], lakemirror={"history": list(history)} if history else {})
    bad = put_broken(tmp_path, "t", 1)
    assert not sync(tmp_path, on_bad_file="quarantine").failed
    change(tmp_path, 1, [1]).replace(folder(tmp_path, "t") / "_QuarantinedFiles" / bad.name)
    change(tmp_path, 2, [2])
    where, name = (step, "run") if moment == "before-commit" else (apply, "make_table_folder")
    true, refused = getattr(where, name), list[str]()
    if moment == "before-rows":
        where, name, true = apply, "_row_results", apply._row_results

    def replays(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(where, name, true)
        written = true(*given, **more) if moment == "before-commit" else None
        try:
            MirroredDatabase(tmp_path).replay("t")
        except LakemirrorError as error:
            refused.append(error.code)
        return written if moment == "before-commit" else true(*given, **more)

    monkeypatch.setattr(where, name, replays)
    for _ in range(2):
        assert not sync(tmp_path).failed
    assert refused == (["concurrent-commit"] if moment == "before-commit" else [])
    for target in ("t", "t__changes", "t__history")[: len(history) + 1]:
        rows = read_table(tmp_path / "Tables" / target)
        assert sorted(rows["v"].to_pylist()) == (["2-2"] if refused else ["1-1", "2-2"]), target
    assert (folder(tmp_path, "t") / "_QuarantinedFiles" / bad.name).exists() == bool(refused)


def test_the_first_apply_gives_way_to_a_replay_that_goes_on(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put_broken(tmp_path, "t", 1)
    assert not sync(tmp_path, on_bad_file="quarantine").failed
    database = MirroredDatabase(tmp_path)
    seen = folder_named(database.storage, "t")
    check_none_came_back(database.storage, seen, ["Tables/t"])
    with paused_for("replay", database.storage, seen.name), pytest.raises(LakemirrorError) as raised:
        check_none_came_back(database.storage, seen, ["Tables/t"])
    assert raised.value.code == "concurrent-commit"


@pytest.mark.parametrize("other", ["replay", "pause", "resume"])
def test_a_replay_whose_pause_is_ended_moves_nothing_more(
    mirror: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Another replay takes the pause over, or a user does; then an engine goes past the file."""
    declare(mirror, "t", ["id"], lakemirror={"history": "changes"})
    aside = [put_broken(mirror, "t", number) for number in (4, 5)]
    assert not sync(mirror, on_bad_file="quarantine").failed
    for number, bad in zip((4, 5), aside, strict=True):
        change(mirror, number, [number]).replace(folder(mirror, "t") / "_QuarantinedFiles" / bad.name)
    change(mirror, 6, [6])
    database, true = MirroredDatabase(mirror), failpoints.reach

    def meets_another(name: str) -> None:
        if name == "replay.before-return":
            monkeypatch.setattr(failpoints, "reach", true)
            assert getattr(database, other)("t", *([aside[0].name] if other == "replay" else [])).changed
            assert not sync(mirror).failed

    monkeypatch.setattr(failpoints, "reach", meets_another)
    with pytest.raises(LakemirrorError) as raised:
        database.replay("t", aside[1].name)
    assert raised.value.code == "concurrent-commit"
    assert (folder(mirror, "t") / "_paused.json").exists() == (other == "pause"), "a user's own pause stays"
    assert (folder(mirror, "t") / "_QuarantinedFiles" / aside[1].name).exists(), "nobody goes past what is not there"
    database.resume("t")
    assert not sync(mirror).failed
    came = ["4-4", "6-6"] if other == "replay" else ["6-6"]
    assert sorted(read_table(mirror / "Tables/t__changes")["v"].to_pylist())[-len(came) :] == came


def test_a_file_has_no_place_in_a_history_that_goes_on_after_a_resync(mirror: Path) -> None:
    declare(mirror, "t", ["id"], lakemirror={"history": "changes"})
    bad = put_broken(mirror, "t", 4)
    change(mirror, 5, [5])
    assert not sync(mirror, on_bad_file="quarantine").failed
    change(mirror, 4, [4]).replace(folder(mirror, "t") / "_QuarantinedFiles" / bad.name)
    database = MirroredDatabase(mirror)
    database.resync("t")
    with pytest.raises(LakemirrorError) as raised:
        database.replay("t")
    assert raised.value.code == "history-has-no-place"


def test_replay_that_was_interrupted_goes_on(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakemirror.mirror import operations

    bad = put_broken(mirror, "t", 4)
    change(mirror, 5, [6])
    assert not sync(mirror, on_bad_file="quarantine").failed
    shutil.copy(folder(mirror, "t") / f"{5:020}.parquet", folder(mirror, "t") / "_QuarantinedFiles" / bad.name)
    true = operations._mark_anew

    def dies(*given: Any) -> None:
        true(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(operations, "_mark_anew", dies)
        with pytest.raises(KeyboardInterrupt):
            MirroredDatabase(mirror).replay("t")
    assert not sync(mirror).failed
    MirroredDatabase(mirror).replay("t")
    assert not sync(mirror).failed
    assert living(mirror) == [*ROWS, (6, "5-6")]
    sound(mirror)


def test_an_interrupted_replay_is_not_lost_by_an_interrupted_resync(
    mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder keeps the marker that the replay gave it: else the file that came back would count as applied."""
    bad = put_broken(mirror, "t", 4)
    change(mirror, 5, [6])
    assert not sync(mirror, on_bad_file="quarantine").failed
    good = change(mirror, 4, [7])
    good.replace(folder(mirror, "t") / "_QuarantinedFiles" / bad.name)
    database = MirroredDatabase(mirror)
    for point, act in (("resync.between-returns", database.replay), ("resync.before-marker", database.resync)):
        monkeypatch.setattr(failpoints, "_reached", {})
        with monkeypatch.context() as patched:
            patched.setenv("LAKEMIRROR_FAILPOINT", f"{point}:1:error")
            with contextlib.suppress(OSError, LakemirrorError):
                act("t")
        sync(mirror)
    assert living(mirror) == [*ROWS, (6, "5-6"), (7, "4-7")]
    sound(mirror)


def test_a_dropped_table_is_restored_and_stays(mirror: Path) -> None:
    shutil.rmtree(folder(mirror, "t"))
    for _ in range(2):
        sync(mirror)
    assert not (mirror / "Tables/t").exists()
    database = MirroredDatabase(mirror)
    assert database.restore("t").changed and not database.restore("t").changed
    for _ in range(3):
        assert not sync(mirror).failed
    assert living(mirror) == ROWS
    assert json.loads((folder(mirror, "t") / "_metadata.json").read_text()) == {"keyColumns": ["id"]}
    change(mirror, 1, [8])
    assert not sync(mirror).failed
    assert living(mirror) == [(8, "1-8")], "a new folder's first file takes the rows' place"


def test_a_restored_table_declares_what_a_row_without_a_marker_is(mirror: Path) -> None:
    declare(mirror, "t", ["id"], isUpsertDefaultRowMarker=True)
    change(mirror, 4, [8])
    sync(mirror)
    shutil.rmtree(folder(mirror, "t"))
    for _ in range(2):
        sync(mirror)
    assert MirroredDatabase(mirror).restore("t").changed
    declared = json.loads((folder(mirror, "t") / "_metadata.json").read_text())
    assert declared == {"keyColumns": ["id"], "isUpsertDefaultRowMarker": True}


@pytest.mark.parametrize("act", ["pause", "resume", "resync", "replay", "restore"])
def test_a_table_that_is_not_there(tmp_path: Path, act: str) -> None:
    (tmp_path / "Files/LandingZone").mkdir(parents=True)
    with pytest.raises(LakemirrorError) as failure:
        getattr(MirroredDatabase(tmp_path), act)("nobody")
    assert failure.value.code == "table-unknown"
    with pytest.raises(LakemirrorError) as failure:
        getattr(MirroredDatabase(tmp_path / "Files"), act)("nobody")
    assert failure.value.code == "database-missing"


def test_each_act_is_noted(mirror: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from lakemirror.cli import operations as commands

    steps: list[Callable[[], None]] = [
        lambda: commands.pause(mirror, "t"),
        lambda: commands.resume(mirror, "t"),
        lambda: commands.resync(mirror, "t"),
        lambda: commands.replay(mirror, "t", ""),
        lambda: commands.restore(mirror, "t"),
    ]
    for step in steps:
        step()
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["t is paused", "t goes on"] and len(said) == 5
    noted = [json.loads(line) for line in (mirror / NOTED).read_text().splitlines()]
    assert [(each["act"], each["table"]) for each in noted] == [("pause", "t"), ("resume", "t"), ("resync", "t")]
    with pytest.raises(LakemirrorError):
        commands.pause(mirror / "nowhere", "t")


def living(database: Path, table: str = "t") -> list[tuple[int, str]]:
    """The rows of a mirrored table, by its log and its data files alone."""
    from lakemirror.delta.log import read_snapshot
    from lakemirror.engines.kernels.live_rows import live_rows
    from lakemirror.engines.target import target_of

    place = database / "Tables" / table
    snapshot = read_snapshot(place)
    assert snapshot is not None
    target = target_of(str(place), snapshot.metadata.value, ())
    parts = [part.to_pylist() for add in snapshot.files.values() for part in live_rows(add, target)]
    return sorted((row["id"], row["v"]) for part in parts for row in part)


def sound(database: Path) -> None:
    report = verify_database(MirroredDatabase(database).storage, (), Options(against_files=True))
    wrong = [each for each in report.findings if each.severity == "error"]
    assert not wrong, [str(each) for each in wrong]
