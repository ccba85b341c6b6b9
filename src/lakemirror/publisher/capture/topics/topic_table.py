"""The messages of one topic as change files of one table, each with the offsets behind it in its footer.

messages ─▶ envelopes with one schema after another ─▶ folded ─▶ one file; a truncate begins the folder again
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.publisher.capture import envelope
from lakemirror.publisher.capture.capture_position import FOOTER
from lakemirror.publisher.capture.captured_files import CapturedFiles
from lakemirror.publisher.capture.change_folding import UNSENT, TableShape, fold_events
from lakemirror.publisher.capture.envelope import read_events
from lakemirror.publisher.capture.topics.avro_messages import MAGIC, AvroMessages, BrokenMessage
from lakemirror.publisher.capture.topics.connect_values import TopicColumn, columns_of, key_columns
from lakemirror.publisher.landing import Landing
from lakemirror.publisher.landing_table import LandingTable

SOURCE = "kafka"
_TAKEN = "another capture or publisher publishes to this table"
_SCHEMA, _PAYLOAD = b'{"schema":', b',"payload":'
_UNAVAILABLE = "__debezium_unavailable_value"
_MARKED = {
    f'"{_UNAVAILABLE}"': f'"{UNSENT}"',
    '"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="': json.dumps(UNSENT),
    json.dumps(f'{{"{_UNAVAILABLE}":"{_UNAVAILABLE}"}}'): json.dumps(UNSENT),
}
"""Debezium's texts for a value that the database did not send, as JSON, and ours for them."""


