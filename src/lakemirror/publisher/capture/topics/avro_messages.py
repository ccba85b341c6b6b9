"""Messages in Avro as the JSON that Debezium's JSON converter writes of the same: one folding serves both.

    0, number of the schema, Avro ─▶ schema of the registry ─▶ schema and payload as Kafka Connect has them in JSON

Kafka Connect's Avro converter keeps its own types beside Avro's (`connect.name`, `connect.type`), so nothing is lost.
"""

from __future__ import annotations

import base64
import importlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakemirror.errors import SetupError
from lakemirror.publisher.capture.topics.schema_registry import SchemaRegistry, UnknownSchema

MAGIC = b"\0"
"""The first byte of a message that names its schema by a number of the registry."""
_PREFIX = 5  # bytes before the value
_TYPES = {"int": "int32", "long": "int64", "enum": "string", "fixed": "bytes", "record": "struct"}
_LOGICAL = {
    "decimal": "org.apache.kafka.connect.data.Decimal",
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "io.debezium.time.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "io.debezium.time.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
    **{f"local-timestamp-{unit}": f"io.debezium.time.{kind}Timestamp"
       for unit, kind in (("millis", ""), ("micros", "Micro"), ("nanos", "Nano"))},
}  # fmt: skip
"""What Avro's own types mean in Kafka Connect, where no `connect.name` says it."""


class BrokenMessage(Exception):
    """A message cannot be read; the text says why."""


@dataclass(frozen=True)
class _Known:
    """A schema: as Kafka Connect's JSON has it, and as the reader of Avro takes it."""

    connect: Mapping[str, Any]
    text: bytes
    parsed: Any


class AvroMessages:
    """Reads keys and values. `capture-extra-missing` where the package fastavro is not installed."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._known: dict[int, _Known] = {}
        try:
            self._avro = importlib.import_module("fastavro")
        except ImportError as error:
            hint = "Install it: pip install 'lakemirror[kafka]'"
            raise SetupError(
                "capture-extra-missing", "Avro needs fastavro, which is not installed", hint=hint
            ) from error

    def split(self, message: bytes) -> tuple[Mapping[str, Any], bytes, bytes]:
        """The schema, the same as JSON, and the payload as JSON. `BrokenMessage`, and what `SchemaRegistry.schema`
        raises but for `UnknownSchema`."""
        known = self._schema(message)
        source = io.BytesIO(message[_PREFIX:])
        try:
            value = self._avro.schemaless_reader(source, known.parsed, None)
        except Exception as error:  # fastavro raises what Python's own reading raises, of many kinds
            raise BrokenMessage(
                f"its bytes are not of its schema: {str(error)[:200] or type(error).__name__}"
            ) from error
        if source.read(1):
            raise BrokenMessage("its bytes are not of its schema: some are left behind its value")
        return known.connect, known.text, json.dumps(value, default=_base64, separators=(",", ":")).encode()

    def fields(self, message: bytes) -> tuple[str, ...]:
        """The names of the fields of a message's schema; none where it is no record. Raises as `split`."""
        return tuple(field["field"] for field in self._schema(message).connect.get("fields") or ())

    def _schema(self, message: bytes) -> _Known:
        if len(message) < _PREFIX:
            raise BrokenMessage("it is shorter than the number of a schema")
        number = int.from_bytes(message[1:_PREFIX], "big")
        if number not in self._known:
            try:
                self._known[number] = self._read(self._registry.schema(number))
            except UnknownSchema as error:
                raise BrokenMessage(str(error)) from error
        return self._known[number]

    def _read(self, schema: Any) -> _Known:
        try:
            whole = self._avro.schema.expand_schema(schema)
            parsed = self._avro.parse_schema(_plain(schema))
            connect = _connect(whole)
        except Exception as error:  # of fastavro, as many as above
            raise UnknownSchema(f"its schema is no Avro: {str(error)[:200]}") from error
        return _Known(connect, json.dumps(connect).encode(), parsed)


def _connect(schema: Any) -> dict[str, Any]:
    """A schema of Avro, without names that refer to others, as Kafka Connect's JSON has it."""
    if isinstance(schema, list):
        branches = [each for each in schema if each != "null"]
        return {**_connect(branches[0]), "optional": True} if len(branches) == 1 else {"type": "union"}
    if isinstance(schema, str):
        return {"type": _TYPES.get(schema, schema)}
    kind = schema["type"]
    if not isinstance(kind, str):
        return {**_connect(kind), **_meaning(schema)}
    found = {"type": schema.get("connect.type") or _TYPES.get(kind, kind), **_meaning(schema)}
    if found["type"] in ("int32", "int64") and found.get("name", 0) == schema.get("logicalType"):
        found["type"] = found["name"]  # of an unknown meaning: refused, because its number would be a guess
    if kind == "record":
        found["fields"] = [{**_connect(each["type"]), "field": each["name"]} for each in schema["fields"]]
        found.setdefault("name", schema["name"])
    elif kind == "array":
        found["items"] = _connect(schema["items"])
    return found


def _meaning(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The name and the parameters that Kafka Connect knows a type by."""
    logical = schema.get("logicalType")
    name = schema.get("connect.name") or _LOGICAL.get(str(logical), logical)
    parameters = schema.get("connect.parameters")
    if logical == "decimal":
        own = {"scale": str(schema.get("scale", 0)), "connect.decimal.precision": str(schema["precision"])}
        parameters = {**own, **(parameters or {})}
    return {**({"name": name} if name else {}), **({"parameters": parameters} if parameters else {})}


def _plain(schema: Any) -> Any:
    """The schema without what Avro's types mean: values stay numbers and bytes, as Kafka Connect's JSON has them."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, Mapping):
        return {name: _plain(each) for name, each in schema.items() if name != "logicalType"}
    return schema


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
