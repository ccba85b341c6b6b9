"""Events of Debezium become rows of change files, and each file's footer says where it ends."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.reserved_columns import SOURCE_TIME
from lakemirror.publisher import Landing
from lakemirror.publisher.capture import change_handler, debezium
from lakemirror.publisher.capture.capture_position import (
    STREAMING,
    CaptureState,
    FilePosition,
    Position,
    TableState,
    newest_position,
    read_state,
    write_state,
)
from lakemirror.publisher.capture.change_folding import UNSENT, TableShape, fold_events, with_reselected
from lakemirror.publisher.capture.change_handler import ChangeHandler
from lakemirror.publisher.capture.debezium import Group
from lakemirror.publisher.capture.envelope import Ended, EventColumn, TableEvents, read_ended, read_events
from lakemirror.publisher.capture.pending_changes import PendingChanges
from lakemirror.publisher.capture.table_stream import Origin, TableStream

COLUMNS = (
    EventColumn("id", pa.int64(), "INT4"),
    EventColumn("v", pa.string(), "TEXT"),
    EventColumn("f", pa.float64(), "FLOAT8"),
    EventColumn("a", pa.list_(pa.int64()), "_INT4"),
)


@dataclass(frozen=True)
class Column:
    """As the catalog gives it, without a conversion."""

    name: str
    arrow_type: pa.DataType

    def from_event(self, values: pa.Array) -> pa.Array:
        return values.cast(self.arrow_type)


SHAPE = TableShape("public.t", tuple(Column(each.name, each.raw) for each in COLUMNS), ("id",))


def event(op: str, before: Any = None, after: Any = None, at: int = 1, transaction: int = 7, order: int = 1) -> str:
    source = {"schema": "public", "table": "t", "lsn": at, "txId": transaction, "db": "shop"}
    place = {"id": f"{transaction}:{at}", "total_order": order, "data_collection_order": order}
    return json.dumps({"op": op, "before": before, "after": after, "source": source, "transaction": place})


def row(key: int | None, v: str | None = None, f: float | str | None = None, a: Any = None) -> dict[str, Any]:
    return {"id": key, "v": v, "f": f, "a": a}


def events(*lines: str) -> pa.Table:
    (found,) = read_events("\n".join(lines).encode(), COLUMNS)
    return found.rows


def folded(*lines: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = fold_events(events(*lines), SHAPE).rows.drop_columns([SOURCE_TIME]).to_pylist()
    return rows


def test_each_event_is_a_row_with_its_marker_in_order() -> None:
    rows = folded(
        event("c", None, row(1, "ü\n", 1.5, [1, None])),
        event("u", None, row(1, None, 2.0, [])),
        event("d", row(1), None),
    )
    assert rows == [
        {**row(1, "ü\n", 1.5, [1, None]), "__rowMarker__": 4},
        {**row(1, None, 2.0, []), "__rowMarker__": 4},
        {**row(1), "__rowMarker__": 2},
    ]


def test_an_update_of_a_key_is_a_delete_and_an_upsert_in_this_order() -> None:
    rows = folded(event("c", None, row(8)), event("u", row(1, "old"), row(2, "new")), event("c", None, row(1, "again")))
    assert [(each["id"], each["v"], each["__rowMarker__"]) for each in rows] == [
        (8, None, 4),
        (1, None, 2),
        (2, "new", 4),
        (1, "again", 4),
    ]


def test_each_row_has_the_time_of_its_change() -> None:
    lines = [event("c", None, row(8)), event("u", row(1), row(2)), event("d", row(2)), event("c", None, row(9))]
    timed = [line.replace('"db"', f'"ts_ms": {1_000 * number}, "db"') for number, line in enumerate(lines, 1)]
    timed[3] = timed[3].replace("4000", "0")
    assert fold_events(events(*timed), SHAPE).rows[SOURCE_TIME].cast(pa.int64()).to_pylist() == [
        1000, 2000, 2000, 3000, None,
    ]  # fmt: skip


def test_nan_and_values_that_arrow_does_not_read_are_read_singly() -> None:
    (found,) = folded(event("c", None, row(1, "x", "NaN")))
    assert str(found["f"]) == "nan"
    with pytest.raises(LakemirrorError, match="cannot be read") as raised:
        events('{"op": 1}')
    assert raised.value.code == "capture-source-failed"


def test_a_value_that_was_not_sent_is_named_and_never_written() -> None:
    found = fold_events(
        events(
            event("u", None, row(1, UNSENT, 1.0, list(UNSENT.encode()))),
            event("u", None, row(2, "sent", None, [1])),
        ),
        SHAPE,
    )
    assert found.reselect == ()
    assert found.unchanged == (("v", "a"), None)
    assert found.rows["v"].to_pylist() == [None, "sent"]
    assert UNSENT not in str(found.rows.to_pylist())


def test_unsent_values_of_a_changed_key_are_read_again() -> None:
    given = events(event("d", row(1)), event("c", None, row(2, UNSENT)), event("c", None, row(3, UNSENT)))
    found = fold_events(given, SHAPE)
    assert found.reselect == (1, 2)
    rows = with_reselected(found, lambda key: {"v": pa.scalar("read")} if key["id"] == 2 else None, SHAPE)
    assert rows.rows["v"].to_pylist() == [None, "read", None]
    assert rows.unchanged is None


def test_a_table_without_a_key_takes_inserts_alone() -> None:
    shape = TableShape("public.t", SHAPE.columns, ())
    assert fold_events(events(event("c", None, row(1))), shape).rows["__rowMarker__"].to_pylist() == [0]
    with pytest.raises(LakemirrorError, match="only inserts are captured; a delete was made") as raised:
        fold_events(events(event("c", None, row(1)), event("d", row(1))), shape)
    assert raised.value.code == "capture-no-key"


def test_a_transaction_ends_behind_its_commit() -> None:
    lines = b'{"status":"BEGIN","id":"7:90","ts_ms":1}\n{"status":"END","id":"7:100","ts_ms":5}'
    assert read_ended(lines) == [Ended(7, 100, 5)]


def opened(db: Path, start: int = 0, stream_start: int = 0) -> TableStream:
    """The table as a capture finds it when it starts."""
    table = Landing(db).table("t", ["id"], "public")
    state = read_state(table.place) or TableState("postgresql", "lakemirror", STREAMING, start)
    write_state(table.place, state)
    return TableStream(table, SHAPE, state, Origin("postgresql", "lakemirror", stream_start))


def nothing(key: dict[str, Any]) -> None:
    return None


def published(db: Path) -> list[dict[str, Any]]:
    """What the files of the table make of it: the model."""
    import pyarrow.parquet as pq

    rows: dict[int, dict[str, Any]] = {}
    for file in sorted((db / "Files/LandingZone/public.schema/t").glob("0*.parquet")):
        for each in pq.read_table(file).to_pylist():
            marker = each.pop("__rowMarker__", 4)
            rows.pop(each["id"], None)
            if marker == 4:
                rows[each["id"]] = each
    return [rows[key] for key in sorted(rows)]


@pytest.mark.filterwarnings("ignore::lakemirror.publisher.declared_types.TypeWarning")
@pytest.mark.parametrize("seed", range(12))
def test_a_stream_that_begins_again_anywhere_publishes_each_event_once(seed: int, tmp_path: Path) -> None:
    """Transactions with overlapping positions, sent in the order of their commits, in batches of any size, with parts
    of open ones published early; the source is confirmed at any published commit, and sends all after it again."""
    rng = random.Random(seed)
    history: list[tuple[int, list[str]]] = []
    expected: dict[int, str] = {}
    for number in range(rng.randint(1, 12)):
        lines = []
        for order in range(1, rng.randint(1, 6) + 1):
            key, value = rng.randrange(5), f"{number}.{order}"
            at = number * 100 + 10 + order - rng.choice([0, 0, 150])  # a transaction may begin before the last commit
            if rng.random() < 0.05:
                lines.append(event("t", None, None, at, number + 1, order))
                expected.clear()
            elif rng.random() < 0.3:
                lines.append(event("d", row(key), None, at, number + 1, order))
                expected.pop(key, None)
            else:
                lines.append(event("c", None, row(key, value), at, number + 1, order))
                expected[key] = value
        history.append((number * 100 + 100, lines))
    confirmed = 0
    for _ in range(200):
        stream, pending = opened(tmp_path, stream_start=confirmed), PendingChanges()
        ended = _sent(stream, pending, [each for each in history if each[0] > confirmed], rng)
        if ended is None:
            break
        confirmed = rng.choice([confirmed, ended])
    assert {each["id"]: each["v"] for each in published(tmp_path)} == expected
    last = newest_position(opened(tmp_path).table.place).position
    assert last is None or last.final


def _sent(
    stream: TableStream, pending: PendingChanges, history: list[tuple[int, list[str]]], rng: random.Random
) -> int | None:
    """Sends transactions until all are sent, or the capture is killed; the last commit that was published then."""
    done, waiting = 0, False
    for commit, lines in history:
        left = list(lines)
        while left:
            count = rng.randint(1, len(left))
            taken, left = left[:count], left[count:]
            pending.add(read_events("\n".join(taken).encode(), COLUMNS), [])
            if left and not waiting and rng.random() < 0.5:
                for table, parts in pending.open().items():
                    assert len(parts) == 1 or all(part.columns == COLUMNS for part in parts)
                    (part,) = _whole(parts)
                    rows = stream.publish_part(part.rows, lambda: SHAPE, nothing)
                    pending.keep(table, [TableEvents(*table, COLUMNS, rows)] if rows.num_rows else [])
                if rng.random() < 0.2:
                    return done
        number = int(json.loads(lines[0])["source"]["txId"])
        pending.add([], [Ended(number, commit, 0)])
        waiting = rng.random() < 0.4 and commit != history[-1][0]
        if not waiting:
            complete, ended = pending.take_complete()
            for parts in complete.values():
                for part in parts:
                    stream.publish(part.rows, lambda: SHAPE, nothing)
            for each in ended:
                stream.passed(each.position)
            if rng.random() < 0.2:
                return done
            done = commit
    return None


def _whole(parts: list[TableEvents]) -> list[TableEvents]:
    return [TableEvents("public", "t", COLUMNS, pa.concat_tables([each.rows for each in parts]).combine_chunks())]


class Schema:
    """In the place of Java's schema of an envelope."""

    def __init__(self, columns: tuple[EventColumn, ...]) -> None:
        self.columns = columns

    def equals(self, other: Schema) -> bool:
        return self.columns == other.columns


