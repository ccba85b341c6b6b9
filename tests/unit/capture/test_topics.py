"""Debezium's topics become tables: exactly once, whatever stops the capture, and value by value."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.commands import CommandRunner
from tests.debezium_topics import COLUMNS, Topics, message
from tests.rounds import rounds
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.cli import app
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.capture.topics import topic_capture
from lakemirror.publisher.capture.topics.connect_values import columns_of
from lakemirror.publisher.capture.topics.topic_capture import TopicCapture, TopicOptions
from lakemirror.publisher.capture.topics.topic_table import Message, TopicTable

pytest.importorskip("confluent_kafka")
FAST = {"fetch.wait.max.ms": "20"}
numbers = iter(range(10**6))


@pytest.fixture
def prefix() -> str:
    return f"p{next(numbers)}"


def capture(path: Path, topics: Topics, prefix: str, **more: Any) -> TopicCapture:
    return TopicCapture(Landing(path), TopicOptions(f"kafka://{topics.servers}/{prefix}.*", **more, config=FAST))


def follow(path: Path, topics: Topics, prefix: str, **more: Any) -> TopicCapture:
    running = capture(path, topics, prefix, **more)
    running.run(once=True)
    return running


def rows(path: Path, table: str, names: list[str]) -> Counter[tuple[Any, ...]]:
    result = MirroredDatabase(path, engine="local").sync()
    assert not result.failed, result.failed
    return table_rows(path, table, names)


def test_changes_become_rows(tmp_path: Path, topics: Topics, prefix: str) -> None:
    topic = f"{prefix}.public.orders"
    for number in range(4):
        topics.send(topic, "r" if number < 2 else "c", {"id": number, "v": f"é{number}", "n": 2**53 + number})
    topics.send(topic, "u", {"id": 1, "v": None, "n": -1}, {"id": 1, "v": "é1", "n": 5})
    topics.send(topic, "d", None, {"id": 2, "v": None, "n": None})
    assert not follow(tmp_path, topics, prefix).stopped
    expected = {(0, "é0", 2**53): 1, (1, None, -1): 1, (3, "é3", 2**53 + 3): 1}
    assert dict(rows(tmp_path, "public.orders", ["id", "v", "n"])) == expected
    topics.send(topic, "c", {"id": 9, "v": "", "n": 0})
    files = len(list((tmp_path / "Files/LandingZone/public.schema/orders").rglob("*.parquet")))
    follow(tmp_path, topics, prefix)
    follow(tmp_path, topics, prefix)
    assert dict(rows(tmp_path, "public.orders", ["id", "v", "n"])) == {**expected, (9, "", 0): 1}
    assert len(list((tmp_path / "Files/LandingZone/public.schema/orders").rglob("*.parquet"))) == files + 1


def test_versions_have_the_times_of_the_source(tmp_path: Path, topics: Topics, prefix: str) -> None:
    (tmp_path / "Files/LandingZone").mkdir(parents=True)
    (tmp_path / "mirroring.json").write_text('{"lakemirror": {"tables": {"public.*": {"history": "scd2"}}}}')
    for number in (1, 2):
        value = json.loads(message("c", {"id": 1, "v": f"v{number}", "n": 1}, None, COLUMNS))
        value["payload"]["source"]["ts_ms"] = 1000 * number
        key = {"schema": {"type": "struct", "fields": [{**COLUMNS["id"], "field": "id"}]}, "payload": {"id": 1}}
        topics.put(f"{prefix}.public.orders", json.dumps(key).encode(), json.dumps(value).encode())
    assert not follow(tmp_path, topics, prefix).stopped
    found = rows(tmp_path, "public.orders__history", ["v", "__START_AT", "__END_AT"])
    begun = [dt.datetime(1970, 1, 1, 0, 0, second, tzinfo=dt.timezone.utc) for second in (1, 2)]
    assert found == {("v1", *begun): 1, ("v2", begun[1], None): 1}


def test_the_command(tmp_path: Path, topics: Topics, prefix: str) -> None:
    topics.send(f"{prefix}.s.t", "c", {"id": 1, "v": "a", "n": 1})
    address = f"kafka://{topics.servers}/{prefix}.*"
    config = tmp_path / "kafka.properties"
    config.write_text("# for tests\nclient.id=lakemirror-test\n\nfetch.wait.max.ms=20\n")
    words = ["capture", str(tmp_path / "shop"), "--from", address, "--once", "--kafka-config", str(config)]
    result = CommandRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert rows(tmp_path / "shop", "s.t", ["id"]) == {(1,): 1}
    assert CommandRunner().invoke(app, [*words, "--tables", "x.*"]).exit_code == 2
    assert CommandRunner().invoke(app, [*words, "--format", "avro"]).exit_code == 2
    wrong = CommandRunner().invoke(app, ["capture", str(tmp_path), "--from", "kafka://me:secret@h:1/x", "--once"])
    assert wrong.exit_code != 0 and "secret" not in wrong.output


@pytest.mark.parametrize("seed", range(rounds(2, 10)))
def test_random_changes_through_stops(
    tmp_path: Path, topics: Topics, prefix: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The capture stops at random, before and after a file is published; a keyless table has nothing twice."""
    chance = random.Random(seed)
    state: dict[int, Any] = {}
    log = 0
    true = TopicTable._publish

    def publish(self: TopicTable, *given: Any) -> None:
        if chance.random() < 0.3:
            raise KeyboardInterrupt
        true(self, *given)
        if chance.random() < 0.3:
            raise KeyboardInterrupt

    monkeypatch.setattr(TopicTable, "_publish", publish)
    monkeypatch.setattr(topic_capture, "_MOST", 7)
    for _ in range(8):
        for _ in range(chance.randrange(1, 12)):
            number = chance.randrange(6)
            row = {"id": number, "v": chance.choice(["a", None, "ü"]), "n": chance.randrange(99)}
            if number in state and chance.random() < 0.3:
                topics.send(f"{prefix}.s.t", "d", None, state.pop(number))
            else:
                topics.send(f"{prefix}.s.t", "u" if number in state else "c", row, state.get(number))
                state[number] = row
            topics.send(f"{prefix}.s.log", "c", {"id": log, "v": None, "n": None}, keys=())
            log += 1
        try:
            follow(tmp_path, topics, prefix)
        except KeyboardInterrupt:
            continue
    monkeypatch.setattr(TopicTable, "_publish", true)
    assert not follow(tmp_path, topics, prefix).stopped
    expected = {(row["id"], row["v"], row["n"]): 1 for row in state.values()}
    assert dict(rows(tmp_path, "s.t", ["id", "v", "n"])) == expected
    assert rows(tmp_path, "s.log", ["id"]) == {(number,): 1 for number in range(log)}


