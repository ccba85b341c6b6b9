"""Plans and drops that need no JVM, on tables made by hand and on public ones."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from protocol_tables import IDS, make
from tests import preloaded

from lakemirror.delta import commit as delta_commit
from lakemirror.delta.checkpoint import write_checkpoint
from lakemirror.delta.checksum import checksum, checksum_lies
from lakemirror.delta.deletion_vectors import delete_rows
from lakemirror.delta.feature_names import features_of, implied, lowest, pure, shown, without
from lakemirror.delta.log import Protocol, Snapshot, read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features.cleaning import empty_commit
from lakemirror.features.drop import POINTS, drop
from lakemirror.features.history import clean_since, cut
from lakemirror.features.log_commit import commit
from lakemirror.features.plan import Wish, make_plan
from lakemirror.features.read_back import check_unchanged, live_rows
from lakemirror.storage.durable import put_new

BASE = {"appendOnly", "invariants"}


def snapshot(table: Path) -> Snapshot:
    found = read_snapshot(table)
    assert found is not None
    return found


def listed(table: Path, readers: set[str], writers: set[str], **configuration: str) -> Path:
    protocol = Protocol(3 if readers else 1, 7, frozenset(readers) or None, frozenset(readers | writers | BASE))
    return make(table, protocol, **configuration)


def code(act: Callable[[], object]) -> str:
    with pytest.raises(LakemirrorError) as error:
        act()
    return error.value.code


def others_read(table: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    assert sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table().column("id").to_pylist()) == IDS


@pytest.mark.parametrize(
    ("before", "dropped", "after"),
    [
        (Protocol(1, 3), "checkConstraints", "(1, 2)"),
        (Protocol(1, 4), "checkConstraints", "(1, 7) [appendOnly, changeDataFeed, generatedColumns, invariants]"),
        (Protocol(2, 5), "columnMapping", "(1, 4)"),
        (Protocol(3, 7, frozenset({"x"}), frozenset({"x", *BASE})), "x", "(1, 2)"),
        (Protocol(2, 7, None, frozenset({"columnMapping", "clustering"})), "clustering", "(2, 7) [columnMapping]"),
        (Protocol(1, 7, None, frozenset({"clustering"})), "clustering", "(1, 1)"),
    ],
)  # fmt: skip
def test_lowest_protocol(before: Protocol, dropped: str, after: str) -> None:
    assert shown(without(before, [dropped], {"columnMapping", "deletionVectors"})) == after


def test_numbers_stand_for_features() -> None:
    for pair in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6)):
        assert lowest(implied(*pair), {"columnMapping"}) == Protocol(*pair)
    assert pure({"changeDataFeed"}) == Protocol(1, 4)
    assert pure({"columnMapping"}) == Protocol(2, 5)
    assert pure({"deletionVectors"}) is None


def test_a_writers_feature_goes_in_one_commit(tmp_path: Path) -> None:
    table = listed(tmp_path / "t", set(), {"clustering", "domainMetadata", "rowTracking"})
    done = drop(table, Wish(("Clustering", "rowtracking", "domainMetadata")))
    assert (done.after, done.commits) == ("(1, 2)", 1)
    after = snapshot(table)
    assert not after.domains and all("baseRowId" not in add for add in after.files.values())
    assert after.checkpoint is not None and after.checkpoint.version == 1
    others_read(table)
    assert drop(table, Wish(("clustering",))).commits == 0


def test_clustering_comes_back_after_its_rest(tmp_path: Path) -> None:
    resting = {"lakemirror.clusteringColumns": '[["id"]]'}
    table = listed(tmp_path / "t", set(), {"clustering", "domainMetadata", "changeDataFeed"}, **resting)
    log = table / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace(': [[\\"id\\"]]', ": []"))
    assert json.loads(snapshot(table).domains["delta.clustering"]["configuration"])["clusteringColumns"] == []
    assert drop(table, Wish(("changeDataFeed",))).steps == ("writer-features", "cluster-again", "checkpoint")
    after = snapshot(table)
    assert after.checkpoint is not None and after.checkpoint.version == after.version, "domains are kept in it"
    assert json.loads(after.domains["delta.clustering"]["configuration"])["clusteringColumns"] == [["id"]]
    assert after.metadata.configuration == {}


def test_a_readers_feature_goes_behind_protected_checkpoints(tmp_path: Path) -> None:
    table = listed(tmp_path / "t", {"v2Checkpoint", "vacuumProtocolCheck"}, set(), **{"delta.checkpointPolicy": "v2"})
    done = drop(table, Wish(("v2checkpoint", "VACUUMPROTOCOLCHECK")))
    after = snapshot(table)
    assert features_of(after.protocol) == {*BASE, "checkpointProtection"}
    assert after.metadata.configuration == {"delta.requireCheckpointProtectionBeforeVersion": str(done.version)}
    assert [c.version for c in after.log.checkpoints] == [2, 3, 4, 5] and done.version == 5
    others_read(table)


def test_history_is_cut_when_its_time_has_come(tmp_path: Path) -> None:
    table = listed(tmp_path / "t", {"v2Checkpoint"}, set(), **{"delta.checkpointPolicy": "v2"})
    wish = Wish(("v2Checkpoint",), truncate=True)
    start = datetime.now(timezone.utc)
    waiting = drop(table, wish).waiting
    assert waiting is not None and timedelta(hours=24) <= waiting - start <= timedelta(hours=24, minutes=1)
    assert waiting.second == 0
    version = snapshot(table).version
    assert drop(table, wish, now=lambda: waiting - timedelta(minutes=1)).waiting == waiting
    assert snapshot(table).version == version, "too early costs nothing"
    foreign = table / "_delta_log/notes.compacted.json"
    foreign.write_text("somebody's")
    done = drop(table, wish, now=lambda: waiting)
    assert done.after == "(1, 2)" and min(snapshot(table).log.commits) == 2
    assert foreign.exists()
    others_read(table)


@pytest.mark.parametrize("truncate", [False, True])
def test_deleted_rows_go_with_v2_checkpoints(tmp_path: Path, truncate: bool) -> None:
    """A table that uses both: its rows are written again, and nothing that readers need names a vector any more."""
    table = listed(
        tmp_path / "t", {"deletionVectors", "v2Checkpoint"}, set(),
        **{"delta.checkpointPolicy": "v2", "delta.enableDeletionVectors": "true"},
    )  # fmt: skip
    state = snapshot(table)
    first = next(add for add in state.files.values() if add["path"] == "part-0.parquet")
    vectors = delete_rows(str(table), {"x": first}, {"x": pa.array([0], pa.int64())})
    assert delta_commit.commit(str(table), state, vectors)
    used = snapshot(table)
    assert live_rows(used) == len(IDS) - 1 and any("deletionVector" in add for add in used.files.values())
    wish, moment = Wish(("v2Checkpoint", "deletionVectors"), truncate=truncate), datetime.now(timezone.utc)
    done = drop(table, wish, now=lambda: moment)
    if truncate:
        assert done.waiting is not None and drop(table, wish, now=lambda: moment).commits == 0
        moment = done.waiting
        done = drop(table, wish, now=lambda: moment)
    now = snapshot(table)
    assert done.waiting is None and drop(table, wish, now=lambda: moment).commits == 0
    assert features_of(now.protocol) == (BASE if truncate else {*BASE, "checkpointProtection"})
    assert not any("deletionVector" in add for add in now.files.values()) and live_rows(now) == len(IDS) - 1
    assert now.checkpoint is not None and (now.checkpoint.version, now.checkpoint.kind) == (now.version, "classic")
    if truncate:
        assert min(now.log.commits) > used.version
        deltalake = pytest.importorskip("deltalake")
        assert sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table().column("id").to_pylist()) == IDS[1:]
    else:
        assert int(now.metadata.configuration["delta.requireCheckpointProtectionBeforeVersion"]) <= now.version
        before = read_snapshot(table, used.version)
        assert before is not None and before.files == used.files, "older versions stay readable"


def test_side_files_go_with_the_checkpoints_that_name_them(tmp_path: Path) -> None:
    table = listed(tmp_path / "t", {"v2Checkpoint"}, set(), **{"delta.checkpointPolicy": "v2"})
    state, log = snapshot(table), table / "_delta_log"
    sides = [log / "_sidecars" / f"{name}.parquet" for name in ("named", "unnamed", "young")]
    sides[0].parent.mkdir()
    adds = [{key: add[key] for key in ("path", "size", "modificationTime", "stats")} for add in state.files.values()]
    for side in sides:
        pq.write_table(pa.table({"add": adds}), side)
    os.utime(sides[2], (4e9, 4e9))
    lines = [{"checkpointMetadata": {"version": 0}}, state.protocol.to_action(), {"metaData": state.metadata.value}]
    lines += [{"sidecar": {"path": sides[0].name, "sizeInBytes": 1, "modificationTime": 1}}]
    manifest = log / f"{0:020}.checkpoint.6374b053-df23-479b-b2cf-c9c550132b49.json"
    manifest.write_text("\n".join(json.dumps(line) for line in lines))
    wish = Wish(("v2Checkpoint",), truncate=True)
    waiting = drop(table, wish).waiting
    assert waiting is not None and all(side.exists() for side in sides), "nothing goes before its time"
    drop(table, wish, now=lambda: waiting + timedelta(hours=1))
    assert not manifest.exists() and [side.exists() for side in sides] == [False, False, True]


def test_a_shortened_wait_needs_no_property(tmp_path: Path) -> None:
    table = listed(tmp_path / "t", {"v2Checkpoint"}, set(), **{"delta.checkpointPolicy": "v2"})
    wish = Wish(("v2Checkpoint",), truncate=True, wait=timedelta(0))
    assert any("can damage" in text for text in make_plan(snapshot(table), wish).breaks)
    later = datetime.now(timezone.utc) + timedelta(minutes=2)
    assert drop(table, wish, now=lambda: later).after == "(1, 2)"
    assert snapshot(table).metadata.configuration == {}


def test_readiness_follows_the_log(tmp_path: Path) -> None:
    table = listed(tmp_path / "t", {"v2Checkpoint"}, set(), **{"delta.checkpointPolicy": "v2"})
    drop(table, Wish(("v2Checkpoint",)))
    now = snapshot(table)
    assert clean_since(now, ["v2Checkpoint"]) == 1
    for version, path in now.log.commits.items():
        os.utime(path, (1_700_000_000 + version, 1_700_000_000 + version))
    place = cut(now, ["checkpointProtection"], timedelta(hours=24))
    assert place.checkpoint == 5
    assert place.ready == datetime(2023, 11, 15, 22, 14, tzinfo=timezone.utc)
    assert drop(table, Wish(("checkpointProtection",), truncate=True)).after == "(1, 2)"


def test_idle_column_mapping_needs_no_rewrite(tmp_path: Path) -> None:
    table = make(tmp_path / "t", Protocol(1, 2))
    path = table / "_delta_log" / f"{0:020}.json"
    text = path.read_text().replace(
        '"minReaderVersion": 1, "minWriterVersion": 2', '"minReaderVersion": 2, "minWriterVersion": 5'
    )
    text = text.replace(
        '"configuration": {}',
        '"configuration": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}',
    )
    mark = '\\"metadata\\": {\\"delta.columnMapping.id\\": 1, \\"delta.columnMapping.physicalName\\": \\"id\\"}'
    path.write_text(text.replace('\\"metadata\\": {}', mark))
    assert drop(table, Wish(("columnMapping",))).steps == ("prepare", "protected-drop", "checkpoint")
    assert "delta.columnMapping" not in json.dumps(snapshot(table).metadata.schema)
    others_read(table)


def test_what_stands_in_the_way(tmp_path: Path) -> None:
    table = listed(tmp_path / "a", set(), {"checkConstraints"}, **{"delta.constraints.small": "id < 9"})
    plan = make_plan(snapshot(table), Wish(("checkConstraints",)))
    assert plan.obstacles[0].statements == (f"ALTER TABLE delta.`{table}` DROP CONSTRAINT small;",)
    assert code(lambda: drop(table, Wish(("checkConstraints",)))) == "feature-in-use"
    table = listed(tmp_path / "b", set(), {"clustering", "domainMetadata"})
    assert code(lambda: drop(table, Wish(("domainMetadata",)))) == "feature-needed"
    assert code(lambda: drop(table, Wish(("clustering",), truncate=True))) == "feature-history"
    assert code(lambda: drop(table, Wish(("nonsense",)))) == "feature-unknown"
    assert code(lambda: drop(table, Wish(("delta.appendOnly",)))) == "feature-unknown"
    table = listed(tmp_path / "no", set(), {"icebergWriterCompatV1", "icebergCompatV2", "columnMapping"})
    assert code(lambda: drop(table, Wish(("icebergWriterCompatV1",)))) == "feature-not-droppable"
    table = listed(tmp_path / "c", set(), {"icebergCompatV2", "columnMapping"})
    assert code(lambda: drop(table, Wish(("icebergCompatV2",)))) == "confirmation-needed"
    table = listed(tmp_path / "d", set(), {"somethingNew", "clustering", "domainMetadata"})
    assert code(lambda: drop(table, Wish(("clustering",)))) == "features-unsafe"
    table = listed(tmp_path / "e", {"catalogManaged"}, {"changeDataFeed"})
    assert code(lambda: drop(table, Wish(("changeDataFeed",)))) == "features-unsafe"
    assert snapshot(table).version == 0, "refused untouched"
    table = make(tmp_path / "f", Protocol(1, 4))
    plan = make_plan(snapshot(table), Wish(("checkConstraints",)))
    assert any(note.startswith("worse") for note in plan.notes)


def test_names_that_plain_delta_cannot_hold(public_table: Callable[[str], Path]) -> None:
    table = public_table("table-with-columnmapping-mode-name")
    log = table / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('\\"name\\":\\"ByteType\\"', '\\"name\\":\\"Byte Type\\"'))
    assert code(lambda: drop(table, Wish(("columnMapping",)))) == "column-names-invalid"


def test_a_public_table_loses_two_features_by_one_rewrite(public_table: Callable[[str], Path]) -> None:
    table = public_table("dv-with-columnmapping")
    done = drop(table, Wish(("columnMapping", "deletionVectors")))
    assert [step for step in done.steps if step.startswith("rewrite")] == ["rewrite-columnMapping"]
    assert not {"columnMapping", "deletionVectors"} & features_of(snapshot(table).protocol)


def test_collations(public_table: Callable[[str], Path]) -> None:
    table = public_table("collations-preview-table")
    assert code(lambda: drop(table, Wish(("collations-preview",)))) == "confirmation-needed"
    done = drop(table, Wish(("collations-preview",)), confirmed=True)
    assert (done.after, done.commits) == ("(1, 2)", 1)
    assert "__COLLATIONS" not in json.dumps(snapshot(table).metadata.schema)
    deltalake = pytest.importorskip("deltalake")
    rows = pa.table(
        {"id": pa.array([1], pa.int32()), "utf8_binary_col": ["a"], "utf8_lcase_col": ["b"], "unicode_col": ["c"]}
    )
    deltalake.write_deltalake(str(table), rows, mode="append")
    assert len(snapshot(table).files) == 1


def test_a_lying_checksum_is_named_and_put_right(public_table: Callable[[str], Path]) -> None:
    table = public_table("crc-full")
    assert "numFiles 10 for 0" in (checksum_lies(snapshot(table)) or "")
    assert any("ignored" in note for note in make_plan(snapshot(table), Wish(("clustering",))).notes)
    drop(table, Wish(("clustering", "rowTracking", "domainMetadata", "deletionVectors")))
    assert checksum_lies(snapshot(table)) is None
    assert (table / "_delta_log" / f"{snapshot(table).version:020}.crc").exists()


def test_a_table_that_came_out_differently_is_named(tmp_path: Path) -> None:
    before = listed(tmp_path / "a", set(), {"changeDataFeed"}, mine="1")
    after = listed(tmp_path / "b", set(), set(), mine="2")
    check_unchanged(snapshot(before), snapshot(before), [])
    assert code(lambda: check_unchanged(snapshot(before), snapshot(after), ["changeDataFeed"])) == "drop-unproven"
    text = (after / "_delta_log" / f"{0:020}.json").read_text()
    (after / "_delta_log" / f"{0:020}.json").write_text(text.replace('"mine": "2"', '"mine": "1"'))
    check_unchanged(snapshot(before), snapshot(after), ["changeDataFeed"])


def test_a_commit_appears_whole_and_only_once(tmp_path: Path) -> None:
    target = tmp_path / "x"
    assert put_new(target, b"first", durable=True) and not put_new(target, b"second", durable=False)
    assert target.read_bytes() == b"first" and list(tmp_path.iterdir()) == [target]


def test_commits_from_many_threads_are_all_kept(tmp_path: Path) -> None:
    table = make(tmp_path / "t", Protocol(1, 2))
    threads = [threading.Thread(target=lambda: [commit(table, empty_commit) for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert snapshot(table).version == 20


def test_others_write_all_the_time(tmp_path: Path) -> None:
    table = make(tmp_path / "t", Protocol(1, 2))
    real = table / "_delta_log"

    def beaten(state: Snapshot) -> object:
        put_new(real / f"{state.version + 1:020}.json", b"", durable=False)
        return empty_commit(state)

    assert code(lambda: commit(table, beaten, attempts=3)) == "concurrent-commit"  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["put_new", "write_checksum"])
def test_a_commit_that_another_engine_has_overwritten_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """As a rename does that looked for the version before ours was there."""
    table = listed(tmp_path / "t", set(), {"clustering", "domainMetadata"})
    log, before = table / "_delta_log", snapshot(table)
    (log / f"{before.version:020}.crc").write_text(json.dumps(checksum(before)))
    theirs = {**next(iter(before.files.values())), "path": "theirs.parquet"}
    true, done = getattr(delta_commit, place), []

    def overwrite(*given: Any, **named: Any) -> Any:
        found = true(*given, **named)
        if not done:
            done.append(True)
            (log / "other").write_text(json.dumps({"add": theirs}) + "\n")
            (log / "other").replace(log / f"{before.version + 1:020}.json")
        return found

    monkeypatch.setattr(delta_commit, place, overwrite)
    drop(table, Wish(("clustering",)))
    after = snapshot(table)
    assert done and "clustering" not in features_of(after.protocol) and len(after.files) == len(before.files) + 1
    assert checksum_lies(after) is None
    for version in range(before.version + 1, after.version + 1):
        replayed, told = read_snapshot(table, version), log / f"{version:020}.crc"
        assert replayed is not None
        assert not told.exists() or json.loads(told.read_bytes())["numFiles"] == len(replayed.files)


def test_numbers_at_the_end_name_none_of_what_was_dropped(tmp_path: Path) -> None:
    table = make(tmp_path / "a", Protocol(1, 4))
    done = drop(table, Wish(("invariants", "appendOnly"), as_numbers=True))
    assert done.commits == 1 and not {"invariants", "appendOnly"} & features_of(snapshot(table).protocol)
    table = listed(tmp_path / "b", {"columnMapping", "vacuumProtocolCheck"}, {"domainMetadata"})
    before = features_of(snapshot(table).protocol)
    drop(table, Wish(("vacuumProtocolCheck", "domainMetadata"), as_numbers=True), confirmed=True)
    left = before - {"vacuumProtocolCheck", "domainMetadata"}
    assert features_of(snapshot(table).protocol) == left | {"checkpointProtection"}, "lists, and no more than before"


@pytest.mark.parametrize("whole", [True, False])
def test_a_checkpoint_of_somebody_else_is_replaced_only_if_damaged(tmp_path: Path, whole: bool) -> None:
    table = listed(tmp_path / "t", {"vacuumProtocolCheck"}, {"clustering", "domainMetadata"})
    theirs: list[Path] = []

    def meanwhile(point: str) -> None:
        if point == "before checkpoint":
            theirs.append(write_checkpoint(snapshot(table)))
            pq.write_table(pq.read_table(theirs[0]).replace_schema_metadata({"by": "them"}), theirs[0])
            theirs[0].write_bytes(theirs[0].read_bytes()[: None if whole else -10])

    drop(table, Wish(("clustering",)), at=meanwhile)
    assert len(theirs) == 1
    assert ((pq.read_schema(theirs[0]).metadata or {}).get(b"by") == b"them") is whole
    now = snapshot(table)
    assert now.checkpoint is not None and now.checkpoint.version == now.version
    assert drop(table, Wish(("clustering",))).commits == 0


def test_a_feature_that_comes_back_is_no_longer_dropped_unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(drop.__globals__, "STEPS", 12)  # as many as it takes, and some
    table = listed(tmp_path / "t", {"v2Checkpoint"}, set(), **{"delta.checkpointPolicy": "v2"})
    old = snapshot(table).metadata.value

    def again(point: str) -> None:
        if point == "after barrier 3":
            number = snapshot(table).version + 1
            put_new(
                table / "_delta_log" / f"{number:020}.json", json.dumps({"metaData": dict(old)}).encode(), durable=False
            )

    assert code(lambda: drop(table, Wish(("v2Checkpoint",)), at=again)) == "concurrent-commit"
    assert "v2Checkpoint" in features_of(snapshot(table).protocol)


KILLED = textwrap.dedent("""
    import os, sys
    from datetime import datetime, timedelta, timezone
    from lakemirror.features.drop import drop
    from lakemirror.features.plan import Wish
    table, point, truncate = sys.argv[1], sys.argv[2], sys.argv[3] == "1"
    now = lambda: datetime.now(timezone.utc) + timedelta(days=2 if truncate and len(sys.argv) > 4 else 0)
    wish = Wish(("v2Checkpoint", "clustering"), truncate=truncate)
    drop(table, wish, at=lambda p: os._exit(9) if p == point else None, now=now)
