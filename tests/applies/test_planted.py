"""Each planted corruption of a healthy mirror is found, by its code; the healthy mirror has none."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.landing import MARKER, declare, folder, put
from tests.rounds import rounds
from tests.vectors import read_vector

from lakemirror import LakemirrorError, MirroredDatabase
from lakemirror.delta.deletion_vectors import vector_path, write_vectors
from lakemirror.delta.log import read_snapshot
from lakemirror.storage import LocalStorage
from lakemirror.verify import KINDS, Report, verify_database
from lakemirror.verify.proof import Options

FILES = Options(against_files=True)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables by the engine in this process: 13 commits, a checkpoint, several files, two with vectors."""
    patch = pytest.MonkeyPatch()

    def start(*_: Any, **__: Any) -> Any:
        raise LakemirrorError("internal", "Spark was asked for")

    patch.setattr("lakemirror.spark_session.session.start", start)
    database = tmp_path_factory.mktemp("healthy")
    declare(database, "orders", ["id"])
    chance = random.Random(3)
    try:
        for number in range(1, 14):
            ids = (
                [number * 1000 + n for n in range(200)] if number in (1, 2, 3) else chance.sample(range(1000, 4200), 7)
            )
            marker = [0] * 200 if number <= 3 else chance.choices([1, 2, 4], k=7)
            rows = pa.table(
                {
                    "id": pa.array(ids, pa.int64()),
                    "v": pa.array([f"text {n} {chance.random()}" if n % 9 else None for n in ids]),
                    "d": pa.array([Decimal(n) / 100 for n in ids], pa.decimal128(12, 2)),
                    "f": pa.array([n / 7 for n in ids]),
                    MARKER: pa.array(marker, pa.int32()),
                }
            )
            put(database, "orders", number, rows)
            result = MirroredDatabase(database, maintenance=False).sync()
            assert not result.failed, result.failed
        put(database, "events", 1, {"what": ["a", "b", "b"]})
        assert not MirroredDatabase(database).sync().failed
    finally:
        patch.undo()
    snapshot = read_snapshot(database / "Tables/orders")
    assert snapshot is not None and snapshot.checkpoint is not None
    assert sum("deletionVector" in add for add in snapshot.files.values()) >= 2
    return database