@dataclass(frozen=True)
class Message:
    """One message of a topic: key and value as bytes; None where it has none."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class TopicTable:
    """One table that is published from one topic."""

    def __init__(self, landing: Landing, topic: str, name: str, avro: AvroMessages | None = None) -> None:
        """Reads how far the table is. `name`: of the capture. `avro` reads messages that are Avro; None: none is.

        `capture-taken` if another one publishes to the folder; `input-invalid` if the topic's name cannot be that of a
        table."""
        parts = topic.split(".")
        self.topic, self.name = topic, name
        table = landing.table(parts[-1], schema=parts[-2] if len(parts) > 2 else None)
        self._landing, self._avro = landing, avro
        self._columns: dict[bytes, tuple[TopicColumn, ...]] = {}
        self._key: tuple[str, ...] | None = None
        self._files, self.offsets = self._read(table)

    @property
    def _table(self) -> LandingTable:
        return self._files.table

    def publish(self, messages: Sequence[Message]) -> int:
        """Publishes what is new of these messages, in their order; returns the number of files. An error of a message
        is raised when those before it are published."""
        new, failure = [], None
        for each in messages:
            if each.offset < self.offsets.get(each.partition, 0):
                continue
            try:
                split = self._split(each)
            except LakemirrorError as error:
                failure = error
                break
            if split is not None:
                new.append((split[0], replace(each, value=split[1])))
        files = 0
        for schema, run in groupby(new, lambda pair: pair[0]):
            files += self._publish_run(self._columns[schema], [each for _, each in run])
        if failure is not None:
            raise failure
        return files

    def again(self) -> None:
        """Reads how far the table is: what was being published may be there."""
        self._files, self.offsets = self._read(self._table)

    def _split(self, message: Message) -> tuple[bytes, bytes] | None:
        """The schema and the envelope of a message, as JSON; None for a tombstone: the delete before it counts.

        Each schema is parsed once: it is much longer than the rows, and mostly the same.
        """
        value = message.value
        if value is None:
            return None
        if value.startswith(MAGIC):
            return self._split_avro(message, value)
        begin, mark, rest = value.partition(_PAYLOAD)
        schema, envelope_ = begin.removeprefix(_SCHEMA), rest[:-1]
        if schema in self._columns and rest.endswith(b"}"):
            return schema, envelope_
        try:
            content = json.loads(value)
            known, payload = content["schema"], content["payload"]
            fast = bool(mark) and begin.startswith(_SCHEMA) and json.loads(schema) == known
        except (ValueError, TypeError, KeyError) as error:
            raise self._failed(
                message,
                "it is no JSON with schema and payload",
                "Set value.converter.schemas.enable=true for Debezium's JSON converter: without it types are guesses.",
            ) from error
        if payload is None:
            return None
        if not fast or b"\n" in value:
            schema, envelope_ = json.dumps(known).encode(), json.dumps(payload).encode()
        if schema not in self._columns:
            self._columns[schema] = columns_of(known, str(self._table.name))
        return schema, envelope_

    def _split_avro(self, message: Message, value: bytes) -> tuple[bytes, bytes]:
        """The same of a message in Avro. `capture-registry-unavailable`."""
        try:
            known, schema, payload = self._reader(message).split(value)
        except BrokenMessage as error:
            raise self._broken(message, error) from error
        if schema not in self._columns:
            self._columns[schema] = columns_of(known, str(self._table.name))
        return schema, payload

    def _reader(self, message: Message) -> AvroMessages:
        if self._avro is None:
            raise self._failed(message, "it is in Avro", "Name the schema registry: --registry URL.")
        return self._avro

    def _publish_run(self, columns: tuple[TopicColumn, ...], messages: list[Message]) -> int:
        """Publishes messages of one schema; returns the number of files. An error names the message's place."""
        try:
            return self._publish_together(columns, messages)
        except TableError as error:
            if error.code != "capture-value":
                raise
            if len(messages) == 1:
                has_place = error.message.startswith(f"{self.topic}, ")
                raise (error if has_place else self._failed(messages[0], error.message, error.hint)) from None
        new = [each for each in messages if each.offset >= self.offsets.get(each.partition, 0)]
        middle = len(new) // 2
        return sum(self._publish_run(columns, part) for part in (new[:middle], new[middle:]) if part)

    def _publish_together(self, columns: tuple[TopicColumn, ...], messages: list[Message]) -> int:
        if self._key is None:
            self._key = self._keys(messages[0])
        events = self._events(messages, columns)
        first = {each.partition: each.offset for each in reversed(messages)}
        files, begun = 0, 0
        ops = events["op"].combine_chunks()
        for place in pc.indices_nonzero(pc.equal(ops, envelope.TRUNCATE)).to_pylist():
            # only what is behind the last truncate counts; the folder begins again with a file without rows
            self._publish(self._files.begin_again(columns), self._footer(first, messages[: place + 1]))
            files, begun = files + 1, place + 1
        rest = events.slice(begun)
        if rest.num_rows:
            shape = TableShape(str(self._table.name), columns, self._key)
            folded = fold_events(rest, shape)
            if folded.reselect:
                raise self._failed(
                    messages[begun],
                    "a row has a new key, and values that the database did not send",
                    "Set REPLICA IDENTITY FULL for the table, or Debezium's ReselectColumnsPostProcessor.",
                )
            self._publish(self._files.rows(folded, shape), self._footer(first, messages))
            files += 1
        return files

    def _events(self, messages: list[Message], columns: tuple[TopicColumn, ...]) -> pa.Table:
        """The envelopes, one row each. `capture-source-failed`, TableError `capture-value`."""
        lines = []
        for each in messages:
            assert each.value is not None
            lines.append(each.value)
        text = b"\n".join(lines)
        for old, new in _MARKED.items():
            text = text.replace(old.encode(), new.encode())
        found = read_events(text, [column.event for column in columns])
        if len(found) != 1:
            raise self._failed(messages[0], "the topic holds several tables", "Give each table a topic of its own.")
        return found[0].rows

    def _keys(self, message: Message) -> tuple[str, ...]:
        """The key columns: as the folder declares them, or of the first message's key, to be declared."""
        if self._table.keys:
            return tuple(self._table.keys)
        try:
            is_avro = message.key is not None and message.key.startswith(MAGIC)
            keys = self._reader(message).fields(message.key or b"") if is_avro else key_columns(message.key)
        except BrokenMessage as error:
            raise self._broken(message, error) from error
        except (ValueError, KeyError, TypeError) as error:
            raise self._failed(
                message, "its key is no JSON", "Use the same converter for keys as for values."
            ) from error
        named = self._table.name
        self._files.table = self._landing.table(named.table, keys=keys or None, schema=named.schema or None)
        return keys

    def _footer(self, first: Mapping[int, int], messages: Sequence[Message]) -> dict[str, str]:
        """The footer of a file that ends behind these messages: the next offset of each partition."""
        last = dict(self.offsets)
        for each in messages:
            last[each.partition] = each.offset + 1
        content = {
            "source": SOURCE,
            "name": self.name,
            "topic": self.topic,
            "first": first,
            "last": last,
            "final": True,
        }
        return {FOOTER: json.dumps(content)}

    def _publish(self, rows: pa.RecordBatchReader, footer: Mapping[str, str]) -> None:
        self._files.publish(rows, footer, _TAKEN)
        self.offsets = {int(part): offset for part, offset in json.loads(footer[FOOTER])["last"].items()}

    def _read(self, table: LandingTable) -> tuple[CapturedFiles, dict[int, int]]:
        """The table's files, and the next offset of each partition."""
        with table.storage():
            files = CapturedFiles(table)
        if files.footer == {}:
            return files, {}
        said = files.footer or {}
        if (said.get("source"), said.get("name"), said.get("topic")) != (SOURCE, self.name, self.topic):
            raise files.taken(_TAKEN)
        return files, {int(part): int(offset) for part, offset in said["last"].items()}

    def _broken(self, message: Message, error: BrokenMessage) -> TableError:
        hint = "Use Confluent's Avro converter, and the registry that it writes to: --registry URL."
        return self._failed(message, str(error), hint)

    def _failed(self, message: Message, why: str, hint: str | None) -> TableError:
        where = f"{self.topic}, partition {message.partition}, offset {message.offset}"
        return TableError("capture-value", f"{where}: {why}", table=str(self._table.name), hint=hint)


def batches(messages: Sequence[tuple[str, Message]]) -> Iterator[tuple[str, list[Message]]]:
    """The messages of each topic, in their order."""
    found: dict[str, list[Message]] = {}
    for topic, message in messages:
        found.setdefault(topic, []).append(message)
    yield from found.items()