class Disturbed(TableStream):
    """A table whose folder fails now and then, before or after a file was published."""

    rng = random.Random(0)

    def _publish(self, rows: pa.RecordBatchReader, at: FilePosition) -> None:
        if self.rng.random() < 0.2:
            raise LakemirrorError("storage-unavailable", "before")
        super()._publish(rows, at)
        if self.rng.random() < 0.2:
            raise LakemirrorError("storage-unavailable", "behind")

    def again(self) -> TableStream:
        made = super().again()
        made.__class__ = Disturbed
        return made


@pytest.mark.filterwarnings("ignore::lakemirror.publisher.declared_types.TypeWarning")
@pytest.mark.parametrize("seed", range(6))
def test_a_large_transaction_is_published_in_parts_in_order(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its columns change on the way, and the landing zone fails: each event once, the last file final."""
    rng = Disturbed.rng = random.Random(seed)
    monkeypatch.setattr(change_handler, "MOST_PENDING", rng.choice([1, 2000]))
    monkeypatch.setattr(change_handler, "PAUSE", 0)
    monkeypatch.setattr(change_handler, "_WAITS", (0.0,))
    monkeypatch.setattr(debezium, "event_columns", lambda schema: schema.columns)
    stream = opened(tmp_path)
    stream.__class__ = Disturbed
    state = CaptureState(Landing(tmp_path).folder("Files/LandingZone"), {}, print)

    def shape_of(table: Any, columns: tuple[EventColumn, ...]) -> TableShape:
        return TableShape("public.t", SHAPE.columns[: len(columns)], ("id",))

    handler = ChangeHandler({("public", "t"): stream}, shape_of, lambda table: nothing, state, threading.Event())
    expected: dict[int, str] = {}
    for transaction in range(1, 4):
        count = rng.randint(1, 30)
        widened = rng.randint(1, count)
        lines: dict[int, list[str]] = {}
        for order in range(1, count + 1):
            key, value, width = rng.randrange(6), f"{transaction}.{order}", 2 if order < widened else 4
            columns = dict(list(row(key, value).items())[:width])
            lines.setdefault(width, []).append(event("c", None, columns, order, transaction, order))
            expected[key] = value
            if rng.random() < 0.3:
                handler.handle(grouped(lines))
                lines = {}
        handler.handle([*grouped(lines), ended(transaction)])
        assert handler.committed == transaction * 100
    assert {each["id"]: each["v"] for each in published(tmp_path)} == expected
    last = newest_position(stream.table.place).position
    assert last is not None and last.final and last.transaction == 3


def grouped(lines: dict[int, list[str]]) -> list[Group]:
    return [
        Group("t.public.t.Envelope", Schema(COLUMNS[:width]), "\n".join(those).encode())
        for width, those in lines.items()
    ]


def ended(transaction: int) -> Group:
    line = {"status": "END", "id": f"{transaction}:{transaction * 100}", "ts_ms": 1}
    return Group("io.debezium.connector.common.TransactionMetadataValue", Schema(()), json.dumps(line).encode())


@pytest.mark.filterwarnings("ignore::lakemirror.publisher.declared_types.TypeWarning")
def test_two_captures_of_one_table_stop_the_slower(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    rows = events(event("c", None, row(1))).append_column("commit", pa.array([10]))
    first.publish(rows, lambda: SHAPE, nothing)
    with pytest.raises(LakemirrorError, match="another one publishes to this table") as raised:
        second.publish(rows, lambda: SHAPE, nothing)
    assert raised.value.code == "capture-taken"


def test_events_that_a_load_has_may_have_columns_that_are_gone(tmp_path: Path) -> None:
    """They come again where the source was not confirmed while the table was loaded."""
    stream = opened(tmp_path, start=50)
    rows = events(event("c", None, row(1), 6, 3, 1))

    def gone() -> TableShape:
        raise TableError("capture-schema-changed", "the column is gone", table="public.t")

    stream.publish(rows.append_column("commit", pa.array([50])), gone, nothing)
    assert newest_position(stream.table.place).number == 0
    with pytest.raises(TableError, match="gone"):
        stream.publish(rows.append_column("commit", pa.array([51])), gone, nothing)


@pytest.mark.filterwarnings("ignore::lakemirror.publisher.declared_types.TypeWarning")
def test_a_footer_says_where_its_file_ends(tmp_path: Path) -> None:
    stream = opened(tmp_path, start=5)
    rows = events(event("c", None, row(1), 6, 3, 1), event("c", None, row(2), 7, 3, 2))
    stream.publish(rows.append_column("commit", pa.array([10, 10])), lambda: SHAPE, nothing)
    found = newest_position(stream.table.place)
    assert found.number == 1
    assert found.position == FilePosition("postgresql", "lakemirror", Position(10, 1), Position(10, 2), 3, True)


def test_columns_that_change_and_change_back_within_a_batch_keep_the_order_of_events() -> None:
    """A batch comes grouped by columns: all events with the first columns, then all with the second."""
    other = (*COLUMNS, EventColumn("w", pa.string()))
    first = [event("u", None, row(1, "one"), transaction=7, order=1), event("u", None, row(1, "three"), transaction=9)]
    second = [event("u", None, row(1, "two"), transaction=8), event("u", None, row(1, "last"), transaction=9, order=2)]
    pending = PendingChanges()
    for columns, lines in ((COLUMNS, first), (other, second)):
        pending.add([TableEvents("public", "t", columns, events(*lines))], ())
    pending.add((), [Ended(number, number, 0) for number in (7, 8, 9)])
    complete, _ = pending.take_complete()
    parts = complete["public", "t"]
    assert [part.columns for part in parts] == [COLUMNS, other, COLUMNS, other]
    assert [value for part in parts for value in part.rows["after"].combine_chunks().field("v").to_pylist()] == [
        "one", "two", "three", "last",
    ]  # fmt: skip