class Planter:
    """A copy of the healthy mirror, and what can be done to it."""

    def __init__(self, database: Path) -> None:
        self.database = database
        self.table = database / "Tables/orders"
        self.log = self.table / "_delta_log"
        snapshot = read_snapshot(self.table)
        assert snapshot is not None
        self.version = snapshot.version
        self.adds = list(snapshot.files.values())
        self.with_vector = [add for add in self.adds if "deletionVector" in add]
        self.plain = [add for add in self.adds if "deletionVector" not in add]

    def commit(self, version: int) -> Path:
        return self.log / f"{version:020}.json"

    def actions(self, version: int) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.commit(version).read_text().splitlines()]

    def write(self, version: int, actions: list[dict[str, Any]]) -> None:
        """Puts a commit in place of another; its checksum goes, so that what is found is not only the checksum."""
        self.commit(version).write_text("".join(json.dumps(action) + "\n" for action in actions))
        for path in self.log.glob("*.crc"):
            path.unlink()

    def change_add(self, path: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Changes the last `add` of a file, in its commit and in every checkpoint (which then has to go)."""
        for version in range(self.version, -1, -1):
            actions = self.actions(version)
            for action in actions:
                if action.get("add", {}).get("path") == path:
                    change(action["add"])
                    self.write(version, actions)
                    self.drop_checkpoints()
                    return
        raise AssertionError(path)

    def change_stats(self, path: str, change: Callable[[dict[str, Any]], None]) -> None:
        def apply(add: dict[str, Any]) -> None:
            stats = json.loads(add["stats"])
            change(stats)
            add["stats"] = json.dumps(stats)

        self.change_add(path, apply)

    def drop_checkpoints(self) -> None:
        for path in [*self.log.glob("*.checkpoint.parquet"), self.log / "_last_checkpoint"]:
            path.unlink(missing_ok=True)

    def vector_file(self, add: dict[str, Any]) -> Path:
        return self.table / vector_path(add["deletionVector"]["pathOrInlineDv"])

    def change_manifest(self, version: int, **changes: Any) -> None:
        actions = self.actions(version)
        for action in actions:
            if info := action.get("commitInfo"):
                content = json.loads(info["userMetadata"])
                content["lakemirror"].update(changes)
                info["userMetadata"] = json.dumps(content)
        self.write(version, actions)

    def change_position(self, version: int, number: int) -> None:
        actions = self.actions(version)
        for action in actions:
            if "txn" in action:
                action["txn"]["version"] = number
        self.write(version, actions)

    def rewrite(self, change: Callable[[pa.Table], pa.Table]) -> None:
        """Another data file in place of one without vector: healthy in itself, with true statistics and size."""
        add = self.plain[0]
        rows = change(pq.read_table(self.table / add["path"]))
        path = self.table / "part-another.parquet"
        pq.write_table(rows, path)
        stats = json.dumps({"numRecords": rows.num_rows})
        self.change_add(add["path"], lambda old: old.update(path=path.name, size=path.stat().st_size, stats=stats))


def verify(database: Path, options: Options | None = None) -> Report:
    return verify_database(LocalStorage(database), (), options)


def codes(report: Report) -> set[str]:
    return {finding.code for finding in report.findings if finding.severity == "error"}


@pytest.mark.parametrize(
    "place", ["lakemirror.verify.log_replay.read_commit", "lakemirror.verify.check_data_files.opened"]
)
def test_what_may_not_be_read_is_no_damage(healthy: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """The advice for damage is to restore or delete the table: not what a missing permission asks for."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(place, refuse)
    report = verify(healthy, Options(against_files=True))
    assert codes(report) == set() and report.exit_code == 1
    assert {finding.code for finding in report.findings} == {"verify-impossible"}
    assert any("Permission denied" in finding.message for finding in report.findings)


@pytest.fixture
def planter(healthy: Path, tmp_path: Path) -> Planter:
    shutil.copytree(healthy, tmp_path / "db")
    return Planter(tmp_path / "db")


def test_a_healthy_mirror_has_no_findings(healthy: Path) -> None:
    report = verify(healthy, FILES)
    assert report.findings == () and report.exit_code == 0
    assert {table.table: table.compared for table in report.tables} == {"orders": 670, "events": 3}


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def _raise_bound(bounds: str, column: str, by: float) -> Callable[[Planter], None]:
    def plant(p: Planter) -> None:
        p.change_stats(p.plain[0]["path"], lambda stats: stats[bounds].update({column: stats[bounds][column] + by}))

    return plant


def _null_count(p: Planter) -> None:
    p.change_stats(p.plain[0]["path"], lambda stats: stats["nullCount"].update(v=stats["nullCount"]["v"] + 1))


def _num_records(p: Planter) -> None:
    p.change_stats(p.plain[0]["path"], lambda stats: stats.update(numRecords=stats["numRecords"] - 1))


def _vector_of_another(p: Planter) -> None:
    one, other = p.with_vector[:2]
    p.change_add(one["path"], lambda add: add.update(deletionVector=other["deletionVector"]))


def _vector_flipped(p: Planter) -> None:
    vector = p.with_vector[0]["deletionVector"]
    _flip(p.vector_file(p.with_vector[0]), vector["offset"] + 4 + vector["sizeInBytes"] - 1)


def _vector_cardinality(p: Planter) -> None:
    p.change_add(p.with_vector[0]["path"], lambda add: add["deletionVector"].update(cardinality=1))


def _vector_outside(p: Planter) -> None:
    rows = read_vector(p.table, p.with_vector[0]["deletionVector"])
    rows.add(100_000)
    (vector,) = write_vectors(p.table, [rows])
    p.change_add(p.with_vector[0]["path"], lambda add: add.update(deletionVector=vector))


def _vector_gone(p: Planter) -> None:
    p.vector_file(p.with_vector[0]).unlink()


def _vector_shrunk(p: Planter) -> None:
    """A deleted row comes back."""
    add = p.with_vector[0]
    rows = read_vector(p.table, add["deletionVector"])
    before = _earlier_vector(p, add["path"])
    rows.remove(next(iter(before)))
    (vector,) = write_vectors(p.table, [rows])
    p.change_add(add["path"], lambda action: action.update(deletionVector=vector))


def _earlier_vector(p: Planter, path: str) -> Any:
    for version in range(p.version, -1, -1):
        for action in p.actions(version):
            vector = action.get("remove", {}).get("deletionVector")
            if vector and action["remove"]["path"] == path:
                return read_vector(p.table, vector)
    raise AssertionError(path)


def _removed_commit(p: Planter) -> None:
    p.commit(p.version - 1).unlink()


def _truncated_commit(p: Planter) -> None:
    path = p.commit(p.version)
    path.write_bytes(path.read_bytes()[:-40])


def _commit_cut_at_a_line(p: Planter) -> None:
    """Still JSON, line by line: one of its files is gone."""
    assert "add" in p.actions(1)[-1]
    p.write(1, p.actions(1)[:-1])
    p.drop_checkpoints()


def _missing_file(p: Planter) -> None:
    (p.table / p.adds[0]["path"]).unlink()


def _wrong_size(p: Planter) -> None:
    p.change_add(p.plain[0]["path"], lambda add: add.update(size=add["size"] + 1))


def _listed_twice(p: Planter) -> None:
    actions = p.actions(p.version)
    actions.append({"add": {**p.plain[0], "path": "./" + p.plain[0]["path"]}})
    p.write(p.version, actions)


def _applied_twice(p: Planter) -> None:
    """The rows of a file of inserts once more, by a commit that names the same files again."""
    path = _add_of(p, 0)
    shutil.copy(p.table / path["path"], p.table / "part-again.parquet")
    actions = [a for a in p.actions(p.version) if "commitInfo" in a or "txn" in a]
    actions.append({"add": {**path, "path": "part-again.parquet"}})
    p.version += 1
    p.write(p.version, actions)
    p.change_manifest(p.version, first=13, last=13)


def _add_of(p: Planter, version: int) -> dict[str, Any]:
    return next(a["add"] for a in p.actions(version) if "add" in a)


def _skipped(p: Planter) -> None:
    """The last commit says that it applied file 14, and nobody has applied file 13."""
    p.change_manifest(p.version, first=14, last=14, file=f"{14:020}.parquet")
    p.change_position(p.version, 14)


def _position_back(p: Planter) -> None:
    p.change_position(p.version, 11)


def _position_ahead(p: Planter) -> None:
    p.change_position(p.version, 15)


def _checkpoint_differs(p: Planter) -> None:
    path = next(iter(p.log.glob("*.checkpoint.parquet")))
    rows = pq.read_table(path)
    first = next(i for i, add in enumerate(rows["add"].to_pylist()) if add)
    pq.write_table(pa.concat_tables([rows.slice(0, first), rows.slice(first + 1)]), path)


def _checkpoint_damaged(p: Planter) -> None:
    path = next(iter(p.log.glob("*.checkpoint.parquet")))
    path.write_bytes(path.read_bytes()[:-9])


def _pointer_beyond(p: Planter) -> None:
    (p.log / "_last_checkpoint").write_text(json.dumps({"version": 90, "size": 1}))


def _checksum_differs(p: Planter) -> None:
    path = p.log / f"{p.version:020}.crc"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "numFiles": content["numFiles"] + 1}))