""")


KILLS = ("after writer-features", "before protected-drop", "after barrier 2", "after cut", "after truncate-drop")
"""Where the process is killed in every run. `tests/drop_machine.py` stops drops at each point, within one process."""


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize(
    "point",
    [
        p if p in KILLS else pytest.param(p, marks=pytest.mark.full)
        for p in POINTS
        if "rewrite" not in p and "cluster" not in p
    ],
)
def test_killed_anywhere_and_run_again(tmp_path: Path, point: str, truncate: bool) -> None:
    table = listed(
        tmp_path / "t", {"v2Checkpoint"}, {"clustering", "domainMetadata"}, **{"delta.checkpointPolicy": "v2"}
    )
    wish = Wish(("v2Checkpoint", "clustering"), truncate=truncate)
    later = ["later"] if truncate and ("cut" in point or "truncate" in point or "checkpoint" in point) else []
    if later and "clean" not in point:
        drop(table, wish)
    arguments = [sys.executable, "-c", KILLED, str(table), point, str(int(truncate)), *later]
    killed = preloaded.run(arguments).returncode
    reached_only = {"barrier", "protected-drop"} if truncate else {"cut", "clean", "truncate-drop"}
    if not any(word in point for word in reached_only):
        assert killed == 9, point
    others_read_state = snapshot(table)
    assert len(others_read_state.files) == 2
    end = (lambda: datetime.now(timezone.utc) + timedelta(days=2)) if truncate else lambda: datetime.now(timezone.utc)
    drop(table, wish, now=lambda: datetime.now(timezone.utc))
    drop(table, wish, now=end)
    after = snapshot(table)
    assert features_of(after.protocol) == (BASE if truncate else {*BASE, "checkpointProtection"})
    assert after.checkpoint is not None and after.checkpoint.version == after.version
    others_read(table)


def test_a_quiet_table_loses_its_history_at_once(tmp_path: Path) -> None:
    table = listed(tmp_path / "t", {"v2Checkpoint"}, set(), **{"delta.checkpointPolicy": "v2"})
    first = snapshot(table)
    state = [{"checkpointMetadata": {"version": 0}}, first.protocol.to_action(), {"metaData": first.metadata.value}]
    state += [{"add": add} for add in first.files.values()]
    name = f"{0:020}.checkpoint.11111111-2222-3333-4444-555555555555.json"
    (table / "_delta_log" / name).write_text("".join(json.dumps(action) + "\n" for action in state))
    quiet = {"metaData": {**first.metadata.value, "configuration": {}}}
    assert put_new(table / "_delta_log" / f"{1:020}.json", json.dumps(quiet).encode(), durable=False)
    hadoop = [".{:020}.json.crc", ".{:020}.crc.crc", f".{name}.crc", "._last_checkpoint.crc"]
    for text in hadoop:
        (table / "_delta_log" / text.format(0)).write_bytes(b"crc")
    for path in (table / "_delta_log").iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    checkpoint = snapshot(table).checkpoint
    assert checkpoint is not None and checkpoint.kind == "v2"
    done = drop(table, Wish(("v2Checkpoint",), truncate=True))
    assert done.after == "(1, 2)" and done.waiting is None
    assert [c.kind for c in snapshot(table).log.checkpoints] == ["classic"] * 2
    assert not list((table / "_delta_log").glob(".*.crc")), "sums of files that are gone or others"
    others_read(table)
