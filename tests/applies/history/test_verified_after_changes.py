"""`verify` computes the rows of each file by the options of its own time, whatever is declared since (history.md).

chains of options, random changes after each ─▶ no finding about rows; a row that is altered then ─▶ a finding
"""

from __future__ import annotations

import json
import random
import shutil
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.change_tables import held, put_at
from tests.landing import declare
from tests.rounds import every_second

from lakemirror import MirroredDatabase
from lakemirror.maintenance.late_days import forget_old
from lakemirror.storage import LocalStorage
from lakemirror.verify import Finding
from lakemirror.verify.proof import Options, verify_database

BEGUN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SOFT, IGNORE = {"deletes": "soft"}, {"deletes": "ignore"}
BY_N, BY_M, BY_BOTH = ({"sequence": each} for each in ("n", "m", ["n", "m"]))
VERSIONS = {"history": "scd2"}
CHAINS: list[list[dict[str, Any]]] = [
    [{}, SOFT], [{}, IGNORE, {}], [IGNORE, SOFT], [SOFT, {}], [SOFT, IGNORE], [SOFT, SOFT],
    [{}, BY_N], [BY_N, {}], [BY_N, BY_M], [BY_BOTH, BY_N], [BY_BOTH, BY_M], [BY_N, BY_BOTH], [BY_N, BY_M, BY_N],
    [SOFT, {**SOFT, **BY_N}], [BY_N, {**BY_N, **SOFT}], [{**SOFT, **BY_N}, BY_N], [{**SOFT, **BY_N}, {**SOFT, **BY_M}],
    [{**SOFT, **BY_BOTH}, {**SOFT, **BY_N}], [BY_N, {**BY_N, **IGNORE}, BY_N],
    [{**SOFT, **BY_N}, {**IGNORE, **BY_N}, {**SOFT, **BY_N}],
    [{}, VERSIONS], [VERSIONS, {}], [VERSIONS, {**VERSIONS, **IGNORE}, VERSIONS], [VERSIONS, {**VERSIONS, **SOFT}],
    [BY_N, {**BY_N, **VERSIONS}], [{**BY_N, **VERSIONS}, BY_N, {**BY_N, **VERSIONS}],
    [{**BY_N, **VERSIONS}, {**BY_N, **VERSIONS, **IGNORE}, {**BY_N, **VERSIONS}],
    [{**BY_N, **VERSIONS}, {**BY_N, **VERSIONS, **SOFT}], [{}, {**BY_N, "history": "changes"}],
    [{**SOFT, **VERSIONS}, SOFT, {**SOFT, **BY_N}], [{}, SOFT, {**SOFT, **BY_N}, {**SOFT, **BY_N, **VERSIONS}],
]  # fmt: skip


def sync(database: Path) -> Any:
    given = {"durability": "process", "settle": 0, "partial_row_missing": "null", "deletion_vectors": False}
    return MirroredDatabase(database, engine="local", **given).sync().failed.get("t")


