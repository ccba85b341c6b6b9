"""Events of one table as rows of a change file: values in the table's types, markers, names of unchanged columns.

    insert, update ─▶ upsert      delete ─▶ delete      update of a key ─▶ delete of the old one, upsert of the new one

The order stays. A file that is published twice does no harm, because no row is an insert, unless the table has no key.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.errors import TableError
from lakemirror.keys.key_values import combined
from lakemirror.landing_zone.reserved_columns import SOURCE_TIME
from lakemirror.landing_zone.row_markers import DELETE, INSERT, ROW_MARKER, UPSERT
from lakemirror.publisher.capture import envelope
from lakemirror.publisher.capture.unkept_values import kept

UNSENT = f"lakemirror-unsent-{uuid.uuid4().hex}"
"""What Debezium writes for a value that the source did not send: of this process, so that no stored value equals it."""

_UNSENT_TEXTS = (UNSENT, base64.b64encode(UNSENT.encode()).decode(), f'{{"{UNSENT}":"{UNSENT}"}}')


@dataclass(frozen=True)
class TableShape:
    """What is needed of a table: its name for messages, its columns in order, its key; without one, inserts alone.

    `columns`: `SourceColumn`, or what else has a name, and brings values of events into its type by `from_event`.
    """

    name: str
    columns: tuple[Any, ...]
    key: tuple[str, ...]


@dataclass(frozen=True)
class Folded:
    """Rows of a change file, with markers.

    `unchanged`: for each row the columns that keep their values, or None. `reselect`: the places of rows whose unsent
    values must be read from the source again.
    """

    rows: pa.Table
    unchanged: tuple[tuple[str, ...] | None, ...] | None = None
    reselect: tuple[int, ...] = ()


def fold_events(events: pa.Table, shape: TableShape) -> Folded:
    """The rows of events that hold no truncate. `capture-no-key` for an update or delete of a table without a key."""
    ops = events["op"].combine_chunks()
    deleted = pc.equal(ops, envelope.DELETE)
    if not shape.key:
        _only_inserts(ops, shape)
    before, after = (combined(events[side]) for side in ("before", "after"))
    if shape.key and (moved := _moved(ops, before, after, shape)):
        return fold_events(_split(events, moved), shape)
    masks: dict[str, pa.Array] = {}
    arrays: dict[str, pa.Array] = {SOURCE_TIME: events["moment"]}
    sent = set(_names(after))
    for column in shape.columns:
        if column.name not in sent:
            continue
        values = pc.struct_field(after, column.name)
        if column.name in shape.key:
            values = pc.if_else(deleted, pc.struct_field(before, column.name), values)
        elif (mask := _unsent(values)) is not None:
            masks[column.name] = mask
            values = pc.if_else(mask, pa.scalar(None, values.type), values)
        arrays[column.name] = _converted(column, values, before, after, shape)
    rows = pa.table(arrays)
    unchanged: tuple[tuple[str, ...] | None, ...] | None = None
    reselect: tuple[int, ...] = ()
    if masks:
        unchanged = _unchanged(masks, len(ops))
        created = pc.is_in(ops, pa.array([envelope.CREATE, envelope.READ])).to_pylist()
        reselect = tuple(at for at, names in enumerate(unchanged) if names and created[at])
    present = UPSERT if shape.key else INSERT
    markers = pc.if_else(deleted, pa.scalar(DELETE, pa.int32()), pa.scalar(present, pa.int32()))
    return Folded(rows.append_column(ROW_MARKER, markers), unchanged, reselect)


def _converted(
    column: Any, values: pa.Array, before: pa.StructArray, after: pa.StructArray, shape: TableShape
) -> pa.Array:
    """The values as change files have them; `capture-value` with the key of the row whose value cannot be kept."""

    def key_of(place: int) -> list[Any]:
        side = before if after[place].as_py() is None else after
        return [pc.struct_field(side, name)[place].as_py() for name in shape.key]

    return kept(shape.name, column, column.from_event, values, key_of)


def with_reselected(
    folded: Folded, found: Callable[[dict[str, Any]], dict[str, pa.Scalar] | None], shape: TableShape
) -> Folded:
    """The rows, with unsent values of changed keys as the source has them now; NULL where the row is gone there.

    `found` gives the source's row of a key, with values in the columns' types; None where there is none.
    """
    if not folded.reselect or folded.unchanged is None:
        return folded
    rows, unchanged = folded.rows, list(folded.unchanged)
    columns = {name: rows[name].to_pylist() for at in folded.reselect for name in unchanged[at] or ()}
    for at in folded.reselect:
        row = found({name: rows[name][at].as_py() for name in shape.key})
        for name in unchanged[at] or ():
            columns[name][at] = None if row is None else row[name].as_py()
        unchanged[at] = None
    for name, values in columns.items():
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(values, rows[name].type))
    return Folded(rows, tuple(unchanged) if any(unchanged) else None)


def _only_inserts(ops: pa.Array, shape: TableShape) -> None:
    """`capture-no-key` with what must be done."""
    inserts = pc.is_in(ops, pa.array([envelope.CREATE, envelope.READ]))
    if pc.all(inserts, min_count=0).as_py():
        return
    what = "a delete" if ops[inserts.index(False).as_py()].as_py() == envelope.DELETE else "an update"
    raise TableError(
        "capture-no-key",
        f"{shape.name}: it has no key, so only inserts are captured; {what} was made",
        table=shape.name,
    )


def _names(array: pa.StructArray) -> list[str]:
    return [field.name for field in array.type]


def _moved(ops: pa.Array, before: pa.StructArray, after: pa.StructArray, shape: TableShape) -> list[int]:
    """The places of updates whose key changed: Debezium tells them as one event where its key is another one."""
    updated = pc.and_(pc.equal(ops, envelope.UPDATE), pc.is_valid(before))
    if not pc.any(updated, min_count=0).as_py():
        return []
    places: set[int] = set()
    for name in shape.key:
        old, new = pc.struct_field(before, name), pc.struct_field(after, name)
        differs = pc.and_(updated, pc.fill_null(pc.not_equal(old, new), False))
        places.update(pc.indices_nonzero(pc.and_(differs, pc.is_valid(old))).to_pylist())
    return sorted(places)


def _split(events: pa.Table, places: Sequence[int]) -> pa.Table:
    """Each event of these places as a delete of the old row and a creation of the new one."""
    parts, done = [], 0
    for place in places:
        one = events.slice(place, 1)
        parts.append(events.slice(done, place - done))
        for op, side in ((envelope.DELETE, "after"), (envelope.CREATE, "before")):
            without = one.set_column(one.column_names.index(side), side, pa.nulls(1, one[side].type))
            parts.append(without.set_column(one.column_names.index("op"), "op", pa.array([op])))
        done = place + 1
    return pa.concat_tables([*parts, events.slice(done)]).combine_chunks()


def _unsent(values: Any) -> Any:
    """Where values were not sent; None where all were."""
    if pa.types.is_string(values.type):
        mask = pc.is_in(values, pa.array(_UNSENT_TEXTS))
    elif pa.types.is_list(values.type):
        mask = _unsent_lists(values)
    else:
        return None
    return mask if pc.any(mask, min_count=0).as_py() else None


def _unsent_lists(values: Any) -> pa.Array:
    """The placeholder of lists is a list: of the text, of its bytes, also as numbers, or of the UUID of its bytes."""
    digest = bytearray(hashlib.md5(UNSENT.encode(), usedforsecurity=False).digest())
    digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
    texts = (UNSENT, _UNSENT_TEXTS[1], str(uuid.UUID(bytes=bytes(digest))))
    wanted: list[list[Any]] = [*([text] for text in texts), list(UNSENT.encode())]
    lengths = pc.list_value_length(values)
    like = pc.fill_null(pc.is_in(lengths, pa.array({len(each) for each in wanted}, pa.int32())), False)
    found = [False] * len(values)
    for place in pc.indices_nonzero(like).to_pylist():
        found[place] = values[place].as_py() in wanted
    return pa.array(found)


def _unchanged(masks: dict[str, Any], count: int) -> tuple[tuple[str, ...] | None, ...]:
    """For each row the names of its unsent columns; None where there is none."""
    names: list[tuple[str, ...] | None] = [None] * count
    for name, mask in masks.items():
        for place in pc.indices_nonzero(mask).to_pylist():
            names[place] = (*(names[place] or ()), name)
    return tuple(names)
