"""Topics in Avro become the same tables as those in JSON; messages are those of Confluent's own converter."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import CommandRunner
from tests.debezium_topics import Topics
from tests.schema_registries import Registry, running
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.cli import app
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.capture.topics import topic_capture, topic_frames
from lakemirror.publisher.capture.topics.avro_messages import AvroMessages, BrokenMessage
from lakemirror.publisher.capture.topics.schema_registry import SchemaRegistry, UnknownSchema
from lakemirror.publisher.capture.topics.topic_capture import TopicCapture, TopicOptions

pytest.importorskip("confluent_kafka")
pytest.importorskip("fastavro")
RECORDED = json.loads(Path(__file__).with_name("recorded_avro.json").read_text(encoding="utf-8"))
MESSAGES = [tuple(bytes.fromhex(side) for side in pair) for pair in RECORDED["messages"]]
SECRET = "tulip-of-the-registry"
FAST = {"fetch.wait.max.ms": "20"}
numbers = iter(range(10**6))


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running(Registry(RECORDED["schemas"])) as found:
        yield found


@pytest.fixture
def topic() -> str:
    return f"avro{next(numbers)}.public.orders"


def follow(path: Path, topics: Topics, topic: str, registry: str) -> TopicCapture:
    source = f"kafka://{topics.servers}/{topic.partition('.')[0]}.*"
    found = TopicCapture(Landing(path), TopicOptions(source, config=FAST, registry=registry))
    found.run(once=True)
    return found


def rows(path: Path, names: list[str]) -> dict[tuple[Any, ...], int]:
    assert not MirroredDatabase(path, engine="local").sync().failed
    return dict(table_rows(path, "public.orders", names))


def test_what_the_converter_writes_becomes_rows(tmp_path: Path, topics: Topics, topic: str, registry: Registry) -> None:
    for key, value in MESSAGES[:2]:
        topics.put(topic, key, value)
    assert not follow(tmp_path, topics, topic, registry.address).stopped
    names = ["id", "small", "big", "text", "flag", "single", "number", "raw", "price", "free", "free2", "day", "at",
             "zoned", "clock", "kind", "tags"]  # fmt: skip
    (file,) = (tmp_path / "Files/LandingZone/public.schema/orders").glob("*.parquet")
    found = pq.read_table(file).select(names).to_pylist()
    first = next(row for row in found if row["id"] == 1)
    assert first.pop("at").replace(tzinfo=None) == dt.datetime(1970, 1, 1, 0, 0, 1, 1)
    assert first.pop("zoned") == dt.datetime(2020, 1, 2, 3, 4, 5, 600000, tzinfo=dt.timezone.utc)
    assert first == {
        "id": 1, "small": -3, "big": 2**53 + 1, "text": "é", "flag": True, "single": 0.10000000149011612, "number": 0.1,
        "raw": b"\x00\xff", "price": Decimal("-123.45"), "free": "0.007", "free2": "-1", "day": dt.date(1969, 12, 31),
        "clock": "01:00:00.000001", "kind": "a", "tags": '["a",null]',
    }  # fmt: skip
    second = next(row for row in found if row["id"] == 2)
    assert {name for name, value in second.items() if value is not None} == {"id", "price"}
    assert second["price"] == Decimal("0.00")


def test_unsent_values_and_deletes(tmp_path: Path, topics: Topics, topic: str, registry: Registry) -> None:
    for key, value in MESSAGES:
        topics.put(topic, key, value)
    topics.put(topic, MESSAGES[3][0], None)
    assert not follow(tmp_path, topics, topic, registry.address).stopped
    ((found, count),) = rows(tmp_path, ["id", "text", "raw", "price", "number"]).items()
    assert count == 1 and found == (1, "é", b"\x00\xff", None, "NaN")
    assert sorted(registry.asked) == ["/schemas/ids/1", "/schemas/ids/2"]


def test_json_and_avro_in_one_topic(tmp_path: Path, topics: Topics, topic: str, registry: Registry) -> None:
    topics.put(topic, *MESSAGES[0])
    topics.send(topic, "c", {"id": 7, "v": "json", "n": 1})
    assert not follow(tmp_path, topics, topic, registry.address).stopped
    assert rows(tmp_path, ["id"]) == {(1,): 1, (7,): 1}


def test_a_registry_that_does_not_answer_is_waited_for(
    tmp_path: Path, topics: Topics, topic: str, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_capture, "_WAITS", (0.0,))
    registry.answers += [503, 500, 429]
    topics.put(topic, *MESSAGES[0])
    said: list[str] = []
    source = f"kafka://{topics.servers}/{topic.partition('.')[0]}.*"
    found = TopicCapture(Landing(tmp_path), TopicOptions(source, config=FAST, registry=registry.address), said.append)
    found.run(once=True)
    assert not found.stopped and rows(tmp_path, ["id"]) == {(1,): 1}
    assert [text for text in said if "capture-registry-unavailable" in text and "429" in text], said
    with pytest.raises(LakemirrorError) as error:
        SchemaRegistry("http://127.0.0.1:1").schema(1)
    assert (error.value.code, error.value.retry) == ("capture-registry-unavailable", True)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"\0\0\0\0\x63" + MESSAGES[0][1][5:], "404"),
        (MESSAGES[0][1][:-9], "its bytes"),
        (MESSAGES[0][1] + b"\0", "left behind"),
        (b"\0\0", "shorter"),
        (b"\0\0\0\0\x02\x00\x02" + b"\xff" * 12, "its bytes"),
    ],
)
def test_a_broken_message_stops_its_table_alone(
    tmp_path: Path, topics: Topics, topic: str, registry: Registry, value: bytes, why: str
) -> None:
    good = topic.replace("orders", "good")
    topics.put(good, *MESSAGES[0])
    topics.put(topic, MESSAGES[0][0], value)
    stopped = follow(tmp_path, topics, topic, registry.address).stopped
    assert list(stopped) == [topic] and stopped[topic].code == "capture-value"
    assert why in stopped[topic].message and f"{topic}, partition " in stopped[topic].message
    assert "offset 0" in stopped[topic].message
    assert list((tmp_path / "Files/LandingZone/public.schema/good").glob("*.parquet"))


def test_without_a_registry_the_table_stops_and_says_what_to_do(tmp_path: Path, topics: Topics, topic: str) -> None:
    topics.put(topic, *MESSAGES[0])
    stopped = follow(tmp_path, topics, topic, "").stopped
    assert stopped[topic].code == "capture-value" and "--registry" in str(stopped[topic].hint)


def test_the_command_shows_no_password(tmp_path: Path, topics: Topics, topic: str) -> None:
    topics.put(topic, *MESSAGES[0])
    source, config = f"kafka://{topics.servers}/{topic.partition('.')[0]}.*", tmp_path / "kafka.properties"
    with running(Registry(RECORDED["schemas"], f"me:{SECRET}")) as registry:
        words = ["capture", str(tmp_path / "lake"), "--from", source, "--once", "--registry", registry.address]
        ended = []
        for user in ("", f"schema.registry.basic.auth.user.info=me:wrong-{SECRET}\n",
                     f"schema.registry.basic.auth.user.info=me:{SECRET}\n"):  # fmt: skip
            config.write_text(f"fetch.wait.max.ms=20\n{user}")
            ended.append(CommandRunner().invoke(app, [*words, "--kafka-config", str(config)]))
        refused, wrong, right = ended
        assert set(registry.authorizations[-2:]) == {f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"}
    assert refused.exit_code != 0 and wrong.exit_code != 0 and "401" in refused.output
    assert right.exit_code == 0, right.output
    address = f"http://me:{SECRET}@127.0.0.1:1"
    shown = CommandRunner().invoke(app, ["capture", str(tmp_path / "lake"), "--from", source, "--registry", address])
    assert shown.exit_code != 0
    assert SECRET not in "".join(each.output for each in (refused, wrong, right, shown))
    assert SECRET not in "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*.json"))
    assert SECRET not in repr(SchemaRegistry("http://127.0.0.1:1", f"me:{SECRET}"))
    assert rows(tmp_path / "lake", ["id"]) == {(1,): 1}


def test_no_redirect_is_followed(registry: Registry) -> None:
    registry.answers.append(302)
    with pytest.raises(UnknownSchema, match="302"):
        SchemaRegistry(registry.address, f"me:{SECRET}").schema(1)


@pytest.mark.parametrize(
    ("properties", "address"),
    [({"schema.registry.ssl.key": "x"}, "http://h"), ({"schema.registry.basic.auth.user.info": "a:b"}, ""),
     ({}, "ftp://h"), ({}, "http://")],
)  # fmt: skip
def test_what_cannot_be_a_registry(properties: dict[str, str], address: str) -> None:
    with pytest.raises(LakemirrorError, match="input-invalid"):
        SchemaRegistry.of_properties(address, properties)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (["null", "long"], {"type": "int64", "optional": True}),
        ({"type": "long", "logicalType": "timestamp-micros"},
         {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}),
        ({"type": "long", "logicalType": "local-timestamp-nanos"},
         {"type": "int64", "name": "io.debezium.time.NanoTimestamp"}),
        ({"type": "long", "logicalType": "local-timestamp-micros"},
         {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}),
        ({"type": "long", "logicalType": "local-timestamp-millis"},
         {"type": "int64", "name": "io.debezium.time.Timestamp"}),
        ({"type": "int", "logicalType": "sidereal"}, {"type": "sidereal", "name": "sidereal"}),
        ({"type": "int", "logicalType": "sidereal", "connect.name": "io.debezium.time.Year"},
         {"type": "int32", "name": "io.debezium.time.Year"}),
        ({"type": "string", "logicalType": "uuid"}, {"type": "string", "name": "uuid"}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 4},
         {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
          "parameters": {"scale": "4", "connect.decimal.precision": "9"}}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 4, "connect.parameters": {"of": "x"}},
         {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
          "parameters": {"scale": "4", "connect.decimal.precision": "9", "of": "x"}}),
        ({"type": "enum", "name": "e", "symbols": ["a"]}, {"type": "string"}),
        (["int", "string"], {"type": "union"}),
        ({"type": "map", "values": "int"}, {"type": "map"}),
    ],
)  # fmt: skip
def test_types_of_avro(kind: Any, expected: dict[str, Any]) -> None:
    registry = SchemaRegistry("http://h")
    registry._known[1] = {"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]}
    found = AvroMessages(registry).fields(b"\0\0\0\0\x01")
    assert found == ("x",)
    schema = AvroMessages(registry)._schema(b"\0\0\0\0\x01").connect
    assert schema["fields"][0] == {**expected, "field": "x"}


@pytest.mark.parametrize(
    "said",
    [{"schema": "{}", "schemaType": "PROTOBUF"}, {"schema": '"int"', "references": [{"name": "a"}]},
     {"schema": "{"}, {"schema": '{"type": "record"}'}],
)  # fmt: skip
def test_a_schema_that_is_not_read(said: dict[str, Any]) -> None:
    with running(Registry({"1": said})) as registry, pytest.raises(BrokenMessage):
        AvroMessages(SchemaRegistry(registry.address)).split(b"\0\0\0\0\x01\0")


class Frame:
    """A frame of Spark's source `kafka`, without Spark."""

    def select(self, *names: str) -> pa.Table:
        rows = [{"topic": "p.public.orders", "partition": 0, "offset": at, "key": key, "value": value}
                for at, (key, value) in enumerate(MESSAGES)]  # fmt: skip
        return pa.Table.from_pylist(rows).select(list(names))


def test_a_batch_of_spark(tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_frames, "from_spark", lambda table: table.to_reader())
    frame: Any = Frame()
    with pytest.raises(LakemirrorError, match="in Avro"):
        topic_frames.debezium_to_landing(str(tmp_path))(frame, 0)
    topic_frames.debezium_to_landing(str(tmp_path), registry=SchemaRegistry(registry.address))(frame, 0)
    assert rows(tmp_path, ["id"]) == {(1,): 1}
