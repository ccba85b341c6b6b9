"""Messages as Debezium's JSON converter writes them, and a broker for tests: librdkafka's own, or a real one."""

from __future__ import annotations

import json
from typing import Any

COLUMNS: dict[str, dict[str, Any]] = {
    "id": {"type": "int32", "optional": False},
    "v": {"type": "string", "optional": True},
    "n": {"type": "int64", "optional": True},
}


class Topics:
    """A broker that lives in this process, and a producer for it."""

    def __init__(self, servers: str = "") -> None:
        """`servers`: of a real broker; empty: librdkafka's mock cluster."""
        from confluent_kafka import Producer

        given = {"bootstrap.servers": servers} if servers else {"bootstrap.servers": "x:1", "test.mock.num.brokers": 1}
        self._producer = Producer({**given, "log_level": 0})
        brokers = self._producer.list_topics(timeout=20).brokers.values()
        self.servers = servers or ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def send(self, topic: str, op: str, row: dict[str, Any] | None, before: dict[str, Any] | None = None,
             columns: dict[str, dict[str, Any]] | None = None, keys: tuple[str, ...] = ("id",)) -> None:  # fmt: skip
        """One change. A delete is followed by a tombstone, as Debezium does."""
        columns = columns or COLUMNS
        image = row if row is not None else before
        key = _key({name: (image or {})[name] for name in keys}, columns) if keys and image else None
        self.put(topic, key, message(op, row, before, columns))
        if op == "d":
            self.put(topic, key, None)

    def put(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        self._producer.produce(topic, key=key, value=value)
        self._producer.flush(20)


def message(
    op: str, row: dict[str, Any] | None, before: dict[str, Any] | None, columns: dict[str, dict[str, Any]]
) -> bytes:
    """The value of a message: schema and payload."""
    fields = [{**kind, "field": name} for name, kind in columns.items()]
    sides = [{"type": "struct", "fields": fields, "optional": True, "field": side} for side in ("before", "after")]
    source = {"type": "struct", "fields": [{"type": "string", "field": "table"}], "field": "source"}
    schema = {"type": "struct", "fields": [*sides, source, {"type": "string", "optional": False, "field": "op"}]}
    place = {"schema": "public", "table": "t", "lsn": 1, "txId": 2}
    payload = {"before": before, "after": row, "source": place, "op": op, "ts_ms": 1, "transaction": None}
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def _key(values: dict[str, Any], columns: dict[str, dict[str, Any]]) -> bytes:
    fields = [{**columns[name], "field": name} for name in values]
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": values}).encode()


__all__ = ["COLUMNS", "Topics", "message"]