def _row_changed(p: Planter) -> None:
    def change(rows: pa.Table) -> pa.Table:
        values = rows["f"].to_pylist()
        values[0] += 1e-9
        return rows.set_column(rows.column_names.index("f"), "f", pa.array(values))

    p.rewrite(change)


def _row_missing(p: Planter) -> None:
    p.rewrite(lambda rows: rows.slice(1))


def _row_extra(p: Planter) -> None:
    p.rewrite(lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))


def _statistics_unreadable(p: Planter) -> None:
    p.change_add(p.plain[0]["path"], lambda add: add.update(stats=add["stats"][:-7]))


def _truncated_file(p: Planter) -> None:
    path = p.table / p.plain[0]["path"]
    path.write_bytes(path.read_bytes()[:-30])


def _footer_untrue(p: Planter) -> None:
    """One value beyond the bounds of the footer; size and bounds in the log are true."""
    add = p.plain[0]
    path = p.table / add["path"]
    rows = pq.read_table(path)
    pq.write_table(rows, path, compression="none", use_dictionary=False)
    value = struct.pack("<q", rows["id"][0].as_py())
    path.write_bytes(path.read_bytes().replace(value, struct.pack("<q", 77_000), 1))
    counted = pq.read_table(path)["id"].to_pylist()

    def change(stats: dict[str, Any]) -> None:
        stats["minValues"]["id"], stats["maxValues"]["id"] = min(counted), max(counted)

    p.change_stats(add["path"], change)
    p.change_add(add["path"], lambda action: action.update(size=path.stat().st_size))