def test_a_truncate_begins_the_table_again(tmp_path: Path, topics: Topics, prefix: str) -> None:
    topic = f"{prefix}.s.t"
    for number in range(3):
        topics.send(topic, "c", {"id": number, "v": "old", "n": 1})
    follow(tmp_path, topics, prefix)
    assert len(rows(tmp_path, "s.t", ["id"])) == 3
    topics.put(topic, None, message("t", None, None, COLUMNS))
    follow(tmp_path, topics, prefix)
    assert not rows(tmp_path, "s.t", ["id"])
    follow(tmp_path, topics, prefix)
    topics.send(topic, "c", {"id": 7, "v": "new", "n": 1})
    follow(tmp_path, topics, prefix)
    assert rows(tmp_path, "s.t", ["id", "v"]) == {(7, "new"): 1}


def test_values_that_were_not_sent_stay(tmp_path: Path, topics: Topics, prefix: str) -> None:
    topic = f"{prefix}.s.t"
    topics.send(topic, "c", {"id": 1, "v": "long", "n": 1})
    topics.send(topic, "u", {"id": 1, "v": "__debezium_unavailable_value", "n": 2})
    topics.send(topic, "c", {"id": 2, "v": "about __debezium_unavailable_value", "n": 1})
    topics.send(topic, "c", {"id": 3, "v": '"__debezium_unavailable_value"', "n": 1})
    follow(tmp_path, topics, prefix)
    found = rows(tmp_path, "s.t", ["id", "v", "n"])
    assert found == {
        (1, "long", 2): 1, (2, "about __debezium_unavailable_value", 1): 1, (3, '"__debezium_unavailable_value"', 1): 1,
    }  # fmt: skip


def test_a_new_row_without_all_values_stops_its_table_alone(tmp_path: Path, topics: Topics, prefix: str) -> None:
    topics.send(f"{prefix}.s.bad", "c", {"id": 1, "v": "__debezium_unavailable_value", "n": 2})
    topics.send(f"{prefix}.s.good", "c", {"id": 1, "v": "x", "n": 2})
    stopped = follow(tmp_path, topics, prefix).stopped
    assert [error.code for error in stopped.values()] == ["capture-value"] and list(stopped) == [f"{prefix}.s.bad"]
    assert rows(tmp_path, "s.good", ["id"]) == {(1,): 1}


@pytest.mark.parametrize(
    "value",
    [b"no json", b'{"op": "c", "after": {"id": 1}}', b'{"schema": {"fields": []}, "payload": {"id": 1}}', b"[]"],
)
def test_what_is_no_envelope_stops_the_table(tmp_path: Path, topics: Topics, prefix: str, value: bytes) -> None:
    topics.put(f"{prefix}.s.t", b"1", value)
    stopped = follow(tmp_path, topics, prefix).stopped
    assert [error.code for error in stopped.values()] == ["capture-value"]


