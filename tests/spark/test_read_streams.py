"""Mirrored tables as sources of streams: the change feed, and plain streams, through updates and a recreated table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.databases import Database

from lakemirror.publisher import Landing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PRE, POST = "update_preimage", "update_postimage"


class Stream:
    """A stream that reads a table. `seen`: what each batch brought; a batch that is repeated replaces itself."""

    def __init__(self, spark: SparkSession, shop: Database, checkpoint: Path, **options: str) -> None:
        self.seen: dict[int, list[tuple[Any, ...]]] = {}
        self._spark, self._options, self._shop, self._checkpoint = spark, options, shop, checkpoint

    def run(self) -> list[tuple[Any, ...]]:
        """What a run of the query brings, as (id, item, kind of change), in order."""
        kind = "_change_type" if "readChangeFeed" in self._options else "'row'"
        before = dict(self.seen)

        def keep(frame: DataFrame, batch: int) -> None:
            name = "item" if "item" in frame.columns else "name"
            self.seen[batch] = [tuple(row) for row in frame.selectExpr("id", name, kind).collect()]

        frame = self._spark.readStream.format("delta").options(**self._options).load(self._shop.table("orders"))
        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(self._checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        return sorted(
            (row for batch, rows in self.seen.items() if before.get(batch) != rows for row in rows), key=_order
        )

    def forget_the_last_commit(self) -> None:
        """As if the process had died before Spark noted the end of the batch."""
        last = max((self._checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def _order(row: tuple[Any, ...]) -> tuple[int, str, str]:
    return row[0], str(row[1]), row[2]


@pytest.fixture
def shop(tmp_path: Path) -> Database:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/mirroring.json").write_text('{"lakemirror": {"change_data_feed": true}}')
    return Database(str(tmp_path / "shop"), {})


def publish(shop: Database, *rows: dict[str, Any], delete: int = 0, recreate: bool = False) -> None:
    table = Landing(shop.address).table("orders", keys=["id"])
    if recreate:
        table.recreate()
        table = Landing(shop.address).table("orders", keys=["id"])
    table.upsert(list(rows))
    if delete:
        table.delete([{"id": delete}])
    shop.sync()


def test_the_change_feed_has_every_change(spark: SparkSession, shop: Database, tmp_path: Path) -> None:
    """Through a stream that is killed, an update, a delete, and a recreated table."""
    publish(shop, {"id": 1, "item": "cup"}, {"id": 2, "item": "tea"})
    feed = Stream(spark, shop, tmp_path / "feed", readChangeFeed="true")
    assert feed.run() == [(1, "cup", "insert"), (2, "tea", "insert")]
    publish(shop, {"id": 1, "item": "mug"}, {"id": 3, "item": "jar"}, delete=2)
    feed.forget_the_last_commit()
    assert feed.run() == [(1, "cup", PRE), (1, "mug", POST), (2, "tea", "delete"), (3, "jar", "insert")]
    publish(shop, {"id": 9, "item": "new"}, recreate=True)
    assert feed.run() == [(1, "mug", "delete"), (3, "jar", "delete"), (9, "new", "insert")]


@pytest.mark.full
def test_plain_streams(spark: SparkSession, shop: Database, tmp_path: Path) -> None:
    """One ends at the first update. One that skips it skips the rows, too, that come with it."""
    publish(shop, {"id": 1, "item": "cup"})
    plain = Stream(spark, shop, tmp_path / "plain")
    skips = Stream(spark, shop, tmp_path / "skips", skipChangeCommits="true")
    publish(shop, {"id": 2, "item": "tea"})
    assert plain.run() == skips.run() == [(1, "cup", "row"), (2, "tea", "row")]
    publish(shop, {"id": 1, "item": "mug"}, {"id": 3, "item": "jar"})
    publish(shop, {"id": 4, "item": "pot"})
    with pytest.raises(Exception, match="DELTA_SOURCE_TABLE_IGNORE_CHANGES"):
        plain.run()
    assert skips.run() == [(4, "pot", "row")]
    publish(shop, {"id": 9, "item": "new"}, recreate=True)
    publish(shop, {"id": 10, "item": "next"})
    assert skips.run() == [(10, "next", "row")]
    version = Stream(spark, shop, tmp_path / "version", skipChangeCommits="true", startingVersion="3")
    assert version.run() == [(4, "pot", "row"), (10, "next", "row")]


@pytest.mark.full
def test_a_recreated_table_with_other_columns(spark: SparkSession, shop: Database, tmp_path: Path) -> None:
    """A stream of the old columns ends; another one begins at the version that recreated the table."""
    publish(shop, {"id": 1, "item": "cup"})
    feed = Stream(spark, shop, tmp_path / "feed", readChangeFeed="true")
    feed.run()
    publish(shop, {"id": 2, "item": "tea", "price": 1})
    assert feed.run() == [(2, "tea", "insert")], "a new column"
    publish(shop, {"id": 3, "item": "pot", "price": 1})
    publish(shop, {"id": 9, "name": "new"}, recreate=True)
    version = shop.version("orders")
    with pytest.raises(Exception, match="DELTA_SCHEMA_CHANGED"):
        feed.run()
    publish(shop, {"id": 10, "name": "next"})
    begun = Stream(spark, shop, tmp_path / "begun", readChangeFeed="true", startingVersion=str(version))
    assert [row for row in begun.run() if row[2] == "insert"] == [(9, "new", "insert"), (10, "next", "insert")]
