"""`debezium_to_landing` publishes what Spark's Kafka source gives, each message once however often it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.debezium_topics import COLUMNS, message
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.topics.topic_frames import debezium_to_landing

KEY = b'{"schema": {"type": "struct", "fields": [{"type": "int32", "field": "id"}]}, "payload": {"id": 1}}'


def frame(spark: Any, *messages: tuple[str, int, int, bytes | None]) -> Any:
    """As the source gives it: in no order, with more columns."""
    rows = [(bytearray(KEY), None if v is None else bytearray(v), t, p, o, 0) for t, p, o, v in reversed(messages)]
    schema = "key binary, value binary, topic string, partition int, offset bigint, timestampType int"
    return spark.createDataFrame(rows, schema)


def row(op: str, number: int, value: str) -> bytes:
    image = {"id": number, "v": value, "n": 1}
    return message(op, None if op == "d" else image, image if op == "d" else None, COLUMNS)


def test_a_batch_that_is_repeated_publishes_nothing_twice(spark: Any, tmp_path: Path) -> None:
    publish = debezium_to_landing(str(tmp_path))
    first = frame(
        spark, ("p.s.a", 0, 5, row("c", 1, "x")), ("p.s.a", 0, 6, row("u", 1, "y")), ("p.s.a", 1, 0, row("c", 2, "z")),
        ("p.s.b", 0, 0, row("c", 1, "b")),
    )  # fmt: skip
    publish(first, 0)
    publish(first, 0)
    second = frame(spark, ("p.s.a", 0, 6, row("u", 1, "y")), ("p.s.a", 0, 7, row("d", 1, "")), ("p.s.a", 0, 8, None))
    debezium_to_landing(str(tmp_path))(second, 0)
    assert not MirroredDatabase(tmp_path, engine="local").sync().failed
    assert table_rows(tmp_path, "s.a", ["id", "v"]) == {(2, "z"): 1}
    assert table_rows(tmp_path, "s.b", ["id", "v"]) == {(1, "b"): 1}
    files = sorted((tmp_path / "Files/LandingZone/s.schema").rglob("*.parquet"))
    assert len(files) == 3


def test_a_table_that_fails_stops_no_other(spark: Any, tmp_path: Path) -> None:
    bad = frame(spark, ("p.s.a", 0, 0, b"no json"), ("p.s.b", 0, 0, row("c", 1, "b")))
    with pytest.raises(LakemirrorError, match="capture-value"):
        debezium_to_landing(str(tmp_path))(bad, 0)
    MirroredDatabase(tmp_path, engine="local").sync()
    assert table_rows(tmp_path, "s.b", ["id"]) == {(1,): 1}
