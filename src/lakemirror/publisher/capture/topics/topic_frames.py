"""Debezium's topics by Spark Structured Streaming, in the user's own cluster: a function for `foreachBatch`.

spark.readStream.format("kafka") ─▶ key, value, topic, partition, offset ─▶ the same folding, the same footers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.publisher.arrow_input import from_spark
from lakemirror.publisher.capture.topics.avro_messages import AvroMessages
from lakemirror.publisher.capture.topics.schema_registry import SchemaRegistry
from lakemirror.publisher.capture.topics.topic_table import Message, TopicTable, batches
from lakemirror.publisher.landing import Landing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = ("topic", "partition", "offset", "key", "value")


def debezium_to_landing(
    database: str, *, name: str = "lakemirror", registry: SchemaRegistry | None = None, **options: Any
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that publishes the messages of Debezium's topics, each exactly once.

    `database`: a folder, or an address as `Landing` takes it; `options`: its other arguments. `name`: of the capture.
    `registry`: of the schemas of messages in Avro.
    The frames are those of Spark's source `kafka`. The footers of the change files have the offsets, so a repeated
    batch or a new checkpoint publishes nothing twice. A batch is collected to the driver: bound it by
    `maxOffsetsPerTrigger`.

    The function raises the first error of a table after the other tables are published, so that Spark repeats the
    batch: `capture-value`, `capture-taken`, `capture-no-key`, and what publishing raises.
    """
    landing = Landing(database, **options)
    avro = None if registry is None else AvroMessages(registry)

    def publish(frame: DataFrame, _: int) -> None:
        rows = from_spark(frame.select(*COLUMNS)).read_all()
        in_order = rows.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
        failure: LakemirrorError | None = None
        for topic, messages in batches(_messages(in_order)):
            try:
                TopicTable(landing, topic, name, avro).publish(messages)
            except Exception as error:
                failure = failure or coded(error, table=topic)
        if failure is not None:
            raise failure

    return publish


def _messages(rows: pa.Table) -> list[tuple[str, Message]]:
    columns = (rows[name].to_pylist() for name in COLUMNS)
    return [(topic, Message(*more)) for topic, *more in zip(*columns, strict=True)]
