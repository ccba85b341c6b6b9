"""A power cut at any moment: the disk keeps what was synced and any part of the rest. The tables equal the model."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests.applies.test_applies import changes, no_spark, rows, sync
from tests.change_tables import expected as changes_of
from tests.change_tables import expected_versions, held, held_versions, put_at
from tests.crash.test_history_and_order_kills import story
from tests.landing import declare, folder, put
from tests.power import KINDS, Recorder
from tests.random_histories import compare, declared
from tests.random_histories import publish as publish_file

from lakemirror.delta.checkpoint import clean_up_log, write_checkpoint
from lakemirror.delta.log import read_snapshot
from lakemirror.engines import early_rows
from lakemirror.errors import LakemirrorError
from lakemirror.features.drop import drop
from lakemirror.features.plan import Wish
from lakemirror.maintenance.compaction import merge_when_idle
from lakemirror.mirror import step
from lakemirror.mirror.step import Replicator
from lakemirror.publisher import Landing

__all__ = ["no_spark"]


def expected(files: int) -> Counter[tuple[Any, ...]]:
    """The rows after that many files: each inserts 100 + n, upserts n and deletes n - 1."""
    found: Counter[tuple[Any, ...]] = Counter()
    for number in range(1, files + 1):
        found.pop((number - 1,), None)
        found[(100 + number,)] += 1
        found[(number,)] = 1
    return found


def publish(database: Path, first: int, last: int) -> None:
    for number in range(first, last + 1):
        put(database, "t", number, changes([100 + number, number, number - 1], [0, 4, 2]))


def applied(database: Path) -> None:
    """A pass. However slow the machine is, a file that the cut left incomplete is waited for."""
    sync(database, batch_files=2, maintenance=False, settle=3600.0)


def compacted(database: Path) -> None:
    merge_when_idle(str(database / "Tables/t"), all_vectors=True)


def dropped(database: Path) -> None:
    compacted(database)
    drop(database / "Tables/t", Wish(("deletionVectors",)), confirmed=True)


def dropped_with_its_history(database: Path) -> None:
    """Commits and checkpoints of the time with vectors are removed at once."""
    compacted(database)
    late = datetime.now(timezone.utc) + timedelta(days=2)
    wish = Wish(("deletionVectors",), truncate=True, wait=timedelta(0))
    drop(database / "Tables/t", wish, confirmed=True, now=lambda: late)


def dropped_to_two_numbers(database: Path) -> None:
    compacted(database)
    late = datetime.now(timezone.utc) + timedelta(days=2)
    wish = Wish(("deletionVectors",), truncate=True, as_numbers=True, wait=timedelta(0))
    drop(database / "Tables/t", wish, confirmed=True, now=lambda: late)


@pytest.fixture(autouse=True)
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The syncs themselves take time and prove nothing here: that they are asked for is recorded."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    place = tmp_path / "database"
    declare(place, "t", ["id"])
    publish(place, 1, 3)
    return place


def after_a_cut(recorder: Recorder, tmp_path: Path, every: int, check: Callable[[Path, int], None]) -> int:
    """Builds disks for every so many moments, each kind in turn; how many."""
    built = 0
    for moment in range(len(recorder.moments)):
        for place, kind in enumerate(KINDS):
            if every > 1 and (moment + place) % every:
                continue
            disk = tmp_path / "disk"
            recorder.build(moment, kind, disk)
            try:
                check(disk, moment)
            except BaseException as error:
                at = f"after {recorder.moments[moment].event} ({moment} of {len(recorder.moments)}), {kind}"
                raise AssertionError(f"{at}: {type(error).__name__}: {error}") from error
            shutil.rmtree(disk)
            built += 1
    return built


EVERY = [4, pytest.param(1, marks=pytest.mark.full)]


@pytest.mark.parametrize("every", EVERY)
def test_applies_and_archive(database: Path, tmp_path: Path, every: int) -> None:
    """The first apply, which makes the table, and later ones with vectors; files are set aside after each."""
    with Recorder(database) as recorder:
        applied(database)
        publish(database, 4, 6)
        for path in folder(database, "t").glob("*.parquet"):
            recorder._contents[path.stat().st_ino] = path.read_bytes()
        recorder._names["Files/LandingZone/t"] = recorder._listed()["Files/LandingZone/t"]
        first = len(recorder.moments)
        applied(database)

    def check(disk: Path, moment: int) -> None:
        names = {path.name for path in folder(disk, "t").rglob("*.parquet")}
        published = {f"{number:020}.parquet" for number in range(1, 4 if moment < first else 7)}
        assert names >= published, f"a change file is gone: {sorted(published - names)}"
        applied(disk)
        assert rows(disk / "Tables/t") == expected(3 if moment < first else 6)

    assert f"replace {1:020}.parquet" in [each.event for each in recorder.moments], "files are set aside"
    assert after_a_cut(recorder, tmp_path, every, check) > 30


@pytest.mark.parametrize("every", EVERY)
def test_checkpoint_and_log_clean_up(database: Path, tmp_path: Path, every: int) -> None:
    publish(database, 4, 10)
    sync(database, batch_files=1, maintenance=False)
    publish(database, 11, 11)
    with Recorder(database) as recorder:
        sync(database, batch_files=1, maintenance=False)
    assert (database / f"Tables/t/_delta_log/{10:020}.checkpoint.parquet").exists()

    def check(disk: Path, moment: int) -> None:
        sync(disk, maintenance=False)
        assert rows(disk / "Tables/t") == expected(11)

    assert after_a_cut(recorder, tmp_path, every, check) > 10


@pytest.mark.parametrize("every", EVERY)
def test_clean_up_of_an_old_log(database: Path, tmp_path: Path, every: int) -> None:
    """Commits past the retention are removed once the checkpoint that stands for them is on the disk."""
    publish(database, 4, 19)
    sync(database, batch_files=1, maintenance=False)
    log = database / "Tables/t/_delta_log"
    for path in log.glob("*.json"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    snapshot = read_snapshot(database / "Tables/t")
    assert snapshot is not None
    with Recorder(database) as recorder:
        write_checkpoint(snapshot, durable=False)
        again = read_snapshot(database / "Tables/t")
        assert again is not None and clean_up_log(again) == 18

    def check(disk: Path, moment: int) -> None:
        assert rows(disk / "Tables/t") == expected(19)

    assert after_a_cut(recorder, tmp_path, every, check) > 10


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize("work", [compacted, dropped, dropped_with_its_history, dropped_to_two_numbers])
def test_work_on_the_table_itself(database: Path, tmp_path: Path, work: Callable[[Path], None], every: int) -> None:
    publish(database, 4, 6)
    sync(database, batch_files=1, maintenance=False)
    with Recorder(database) as recorder:
        work(database)

    def check(disk: Path, moment: int) -> None:
        assert rows(disk / "Tables/t") == expected(6)
        work(disk)
        assert rows(disk / "Tables/t") == expected(6)

    assert after_a_cut(recorder, tmp_path, every, check) >= len(recorder.moments) // every


@pytest.mark.parametrize("every", EVERY)
def test_what_was_published_is_there_and_whole(tmp_path: Path, every: int) -> None:
    """Once `insert` has returned, the file survives; before that it is there whole or not at all."""
    database = tmp_path / "database"
    (database / "Files/LandingZone").mkdir(parents=True)
    returned: list[int] = []
    with Recorder(database) as recorder:
        table = Landing(database).table("t", keys=["id"])
        for number in (1, 2):
            table.upsert([{"id": number}])
            table.flush()
            returned.append(len(recorder.moments))

    def check(disk: Path, moment: int) -> None:
        count = sum(moment >= each - 1 for each in returned)
        try:
            sync(disk, settle=0)
        except (LakemirrorError, AssertionError):
            assert count == 0
            raise
        found = rows(disk / "Tables/t") if read_snapshot(disk / "Tables/t") else Counter()
        assert found in ([Counter({(n,): 1 for n in range(1, many + 1)}) for many in range(count, 3)])

    assert after_a_cut(recorder, tmp_path, every, check) > 10


def test_nothing_is_synced_where_a_process_may_die_but_no_machine(database: Path) -> None:
    with Recorder(database) as recorder:
        sync(database, batch_files=1, durability="process", maintenance=False)
    synced = [each.event for each in recorder.moments if each.event.startswith("fsync")]
    assert not [each for each in synced if "part-" in each or "json" in each or "deletion_vector" in each], synced


def test_the_disks_of_this_test_forget(database: Path, tmp_path: Path) -> None:
    """Without syncs the same check fails: rows are lost."""
    with Recorder(database) as recorder:
        sync(database, batch_files=1, durability="process", maintenance=False)
    lost = 0
    for moment in range(len(recorder.moments)):
        for kind in KINDS:
            disk = tmp_path / "disk"
            recorder.build(moment, kind, disk)
            try:
                sync(disk, maintenance=False)
                lost += rows(disk / "Tables/t") != expected(3)
            except (AssertionError, LakemirrorError, OSError):
                lost += 1
            shutil.rmtree(disk)
    assert lost


def test_a_commit_of_another_process_is_on_the_disk_before_its_files_are_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That process may have been killed before it had synced, or does not sync at all."""
    declare(tmp_path, "t", ["id"])
    publish(tmp_path, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(Replicator, "archive", lambda *_: 0)
        sync(tmp_path, durability="process", maintenance=False)
    files = [folder(tmp_path, "t") / f"{number:020}.parquet" for number in (1, 2)]
    true, seen = step.make_durable, []

    def make_durable(table: str) -> None:
        seen.append([path.exists() for path in files])
        true(table)

    monkeypatch.setattr(step, "make_durable", make_durable)
    sync(tmp_path, maintenance=False)
    assert seen == [[True, True]] and [path.exists() for path in files] == [False, True]


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.full)])
def test_applies_with_history_tables(tmp_path: Path, every: int) -> None:
    """All tables have every file once after the next pass, and no file is archived that one of them lacks."""
    database, options = tmp_path / "database", {"history": ["changes", "scd2"]}
    declare(database, "t", ["id"], lakemirror=options)
    for number in range(1, 5):
        put_at(database, "t", number, changes([100 + number, number, number - 1], [0, 4, 2]))
    with Recorder(database) as recorder:
        applied(database)

    def check(disk: Path, moment: int) -> None:
        names = {path.name for path in folder(disk, "t").rglob("*.parquet")}
        assert names >= {f"{number:020}.parquet" for number in range(1, 5)}
        applied(disk)
        assert rows(disk / "Tables/t") == expected(4)
        assert held(disk, "t__changes") == changes_of(disk, "t")
        assert held_versions(disk, "t__history") == expected_versions(disk, "t", ["id"], options)

    assert after_a_cut(recorder, tmp_path, every, check) > 10


@pytest.mark.parametrize("every", [48, pytest.param(1, marks=pytest.mark.full)])
def test_applies_with_an_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """The same with soft deletes, late changes, and rows that are written while others are read."""
    monkeypatch.setattr(early_rows, "FEWEST_ROWS", 1)
    database, its, begun = tmp_path / "database", story(), datetime.now(timezone.utc)
    table = declared(database, its)
    for file in its.files:
        publish_file(table, its, file)
    with Recorder(database) as recorder:
        applied(database)

    def check(disk: Path, moment: int) -> None:
        assert {path.name for path in folder(disk, "t").rglob("*.parquet")} == {file.name for file in its.files}
        applied(disk)
        compare(disk, its, begun)

    assert after_a_cut(recorder, tmp_path, every, check) >= 5
