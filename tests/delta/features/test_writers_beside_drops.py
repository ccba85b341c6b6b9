"""Somebody appends all the time while features are dropped: no row is lost, and no drop ends half way."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.clients import probe
from used_tables import INGREDIENTS, QUICK, build, quickly, rows, run, snapshot

from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import read_commit
from lakemirror.errors import LakemirrorError
from lakemirror.features.catalogue import BY_NAME
from lakemirror.features.cleaning import clustering_columns
from lakemirror.features.drop import Dropped, drop
from lakemirror.features.plan import Wish
from lakemirror.features.usage import evidence, files_with_old_types

PROTECTION = "delta.requireCheckpointProtectionBeforeVersion"
FIRST = 100_000
"""The id of the first row that is appended; the tables have no others near it."""

CONFLICTS = ("DELTA_PROTOCOL_CHANGED", "DELTA_METADATA_CHANGED", "DELTA_CONCURRENT")
THEIR_CONFLICTS = ("Metadata changed since last commit", "Protocol changed since last commit")
"""How a drop may make a commit of Delta Spark fail, or one of delta-rs, that was under way."""

KEPT = [name for name in INGREDIENTS if name != "checkpointProtection"]
CUT = ["deletionVectors", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck", "checkpointProtection"]
REWRITTEN_AS_A_WHOLE = [
    ("columnMapping",),
    ("clustering", "columnMapping"),
    ("columnMapping", "deletionVectors", "typeWidening"),
]
"""Column mapping is taken away by one transaction over all files, which loses against every other commit."""


@pytest.fixture(autouse=True, scope="module")
def quick(spark: SparkSession) -> Iterator[None]:
    with quickly(spark):
        yield


class Writer(threading.Thread):
    """Appends row after row until it is stopped; may rest in between."""

    def __init__(self, append: Callable[[int], None], conflicts: Iterable[str] = CONFLICTS) -> None:
        super().__init__(daemon=True)
        self.append, self.conflicts = append, tuple(conflicts)
        self.appended: list[int] = []
        self.conflicting: list[str] = []
        self.wrong: list[str] = []
        self.awake, self.stopped, self.idle = threading.Event(), threading.Event(), threading.Event()
        self.awake.set()

    def run(self) -> None:
        number = FIRST
        while not self.stopped.is_set():
            if not self.awake.is_set():
                self.idle.set()
                self.awake.wait(0.05)
                continue
            self.idle.clear()
            try:
                self.append(number)
                self.appended.append(number)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                (self.conflicting if any(name in text for name in self.conflicts) else self.wrong).append(text)
            number += 1

    @property
    def tried(self) -> int:
        return len(self.appended) + len(self.conflicting) + len(self.wrong)

    def one_more(self, _: str = "") -> None:
        """Waits until it has tried once more, unless it rests."""
        before, end = self.tried, time.monotonic() + 120
        while self.tried == before and self.awake.is_set():
            assert time.monotonic() < end and self.is_alive(), "the writer hangs"
            time.sleep(0.005)

    def rest(self) -> None:
        self.idle.clear()
        self.awake.clear()
        assert self.idle.wait(120), "the writer hangs"


@contextmanager
def writing(writer: Writer) -> Iterator[Writer]:
    writer.start()
    try:
        writer.one_more()
        yield writer
        writer.one_more()
    finally:
        writer.stopped.set()
        writer.awake.set()
        writer.join(120)
    assert not writer.wrong


def by_spark(spark: SparkSession, table: Path, text: str) -> Writer:
    session = spark.newSession()
    for key, value in QUICK.items():
        session.conf.set(key, value)

    def append(number: int) -> None:
        session.sql(f"INSERT INTO delta.`{table}` (id, {text}, p) VALUES ({number}, 'w{number}', 1)")

    return Writer(append)


def by_deltalake(table: Path, text: str, pause: float = 0.05) -> Writer:
    client = probe.ROUTES["deltalake-pyarrow"]()
    return Writer(lambda number: client.append(str(table), {"id": number, text: f"w{number}", "p": 1}), THEIR_CONFLICTS)


def make(spark: SparkSession, table: Path, features: Iterable[str]) -> str:
    """A table that uses these features, ready for them to be dropped, with frequent checkpoints; its column of text."""
    build(spark, table, features, **{"delta.checkpointInterval": "3"})
    run(
        spark,
        table,
        [
            *(statement for name in features for statement in INGREDIENTS[name].stop),
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval'='3')",
        ],
    )
    return next(f["name"] for f in snapshot(table).metadata.schema["fields"] if f["name"] in ("s", "renamed"))


def do(spark: SparkSession, table: Path, features: Iterable[str], **more: Any) -> Dropped:
    at = more.pop("at", lambda _: None)
    return drop(table, Wish(tuple(features), **more), session=lambda: spark, confirmed=True, at=at)


def age(table: Path) -> None:
    """Makes everything that is in the log two days older."""
    for file in (table / "_delta_log").iterdir():
        moment = file.stat().st_mtime - 2 * 86_400
        os.utime(file, (moment, moment))


def check_rows(spark: SparkSession, table: Path, before: Counter[str], writer: Writer) -> None:
    """What was there is there, and of what was appended all that was said to be, once and with its text."""
    spark.sql(f"REFRESH TABLE delta.`{table}`")
    found = rows(spark, table)
    assert not before - found
    more = [tuple(text[1:].split(", ")[:2]) for text in (found - before).elements()]
    assert sorted(more) == sorted((str(number), f"w{number}") for number in writer.appended)


def check_gone(table: Path, features: Iterable[str], truncate: bool = False) -> None:
    """The features have left the protocol and the newest version, and nothing that helped is left."""
    now = snapshot(table)
    names = set(features)
    assert not names & features_of(now.protocol)
    assert [trace for name in names for trace in evidence(name, now)] == []
    if names & {"typeWidening", "typeWidening-preview"}:
        assert files_with_old_types(now) == []
    assert not [key for key in now.metadata.configuration if key.startswith("lakemirror.")]
    assert not list((table / "_delta_log").glob("*.tmp"))
    assert now.checkpoint is not None and now.checkpoint.kind == "classic"
    if any(BY_NAME[name].reads for name in names) and not truncate:
        protected = int(now.metadata.configuration[PROTECTION])
        assert any("protocol" in action for action in read_commit(now.log.commits[protected]))
        assert now.checkpoint.version >= protected
        assert len([c for c in now.log.checkpoints if c.version < protected and c.kind == "classic"]) >= 3
    if truncate:
        assert not {"checkpointProtection", *names} & features_of(now.protocol)
        assert all(c.kind == "classic" for c in now.log.checkpoints)


@pytest.mark.full
@pytest.mark.parametrize("feature", KEPT)
def test_appends_beside_a_drop(spark: SparkSession, tmp_path: Path, feature: str) -> None:
    table = tmp_path / "t"
    text = make(spark, table, [feature])
    before, old = rows(spark, table), snapshot(table)
    with writing(by_spark(spark, table, text)) as writer:
        done = do(spark, table, [feature], at=disturbed_by(writer))
        assert done.waiting is None
    assert writer.appended
    check_rows(spark, table, before, writer)
    check_gone(table, [feature])
    assert rows(spark, table, old.version) == before
    assert do(spark, table, [feature]).commits == 0


@pytest.mark.full
@pytest.mark.parametrize("features", REWRITTEN_AS_A_WHOLE, ids="-".join)
def test_appends_that_never_rest(spark: SparkSession, tmp_path: Path, features: tuple[str, ...]) -> None:
    table = tmp_path / "t"
    text = make(spark, table, features)
    beside_a_rewrite_of_all(spark, table, features, by_spark(spark, table, text))


@pytest.mark.full
def test_a_rewrite_of_all_always_loses_against_quick_commits(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    table = tmp_path / "t"
    text = make(spark, table, ["columnMapping"])
    failed = beside_a_rewrite_of_all(spark, table, ["columnMapping"], by_deltalake(table, text, pause=0))
    assert failed is not None


def beside_a_rewrite_of_all(
    spark: SparkSession, table: Path, features: Iterable[str], writer: Writer
) -> LakemirrorError | None:
    """A drop that may give up while somebody writes, and goes on from there when nobody does; the error if so."""
    gone = [name for name in features if name != "clustering"]
    before, columns = rows(spark, table), clustering_columns(snapshot(table))
    failed = None
    with writing(writer):
        try:
            do(spark, table, gone)
        except LakemirrorError as error:
            failed = error
    assert failed is None or (failed.code, "DELTA_" in str(failed)) == ("concurrent-commit", True)
    check_rows(spark, table, before, writer)
    assert bool(set(gone) & features_of(snapshot(table).protocol)) == (failed is not None)
    do(spark, table, gone)
    check_rows(spark, table, before, writer)
    check_gone(table, gone)
    assert clustering_columns(snapshot(table)) == columns
    return failed


@pytest.mark.full
@pytest.mark.parametrize("features", [*REWRITTEN_AS_A_WHOLE, ("deletionVectors",), ("typeWidening",)], ids="-".join)
def test_a_drop_that_gives_up_leaves_a_table_that_works(
    spark: SparkSession, tmp_path: Path, features: tuple[str, ...]
) -> None:
    def losing(point: str) -> None:
        if point == "before rewrite":
            raise LakemirrorError("concurrent-commit", "somebody was faster")

    gone = [name for name in features if name != "clustering"]
    table = tmp_path / "t"
    text = make(spark, table, features)
    before, old = rows(spark, table), snapshot(table)
    with pytest.raises(LakemirrorError) as failed:
        do(spark, table, gone, at=losing)
    assert failed.value.code == "concurrent-commit"
    assert snapshot(table).protocol == old.protocol and snapshot(table).version - old.version <= 1
    assert rows(spark, table) == before == rows(spark, table, old.version)
    run(
        spark,
        table,
        [
            f"INSERT INTO {{t}} (id, {text}, p) VALUES (7000, 'x', 1)",
            f"UPDATE {{t}} SET {text} = 'y' WHERE id = 7000",
            "OPTIMIZE {t}",
            "DELETE FROM {t} WHERE id = 7000",
        ],
    )
    assert rows(spark, table) == before
    do(spark, table, gone)
    assert rows(spark, table) == before
    check_gone(table, gone)
    assert clustering_columns(snapshot(table)) == clustering_columns(old)


@pytest.mark.full
@pytest.mark.parametrize("feature", CUT)
def test_appends_beside_a_cut_of_the_history(spark: SparkSession, tmp_path: Path, feature: str) -> None:
    table = tmp_path / "t"
    text = make(spark, table, [feature])
    old = snapshot(table)
    cut_beside(spark, table, feature, by_spark(spark, table, text))
    if feature != "vacuumProtocolCheck":  # of which a history holds nothing
        assert min(snapshot(table).log.commits) > old.version


OTHERS = ["v2Checkpoint", "columnMapping", "deletionVectors", "checkConstraints", "changeDataFeed"]


@pytest.mark.full
@pytest.mark.parametrize("feature", OTHERS)
def test_appends_of_another_engine(spark: SparkSession, tmp_path: Path, feature: str) -> None:
    pytest.importorskip("deltalake")
    table = tmp_path / "t"
    text = make(spark, table, [feature])
    before = rows(spark, table)
    writer = by_deltalake(table, text)
    if BY_NAME[feature].reads:  # without the history: checkpointProtection would shut it out
        cut_beside(spark, table, feature, writer)
        return
    with writing(writer):
        do(spark, table, [feature], at=disturbed_by(writer))
    assert writer.appended
    check_rows(spark, table, before, writer)
    check_gone(table, [feature])


def cut_beside(spark: SparkSession, table: Path, feature: str, writer: Writer) -> None:
    """Both halves of a drop that cuts the history, two days apart, with a writer beside them."""
    before = rows(spark, table)
    with writing(writer):
        first = do(spark, table, [feature], truncate=True, at=disturbed_by(writer))
        assert (first.waiting is None) == (feature == "vacuumProtocolCheck")
        writer.one_more()
        writer.rest()
        check_rows(spark, table, before, writer)
        age(table)
        middle = len(writer.appended)
        writer.awake.set()
        writer.one_more()
        done = do(spark, table, [feature], truncate=True, at=disturbed_by(writer))
    check_rows(spark, table, before, writer)
    assert len(writer.appended) > middle > 0
    if done.waiting is not None:  # delta-rs writes V2 checkpoints as long as the protocol has them
        assert feature == "v2Checkpoint" and writer.conflicts == THEIR_CONFLICTS
        age(table)
        assert do(spark, table, [feature], truncate=True).waiting is None
        check_rows(spark, table, before, writer)
    check_gone(table, [feature], truncate=True)
    assert do(spark, table, [feature], truncate=True).commits == 0


def disturbed_by(writer: Writer) -> Callable[[str], None]:
    """Lets somebody write between any two steps; a rewrite of all files is disturbed twice, then left in peace."""
    seen: list[str] = []

    def at(point: str) -> None:
        seen.append(point)
        if point == "before rewrite" and seen.count(point) == 3:
            writer.rest()
        elif point == "after rewrite":
            writer.awake.set()
        writer.one_more()

    return at
