"""The life of a capture of topics: its tables are opened where they are, messages are read from there, and published.

topics of the pattern ─▶ next offsets, from the newest files ─▶ messages ─▶ files ─▶ an error? that table alone
"""

from __future__ import annotations

import fnmatch
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.failures import coded
from lakemirror.publisher.capture.topics.avro_messages import AvroMessages
from lakemirror.publisher.capture.topics.schema_registry import SchemaRegistry
from lakemirror.publisher.capture.topics.topic_table import Message, TopicTable, batches
from lakemirror.publisher.landing import Landing

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_MOST = 10_000  # messages of one batch
_GATHER = 0.2  # seconds for which messages are gathered
_LOOK = 30.0  # seconds from one look for new topics and partitions to the next
_PATIENCE = 30.0  # seconds for an answer of a broker
_WAITS = (0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class TopicOptions:
    """What a user says of topics. `input-invalid` for an address that is none.

    `source`: `kafka://host:9092[,host:9092]/pattern`, a shell pattern over names of topics. `name`: of the capture.
    `config`: properties of librdkafka, such as those of SASL, and of the schema registry; never shown. `registry`: the
    address of the schema registry; empty: no message is in Avro.
    """

    source: str
    name: str = "lakemirror"
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    registry: str = ""

    def __post_init__(self) -> None:
        if not self.servers or not self.pattern or "@" in self.servers:
            raise LakemirrorError(
                "input-invalid",
                "the address of topics is kafka://host:9092/pattern",
                hint="A user and a password are properties in a file: --kafka-config FILE.",
            )

    @property
    def servers(self) -> str:
        return urlsplit(self.source).netloc

    @property
    def pattern(self) -> str:
        return self.source.partition("://")[2].partition("/")[2]


class TopicCapture:
    """One capture of topics into a landing zone. `run` may be called once."""

    def __init__(self, landing: Landing, options: TopicOptions, tell: Callable[[str], None] = lambda _: None) -> None:
        """`tell` gets sentences for people."""
        self._landing, self._options, self._tell = landing, options, tell
        registry, self._config = SchemaRegistry.of_properties(options.registry, options.config)
        self._avro = None if registry is None else AvroMessages(registry)
        self._stop = threading.Event()
        self._tables: dict[str, TopicTable] = {}
        self._known: set[tuple[str, int]] = set()
        self._stopped: dict[str, LakemirrorError] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._read: dict[tuple[str, int], int] = {}

    @property
    def stopped(self) -> Mapping[str, LakemirrorError]:
        """The topics whose tables have stopped, and why."""
        return self._stopped

    def run(self, stop: threading.Event | None = None, *, once: bool = False) -> None:
        """Publishes until `stop` is set; `once`: until everything is published that was in the topics at the start.

        `capture-source-failed` if the brokers do not answer, `capture-extra-missing`.
        """
        self._stop = stop or self._stop
        consumer = _consumer(self._options, self._config)
        try:
            self._look(consumer)
            if once:
                self._ends = {each: self._end_of(consumer, *each) for each in self._known}
            looked = time.monotonic()
            while not self._stop.is_set() and not (once and self._is_at_end()):
                if time.monotonic() - looked > _LOOK and not once:
                    self._look(consumer)
                    looked = time.monotonic()
                self._publish(self._messages(consumer))
        finally:
            consumer.close()

    def _look(self, consumer: Consumer) -> None:
        """Opens the tables of topics that are new, and reads every partition from where its table is."""
        import confluent_kafka as kafka

        try:
            found = consumer.list_topics(timeout=_PATIENCE).topics
        except kafka.KafkaException as error:
            raise _failed(f"{self._options.servers} does not answer: {_said(error)}") from error
        for topic in sorted(found):
            if topic not in (*self._tables, *self._stopped) and fnmatch.fnmatchcase(topic, self._options.pattern):
                self._open(topic)
        parts = {(topic, part) for topic in self._tables if topic in found for part in found[topic].partitions}
        new = parts - self._known
        self._known |= new
        if new:
            consumer.incremental_assign([self._at(kafka, *each) for each in sorted(new)])
            self._tell(f"following {len(self._tables)} topics")

    def _open(self, topic: str) -> None:
        try:
            self._tables[topic] = TopicTable(self._landing, topic, self._options.name, self._avro)
        except Exception as failure:
            error = coded(failure, table=topic)
            if error.retry:
                raise error from failure
            self._end(topic, error)

    def _at(self, kafka: Any, topic: str, partition: int) -> Any:
        offset = self._tables[topic].offsets.get(partition)
        return kafka.TopicPartition(topic, partition, kafka.OFFSET_BEGINNING if offset is None else offset)

    def _end_of(self, consumer: Consumer, topic: str, partition: int) -> int:
        import confluent_kafka as kafka

        found = consumer.get_watermark_offsets(kafka.TopicPartition(topic, partition), timeout=_PATIENCE)
        if found is None:
            raise _failed(f"{topic}: its end is not known")
        first, end = found
        if self._tables[topic].offsets.get(partition, first) < first:
            self._lost(topic)
        return int(end) if end > first else 0

    def _is_at_end(self) -> bool:
        """True where everything up to the ends is read; tombstones at an end count as read."""
        return all(
            self._read.get(each, self._tables[each[0]].offsets.get(each[1], 0)) >= end
            for each, end in self._ends.items()
            if each[0] not in self._stopped
        )

    def _messages(self, consumer: Consumer) -> list[tuple[str, Message]]:
        """What is there now, or comes within a moment; an end is noted before what is behind it is published, in the
        same round. `capture-source-failed`."""
        import confluent_kafka as kafka

        found = []
        for each in consumer.consume(_MOST, _GATHER):
            topic, error = str(each.topic()), each.error()
            if error is None:
                found.append((topic, Message(each.partition() or 0, each.offset() or 0, each.key(), each.value())))
            elif error.code() in (kafka.KafkaError.OFFSET_OUT_OF_RANGE, kafka.KafkaError._AUTO_OFFSET_RESET):
                self._lost(topic)
            elif error.fatal():
                raise _failed(f"{topic}: {error.str()}")
            elif error.code() == kafka.KafkaError._PARTITION_EOF:  # behind it may be marks of transactions alone
                self._read[topic, each.partition() or 0] = each.offset() or 0
            else:
                self._tell(f"{topic}: {error.str()}; tried again")
        return found

    def _publish(self, messages: list[tuple[str, Message]]) -> None:
        for topic, some in batches(messages):
            if topic in self._stopped:
                continue
            self._publish_table(topic, some)
            for each in some:
                self._read[topic, each.partition] = each.offset + 1

    def _publish_table(self, topic: str, messages: list[Message]) -> None:
        """Publishes however long the landing zone fails; another error stops the table alone."""
        tries = 0
        while not self._stop.is_set():
            try:
                if tries:
                    self._tables[topic].again()
                self._tables[topic].publish(messages)
                return
            except Exception as failure:
                error = coded(failure, table=topic)
                if not error.retry or error.code == "capture-source-failed":
                    self._end(topic, error)
                    return
            self._tell(f"{topic} waits: {error}")
            self._stop.wait(_WAITS[min(tries, len(_WAITS) - 1)])
            tries += 1

    def _lost(self, topic: str) -> None:
        message = f"{topic}: Kafka has deleted messages that were not read yet"
        self._end(topic, LakemirrorError("capture-position-lost", message, table=topic))

    def _end(self, topic: str, error: LakemirrorError) -> None:
        if topic not in self._stopped:
            self._stopped[topic] = error
            self._tell(f"{topic} stopped: {error}; {error.hint}")


def _consumer(options: TopicOptions, config: Mapping[str, str]) -> Consumer:
    """A consumer of no group: what is read is said by the landing zone alone."""
    try:
        import confluent_kafka as kafka
    except ImportError as error:
        raise SetupError(
            "capture-extra-missing",
            "topics need confluent-kafka, which is not installed",
            hint="Install it: pip install 'lakemirror[kafka]'",
        ) from error
    given = {
        "bootstrap.servers": options.servers,
        "group.id": f"lakemirror-{options.name}",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        **config,
    }
    try:
        return kafka.Consumer(given, logger=_quiet())
    except kafka.KafkaException as error:
        raise LakemirrorError("input-invalid", f"the properties of Kafka: {_said(error)}") from error


def _quiet() -> Any:
    """Its log is off: it would hold addresses and properties."""
    import logging

    logger = logging.getLogger("lakemirror.kafka")
    logger.setLevel(logging.CRITICAL)
    return logger


def _said(error: Any) -> str:
    return str(error.args[0].str()) if error.args else "no reason was given"


def _failed(message: str) -> LakemirrorError:
    return LakemirrorError("capture-source-failed", message)