class Story:
    """A table whose options change. `partial`: some updates leave a column out."""

    def __init__(self, database: Path, seed: int, *, partial: bool) -> None:
        self.database, self.partial, self.files = database, partial, 0
        self.random = random.Random(seed)

    def apply(self, options: dict[str, Any]) -> None:
        """Some files with these options; deleted rows go first where the change of options needs it."""
        declare(self.database, "t", ["id"], lakemirror=options)
        for _ in range(self.random.randint(1, 3)):
            self.put()
            if self.random.random() < 0.7:
                self.sync()
        self.sync()
        if options.get("deletes") == "soft" and self.random.random() < 0.3:
            MirroredDatabase(self.database).resync("t", purge_deleted=True)

    def sync(self) -> None:
        error = sync(self.database)
        if error is not None and error.code == "deletes-mode-changed":
            MirroredDatabase(self.database).resync("t", purge_deleted=True)
            assert not self.wrong(), "right after deleted rows were removed"
            error = sync(self.database)
        assert error is None, error

    def put(self) -> None:
        self.files += 1
        rows = []
        for _ in range(self.random.randint(1, 5)):
            marker = self.random.choice([1, 2, 2, 4, 4, 0] if self.files < 3 else [1, 2, 2, 4, 4])
            id_, n, m, v = (self.random.randint(1, high) for high in (3, 6, 6, 9))
            rows.append({"__rowMarker__": marker, "id": id_, "v": v, "n": n, "m": m, "w": f"w{v % 3}"})
        table = pa.Table.from_pylist(rows)
        times = [BEGUN + timedelta(minutes=self.files, seconds=row) for row in range(len(rows))]
        table = table.append_column("__sourceTimestamp__", pa.array(times, pa.timestamp("us", "UTC")))
        if self.partial:
            names = [["w"] if row["__rowMarker__"] == 1 and self.random.random() < 0.7 else None for row in rows]
            table = table.append_column("__unchangedColumns__", pa.array(names, pa.list_(pa.string())))
        put_at(self.database, "t", self.files, table)

    def wrong(self) -> list[Finding]:
        """What `verify` finds, without columns that are not compared, and without versions of rows that were there
        before."""
        report = verify_database(LocalStorage(self.database), (), Options(against_files=True))
        found = [each for each in report.findings if each.code != "verify-not-compared"]
        return [each for each in found if (each.table, each.code) != ("t__history", "verify-impossible")]


@pytest.mark.parametrize(
    ("chain", "partial"),
    every_second([(chain, (number + each) % 2 == 1) for number, chain in enumerate(CHAINS) for each in (0, 1)]),
    ids=str,
)
def test_rows_are_those_of_the_options_of_their_time(
    tmp_path: Path, chain: list[dict[str, Any]], partial: bool
) -> None:
    story = Story(tmp_path, 1, partial=partial)
    for options in chain:
        story.apply(options)
        assert not story.wrong()


@pytest.mark.parametrize("chain", every_second(CHAINS), ids=str)
def test_a_row_that_was_altered_is_found(tmp_path: Path, chain: list[dict[str, Any]]) -> None:
    story = Story(tmp_path, 2, partial=False)
    for options in chain:
        story.apply(options)
    for table in (path.parent for path in (tmp_path / "Tables").glob("t*/_delta_log")):
        is_compared = table.name != "t__history" or all(options.get("history") for options in chain)
        if not is_compared or not DeltaTable(table).to_pyarrow_table().num_rows:
            continue
        log = tmp_path / "log"
        shutil.copytree(table, log)
        DeltaTable(table).update(updates={"id": "id + 10"})
        codes = {each.code for each in story.wrong() if each.table == table.name}
        assert codes & {"verify-row-missing", "verify-row-differs"}, table.name
        shutil.rmtree(table)
        log.rename(table)


def test_deleted_rows_that_were_removed_are_not_missing(tmp_path: Path) -> None:
    story = Story(tmp_path, 3, partial=False)
    story.apply(SOFT)
    MirroredDatabase(tmp_path).resync("t", purge_deleted=True)
    story.apply(SOFT)
    assert not story.wrong()


def test_versions_that_ended_because_the_option_was_off_are_applied_once(tmp_path: Path) -> None:
    for number, (options, n) in enumerate([({**BY_N, **VERSIONS}, 5), ({}, 3), ({**BY_N, **VERSIONS}, 6)], 1):
        declare(tmp_path, "t", ["id"], lakemirror=options)
        put_at(tmp_path, "t", number, {"__rowMarker__": [4], "id": [1], "n": [n]})
        assert sync(tmp_path) is None
    report = verify_database(LocalStorage(tmp_path), (), Options(against_files=True))
    assert [(each.table, each.code) for each in report.findings] == [("t__history", "verify-impossible")]