def _position_differs(p: Planter) -> None:
    p.change_position(p.version - 3, 99)


def _foreign_identity(p: Planter) -> None:
    marker = folder(p.database, "orders") / "_mirror.json"
    content = json.loads(marker.read_text())
    marker.write_text(json.dumps({**content, "id": "0" * 32}))


def _restored(p: Planter) -> None:
    actions = [{"commitInfo": {"operation": "RESTORE", "engineInfo": "another"}}]
    actions.append({"remove": {"path": p.plain[0]["path"], "dataChange": True}})
    p.version += 1
    p.write(p.version, actions)


def _position_lost(p: Planter) -> None:
    for version in range(p.version + 1):
        p.write(version, [action for action in p.actions(version) if "txn" not in action])
    p.drop_checkpoints()


PLANTED: dict[str, tuple[Callable[[Planter], None], str]] = {
    "lowest bound too high": (_raise_bound("minValues", "id", 1), "verify-bounds-untrue"),
    "lowest bound too low": (_raise_bound("minValues", "id", -1), "verify-bounds-loose"),
    "highest bound too low": (_raise_bound("maxValues", "id", -1), "verify-bounds-untrue"),
    "highest bound too high": (_raise_bound("maxValues", "id", 1), "verify-bounds-loose"),
    "wrong nullCount": (_null_count, "verify-null-count"),
    "wrong numRecords": (_num_records, "verify-row-count"),
    "vector of another file": (_vector_of_another, "verify-vector-foreign"),
    "vector with a flipped byte": (_vector_flipped, "verify-vector-damaged"),
    "vector with a wrong cardinality": (_vector_cardinality, "verify-vector-cardinality"),
    "vector with a row beyond the file": (_vector_outside, "verify-vector-outside"),
    "vector that is gone": (_vector_gone, "verify-vector-unreadable"),
    "vector that gives a row back": (_vector_shrunk, "verify-vector-foreign"),
    "removed commit": (_removed_commit, "verify-commit-missing"),
    "truncated commit": (_truncated_commit, "verify-commit-damaged"),
    "commit cut at the end of a line": (_commit_cut_at_a_line, "verify-commit-damaged"),
    "missing data file": (_missing_file, "verify-file-missing"),
    "wrong size": (_wrong_size, "verify-file-size"),
    "file listed twice": (_listed_twice, "verify-file-twice"),
    "file applied twice": (_applied_twice, "verify-applied-twice"),
    "file skipped": (_skipped, "verify-applied-gap"),
    "position moved back": (_position_back, "verify-position-back"),
    "position ahead": (_position_ahead, "verify-position-ahead"),
    "position lost": (_position_lost, "verify-position-missing"),
    "checkpoint that differs": (_checkpoint_differs, "verify-checkpoint-differs"),
    "damaged checkpoint": (_checkpoint_damaged, "verify-checkpoint-damaged"),
    "_last_checkpoint beyond": (_pointer_beyond, "verify-last-checkpoint"),
    "wrong checksum": (_checksum_differs, "verify-checksum-differs"),
    "statistics that are no JSON": (_statistics_unreadable, "verify-statistics-unreadable"),
    "truncated data file": (_truncated_file, "verify-file-unreadable"),
    "footer with wrong bounds": (_footer_untrue, "verify-footer-untrue"),
    "position unlike the manifest": (_position_differs, "verify-position-differs"),
    "foreign identity": (_foreign_identity, "verify-identity-foreign"),
    "restored version": (_restored, "verify-restored"),
}
BY_FILES: dict[str, tuple[Callable[[Planter], None], str]] = {
    "row changed": (_row_changed, "verify-row-differs"),
    "row missing": (_row_missing, "verify-row-missing"),
    "row extra": (_row_extra, "verify-row-extra"),
    "file applied twice": (_applied_twice, "verify-row-extra"),
}
"""What only a comparison with the archived files can find."""


