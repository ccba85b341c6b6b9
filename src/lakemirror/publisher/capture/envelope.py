"""Debezium's envelopes as Arrow tables: what changed in one table, in order, and which transactions are complete.

    JSON lines of one schema ─▶ parsed once by Arrow, in types that the schema names ─▶ the changes of each table

It knows nothing of a certain database: values are as Debezium writes them in JSON, until a column's own conversion.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from lakemirror.errors import LakemirrorError

CREATE, READ, UPDATE, DELETE, TRUNCATE = "c", "r", "u", "d", "t"
SOURCE = pa.struct(
    [
        ("schema", pa.string()),
        ("table", pa.string()),
        ("lsn", pa.int64()),
        ("txId", pa.int64()),
        ("commit_lsn", pa.string()),
        ("ts_ms", pa.int64()),
    ]
)
Places = Callable[[pa.StructArray], tuple[pa.Array, pa.Array]]
"""The position and the transaction of each event, from what it says of its source."""
TRANSACTION = pa.struct([("data_collection_order", pa.int64())])


@dataclass(frozen=True)
class EventColumn:
    """A column of an event: its name, the Arrow type of its JSON values, the source's own name of its type, and the
    numbers in brackets behind that."""

    name: str
    raw: pa.DataType
    source_type: str = ""
    size: str = ""


@dataclass(frozen=True)
class TableEvents:
    """Events of one table with one set of columns, in order.

    `rows` has op, before, after (structs), lsn, transaction (its number), order (the place among this table's events
    of the transaction, from 1), moment (when the source made the change, in milliseconds).
    """

    schema: str
    table: str
    columns: tuple[EventColumn, ...]
    rows: pa.Table


@dataclass(frozen=True)
class Ended:
    """A complete transaction: its number or name, the position behind its commit, when it was committed (Unix ms)."""

    transaction: int | str
    position: int
    milliseconds: int


def read_ended(lines: bytes) -> list[Ended]:
    """The transactions that end here, in order of their commits."""
    ended = []
    for line in lines.splitlines():
        event = json.loads(line)
        if event["status"] == "END":
            number, _, position = event["id"].partition(":")
            ended.append(Ended(int(number), int(position), event["ts_ms"]))
    return ended


def postgres_places(source: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    return source.field("lsn"), source.field("txId")


def read_events(lines: bytes, columns: Sequence[EventColumn], places: Places = postgres_places) -> list[TableEvents]:
    """The events of each table, in order. `capture-source-failed` for what is no envelope of these columns."""
    parsed = _parsed(lines, columns)
    source = _struct(parsed["source"])
    positions, transactions = places(source)
    rows = pa.table(
        {
            "op": parsed["op"],
            "before": parsed["before"],
            "after": parsed["after"],
            "lsn": positions,
            "transaction": transactions,
            "order": _struct(parsed["transaction"]).field("data_collection_order"),
            "moment": moments(source.field("ts_ms")),
        }
    )
    names = source.field("schema"), source.field("table")
    first = (names[0][0].as_py(), names[1][0].as_py())
    of_first = pc.and_(pc.equal(names[0], first[0]), pc.equal(names[1], first[1]))
    if pc.all(of_first).as_py():
        return [TableEvents(*first, tuple(columns), rows)]
    pairs = list(zip(names[0].to_pylist(), names[1].to_pylist(), strict=True))
    found = []
    for schema, table in dict.fromkeys(pairs):
        of_table = pc.and_(pc.equal(names[0], schema), pc.equal(names[1], table))
        found.append(TableEvents(schema, table, tuple(columns), rows.filter(of_table)))
    return found


def moments(milliseconds: pa.Array) -> pa.Array:
    """Times of the source, from milliseconds since the epoch; NULL where it tells none, as 0."""
    return pc.if_else(pc.equal(milliseconds, 0), None, milliseconds).cast(pa.timestamp("ms", "UTC"))


def _parsed(lines: bytes, columns: Sequence[EventColumn]) -> pa.Table:
    row = pa.struct([pa.field(column.name, column.raw) for column in columns])
    schema = pa.schema(
        [("op", pa.string()), ("before", row), ("after", row), ("source", SOURCE), ("transaction", TRANSACTION)]
    )
    try:
        return pj.read_json(
            io.BytesIO(lines),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        ).select(schema.names)
    except pa.ArrowInvalid:
        return _parsed_singly(lines, schema)


def _parsed_singly(lines: bytes, schema: pa.Schema) -> pa.Table:
    """The same for values that Arrow does not read, such as NaN, which JSON has as text."""
    try:
        events = [json.loads(line) for line in lines.splitlines()]
        return pa.Table.from_pylist([_in_schema(event, pa.struct(list(schema))) for event in events], schema)
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise LakemirrorError("capture-source-failed", f"an event of the source cannot be read: {error}") from error


def _in_schema(value: Any, kind: pa.DataType) -> Any:
    """A value of JSON as Python has it for an Arrow type: `NaN` and infinities as numbers."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _in_schema(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_in_schema(each, kind.value_type) for each in value]
    if pa.types.is_floating(kind):
        number = float(value)
        return number if math.isfinite(number) or isinstance(value, str) else value
    return value


def _struct(column: pa.ChunkedArray) -> pa.StructArray:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