@pytest.mark.parametrize("options", [BY_N, {**SOFT, **BY_N}, {**BY_N, **VERSIONS}])
@pytest.mark.parametrize(("kept", "days"), [(7, 6), (7, 8), (2, 3)])
def test_rows_that_depend_on_a_delete_that_may_be_forgotten_are_not_compared(
    tmp_path: Path, options: dict[str, Any], kept: int, days: int
) -> None:
    """Whatever `late_days` is since."""
    declare(tmp_path, "t", ["id"], lakemirror={**options, "late_days": kept})
    put_at(tmp_path, "t", 1, {"__rowMarker__": [4, 4, 2], "id": [1, 2, 1], "n": [1, 1, 5]})
    assert sync(tmp_path) is None
    first = tmp_path / f"Tables/t/_delta_log/{0:020}.json"
    info, *others = first.read_text().splitlines()
    told = json.loads(info)
    told["commitInfo"]["timestamp"] -= days * 86_400_000
    first.write_text("\n".join([json.dumps(told), *others, ""]))
    forgotten = forget_old(str(tmp_path / "Tables/t__late"), now=time.time() + days * 86_400)
    assert bool(forgotten) == (days > kept)
    declare(tmp_path, "t", ["id"], lakemirror=options)
    put_at(tmp_path, "t", 2, {"__rowMarker__": [4], "id": [1], "n": [3]})
    assert sync(tmp_path) is None
    report = verify_database(LocalStorage(tmp_path), (), Options(against_files=True))
    found = [each for each in report.findings if each.table == "t" and each.code != "verify-not-compared"]
    assert [each.code for each in found] == ["verify-impossible"] * (days > kept)
    assert all("late_days" in each.message for each in found)


def test_soft_deletes_that_begin_before_the_next_file(tmp_path: Path) -> None:
    """Versions begin without a file, and soft deletes with them."""
    declare(tmp_path, "t", ["id"])
    put_at(tmp_path, "t", 1, {"__rowMarker__": [4, 4], "id": [1, 2], "v": [1, 2]})
    assert sync(tmp_path) is None
    declare(tmp_path, "t", ["id"], lakemirror={**SOFT, "history": "scd2"})
    for number in (2, 3):
        assert sync(tmp_path) is None
        report = verify_database(LocalStorage(tmp_path), (), Options(against_files=True))
        assert not [each for each in report.findings if each.table == "t" and each.code != "verify-not-compared"]
        put_at(tmp_path, "t", number, {"__rowMarker__": [2], "id": [number - 1], "v": [None]})


@pytest.mark.parametrize("flags", [(False, True), (True, False), (True, False, True)])
@pytest.mark.parametrize("options", [{}, {"history": "changes"}, {**SOFT, "history": "changes"}, BY_N], ids=str)
def test_rows_without_a_marker_mean_what_they_meant(
    tmp_path: Path, flags: tuple[bool, ...], options: dict[str, Any]
) -> None:
    def wrong() -> set[tuple[str, str]]:
        report = verify_database(LocalStorage(tmp_path), (), Options(against_files=True))
        return {(each.table, each.code) for each in report.findings if each.code != "verify-not-compared"}

    declare(tmp_path, "t", ["id"], isUpsertDefaultRowMarker=flags[0], lakemirror=options)
    for number, flag in enumerate(flags, 1):
        declare(tmp_path, "t", ["id"], isUpsertDefaultRowMarker=flag, lakemirror=options)
        assert not wrong(), "the files so far were applied by the flag of before"
        put_at(tmp_path, "t", number, {"id": [1, 1], "v": [number, -number], "n": [number, number]})
        assert sync(tmp_path) is None
        assert not wrong()
    if not flags[-1] and not options:
        assert DeltaTable(tmp_path / "Tables/t").to_pyarrow_table().num_rows == 3
    table = "t__changes" if "history" in options else "t"
    if "history" in options:
        kept = held(tmp_path, table)
        for built in flags:
            declare(tmp_path, "t", ["id"], isUpsertDefaultRowMarker=built, lakemirror=options)
            MirroredDatabase(tmp_path, durability="process").build_history("t")
            assert held(tmp_path, table) == kept and not wrong()
    DeltaTable(tmp_path / "Tables" / table).update(updates={"v": "v + 10"})
    assert {code for name, code in wrong() if name == table} & {"verify-row-missing", "verify-row-differs"}