@pytest.mark.parametrize("wrong", ["no json", "a value", "a row without all values"])
def test_what_is_before_a_broken_message_is_published(tmp_path: Path, wrong: str) -> None:
    topic, columns = "p.s.t", {**COLUMNS, "n": {"type": "int64", "name": "io.debezium.time.NanoTime"}}
    values = [message("c", {"id": number, "v": "", "n": 1000}, None, columns) for number in range(7)]
    unsent = {"id": 9, "v": "__debezium_unavailable_value", "n": 1000}
    values[5] = {
        "no json": b"no json",
        "a value": message("c", {"id": 5, "v": "", "n": 1}, None, columns),
        "a row without all values": message("u", unsent, {"id": 4, "v": None, "n": None}, columns),
    }[wrong]
    messages = [Message(0, number, b'{"id": 1}', value) for number, value in enumerate(values)]
    for _ in range(2):
        with pytest.raises(LakemirrorError, match=r"p\.s\.t, partition 0, offset 5: ") as error:
            TopicTable(Landing(tmp_path), topic, "lakemirror").publish(messages)
        assert error.value.code == "capture-value"
        assert rows(tmp_path, "s.t", ["id"]) == {(number,): 1 for number in range(5)}


def test_another_publisher_s_table_is_refused(tmp_path: Path, topics: Topics, prefix: str) -> None:
    topics.send(f"{prefix}.s.t", "c", {"id": 1, "v": "x", "n": 2})
    follow(tmp_path, topics, prefix)
    stopped = follow(tmp_path, topics, prefix, name="other").stopped
    assert [error.code for error in stopped.values()] == ["capture-taken"]


def test_columns_come_and_go(tmp_path: Path, topics: Topics, prefix: str) -> None:
    topic, wider = f"{prefix}.s.t", {**COLUMNS, "w": {"type": "double", "optional": True}}
    topics.send(topic, "c", {"id": 1, "v": "a", "n": 1})
    topics.send(topic, "c", {"id": 2, "v": "b", "n": 1, "w": 0.1}, columns=wider)
    topics.send(topic, "c", {"id": 3, "v": "c", "n": 1})
    follow(tmp_path, topics, prefix)
    assert rows(tmp_path, "s.t", ["id", "w"]) == {(1, None): 1, (2, 0.1): 1, (3, None): 1}


def test_a_broker_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_capture, "_PATIENCE", 0.5)
    with pytest.raises(LakemirrorError, match="capture-source-failed"):
        TopicCapture(Landing(tmp_path), TopicOptions("kafka://127.0.0.1:1/x.*")).run(once=True)


def number_text(unscaled: int) -> str:
    return base64.b64encode(unscaled.to_bytes(9, "big", signed=True)).decode()


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
          "parameters": {"scale": "2", "connect.decimal.precision": "20"}}, number_text(-12345), Decimal("-123.45")),
        ({"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
         {"scale": 3, "value": number_text(7)}, "0.007"),
        ({"type": "int32", "name": "io.debezium.time.Date"}, -1, dt.date(1969, 12, 31)),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, 1_000_001, dt.datetime(1970, 1, 1, 0, 0, 1, 1)),
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, 1_001, dt.datetime(1970, 1, 1, 0, 0, 1, 1000)),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "2020-01-02T03:04:05.6Z",
         dt.datetime(2020, 1, 2, 3, 4, 5, 600000, tzinfo=dt.timezone.utc)),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 3_600_000_001, "01:00:00.000001"),
        ({"type": "int32", "name": "io.debezium.time.Time"}, 1_000, "00:00:01"),
        ({"type": "bytes"}, base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
        ({"type": "boolean"}, True, True),
        ({"type": "int16"}, -3, -3),
        ({"type": "string", "name": "io.debezium.data.Json"}, '{"a": 1}', '{"a": 1}'),
        ({"type": "int32"}, None, None),
    ],
)  # fmt: skip
def test_values_are_exact(kind: dict[str, Any], given: Any, expected: Any) -> None:
    import pyarrow as pa

    schema = json.loads(message("c", None, None, {"x": kind}))["schema"]
    (column,) = columns_of(schema, "t")
    found = column.from_event(pa.array([given], column.event.raw))
    assert found.type == column.arrow_type and found.to_pylist() == [expected]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, 1),
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, 2**62),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "2020-01-02T03:04:05.1234567Z"),
        ({"type": "int16"}, 70_000),
        ({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
          "parameters": {"scale": "0", "connect.decimal.precision": "3"}}, number_text(12345)),
    ],
)  # fmt: skip
def test_values_that_cannot_be_kept_are_refused(kind: dict[str, Any], given: Any) -> None:
    import pyarrow as pa

    (column,) = columns_of(json.loads(message("c", None, None, {"x": kind}))["schema"], "t")
    with pytest.raises(LakemirrorError, match="capture-value"):
        column.from_event(pa.array([given], column.event.raw))


def test_a_type_that_is_not_known_is_refused() -> None:
    schema = json.loads(message("c", None, None, {"x": {"type": "map"}}))["schema"]
    with pytest.raises(LakemirrorError, match="type-unsupported"):
        columns_of(schema, "t")