@pytest.mark.parametrize("what", PLANTED)
def test_it_is_found(planter: Planter, what: str) -> None:
    plant, code = PLANTED[what]
    plant(planter)
    report = verify(planter.database)
    assert code in codes(report), report.findings
    assert report.exit_code == 3
    assert {finding.table for finding in report.findings} == {"orders"}
    assert all(finding.code in KINDS and finding.message and finding.advice for finding in report.findings)


@pytest.mark.parametrize("what", BY_FILES)
def test_it_is_found_against_the_files(planter: Planter, what: str) -> None:
    plant, code = BY_FILES[what]
    plant(planter)
    report = verify(planter.database, FILES)
    assert code in codes(report), report.findings
    assert any("id=" in finding.message for finding in report.findings if finding.code == code)


def test_a_flipped_byte_of_a_data_file_is_found_wherever_it_is(planter: Planter) -> None:
    """Every byte of the pages and the footer, sampled: found, or it changes no row and no promise."""
    add = planter.plain[0]
    path = planter.table / add["path"]
    whole, rows = path.read_bytes(), pq.read_table(path)
    chance = random.Random(5)
    found = 0
    for at in chance.sample(range(len(whole)), rounds(20, 60)):
        _flip(path, at)
        if codes(verify(planter.database, FILES)):
            found += 1
        else:
            assert pq.read_table(path).equals(rows), at
        path.write_bytes(whole)
    assert found > rounds(5, 15)


def test_what_others_have_changed_is_a_warning(planter: Planter) -> None:
    """And the rows differ from the files: that is an error, where it is asked for."""
    actions = [
        {"commitInfo": {"operation": "DELETE", "engineInfo": "another"}},
        {"remove": {"path": planter.plain[0]["path"], "dataChange": True}},
    ]
    planter.write(planter.version + 1, actions)
    report = verify(planter.database)
    assert [finding.code for finding in report.findings] == ["verify-changed-by-others"]
    assert "DELETE by another" in report.findings[0].message and report.exit_code == 0
    assert codes(verify(planter.database, FILES)) == {"verify-row-missing"}


def test_files_that_are_gone_make_it_impossible_not_wrong(planter: Planter) -> None:
    shutil.rmtree(folder(planter.database, "orders") / "_ProcessedFiles")
    report = verify(planter.database, FILES)
    assert [finding.code for finding in report.findings] == ["verify-impossible"]
    assert report.exit_code == 1
    assert verify(planter.database).exit_code == 0


def test_what_was_set_aside_is_gone_with_its_folder(tmp_path: Path) -> None:
    """The number of a quarantined file is no gap, also where the folder was made again and nothing of it is applied."""
    declare(tmp_path, "orders", ["id"])
    put(tmp_path, "orders", 1, {"id": [1]})
    bad = tmp_path / "Files/LandingZone/orders/00000000000000000002.parquet"
    bad.write_bytes(b"PAR1 no file PAR1")
    os.utime(bad, (1_700_000_000, 1_700_000_000))
    put(tmp_path, "orders", 3, {"id": [3]})
    mirror = MirroredDatabase(tmp_path, on_bad_file="quarantine")
    assert not mirror.sync().failed
    assert not mirror.sync().failed
    assert read_snapshot(tmp_path / "Tables/orders").version == 1
    assert not found(tmp_path)
    shutil.rmtree(tmp_path / "Files/LandingZone/orders")
    declare(tmp_path, "orders", ["id"])
    assert "verify-applied-gap" not in found(tmp_path)


def found(database: Path) -> set[str]:
    return {each.code for each in verify_database(LocalStorage(database)).findings}
