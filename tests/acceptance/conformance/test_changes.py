"""Conformance: row markers, keys, order (cases 1 to 12, 18, 25 to 29, 40, 41)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, folder, put, put_broken
from world import World, marked, step


@step(1)
def initial(db: Path) -> None:
    declare(db, "c01", ["id"])
    put(db, "c01", 1, {"id": [1, 2, 2], "v": ["a", "b", "c"]})


def test_01_an_initial_file_without_markers_is_inserted_as_it_is(world: World) -> None:
    assert world.rows("c01", after=1) == {(1, "a"): 1, (2, "b"): 1, (2, "c"): 1}


@step(1)
def one_file(db: Path) -> None:
    declare(db, "c02", ["id"])
    ids, values = [1, 1, 1, 2, 2, 3, 3, 4], list("abcdefgh")
    put(db, "c02", 1, {"id": ids, "v": values, **marked(0, 1, 2, 0, 4, 4, 2, 1)})


def test_02_all_markers_in_one_file_count_in_the_order_of_its_rows(world: World) -> None:
    assert world.rows("c02", after=1) == {(2, "e"): 1, (4, "h"): 1}


@step(1)
def unknown_keys(db: Path) -> None:
    for table, marker in (("c03", 1), ("c04", 2)):
        declare(db, table, ["id"])
        put(db, table, 1, {"id": [1], "v": ["a"]})
        put(db, table, 2, {"id": [9], "v": ["z"], **marked(marker)})


def test_03_an_update_of_an_unknown_key_inserts(world: World) -> None:
    assert world.rows("c03", after=1) == {(1, "a"): 1, (9, "z"): 1}


def test_04_a_delete_of_an_unknown_key_does_nothing(world: World) -> None:
    assert world.rows("c04", after=1) == {(1, "a"): 1}
    assert world.error("c04") == ""


@step(1)
def deletes(db: Path) -> None:
    declare(db, "c05", ["id"])
    put(db, "c05", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    put(db, "c05", 2, {"id": [1], **marked(2)})
    put(db, "c05", 3, {"id": [2], "v": pa.array([None], pa.string()), **marked(2)})
    declare(db, "c06", ["id"])
    put(db, "c06", 1, {"id": [1], "v": ["a"]})
    put(db, "c06", 2, {"id": [1, 7], "v": [None, "a"], **marked(2, 0)})


def test_05_a_delete_needs_the_key_columns_alone(world: World) -> None:
    assert world.rows("c05", after=1) == {(3, "c"): 1}


def test_06_a_changed_key_is_a_delete_and_an_insert(world: World) -> None:
    assert world.rows("c06", after=1) == {(7, "a"): 1}


@step(1)
def gap(db: Path) -> None:
    declare(db, "c07", ["id"])
    for number in (1, 3, 4):
        put(db, "c07", number, {"id": [1], "v": [number], **marked(4)})


@step(2)
def late_file(db: Path) -> None:
    put(db, "c07", 2, {"id": [1], "v": [2], **marked(4)})


def test_07_a_gap_holds_what_is_behind_it_until_the_late_file_comes(world: World) -> None:
    """The vendor leaves the publisher to find out; the status says what is awaited and since when."""
    assert world.rows("c07", after=1) == {(1, 1): 1}
    assert world.waits_for("c07", after=1) == "number 2"
    assert world.status[0]["c07"]["pendingFiles"] == 2
    assert world.error("c07", after=1) == ""
    assert world.rows("c07", after=2) == {(1, 4): 1}
    assert world.waits_for("c07", after=2) == ""


@step(1)
def processed(db: Path) -> None:
    declare(db, "c08", ["id"])
    for number in (1, 2):
        put(db, "c08", number, {"id": [number]})


@step(2)
def again(db: Path) -> None:
    put(db, "c08", 1, {"id": [77]})


def test_08_a_number_that_was_applied_and_comes_again_is_reported_and_not_applied(world: World) -> None:
    assert world.rows("c08") == {(1,): 1, (2,): 1}
    assert world.error("c08", after=2) == ""
    assert "already-applied" in world.warnings("c08", after=2)


@step(1)
def unfinished(db: Path) -> None:
    for table, data in (("c09", b""), ("c10", b"PAR1 half of it")):
        declare(db, table, ["id"])
        put(db, table, 1, {"id": [1]})
        put_broken(db, table, 2, data, age=-600)  # young also on a slow machine
        put(db, table, 3, {"id": [3]})


@step(2)
def finished(db: Path) -> None:
    put(db, "c09", 2, {"id": [2]})
    put(db, "c10", 2, {"id": [2]})


@pytest.mark.parametrize("table", ["c09", "c10"])
def test_09_10_a_file_that_is_being_written_is_never_seen(world: World, table: str) -> None:
    """9: of zero bytes and then replaced by a valid one; 10: half written."""
    assert world.rows(table, after=1) == {(1,): 1}
    assert world.waits_for(table, after=1).endswith("to be complete")
    assert world.error(table, after=1) == ""
    assert world.rows(table, after=2) == {(1,): 1, (2,): 1, (3,): 1}


@step(1)
def places(db: Path) -> None:
    columns = {"id": pa.array([1, 2]), "v": pa.array(["a", "b"])}
    marker = pa.array([4, 2], pa.int32())
    for place in (0, 1, 2):
        declare(db, f"c11_{place}", ["id"])
        put(db, f"c11_{place}", 1, {"id": [2], "v": ["old"]})
        rows = pa.table(columns).add_column(place, MARKER, marker)
        put(db, f"c11_{place}", 2, rows)
    for kind in (pa.int8(), pa.int64(), pa.string(), pa.uint16()):
        declare(db, f"c12_{kind}", ["id"])
        values = [str(v) for v in (4, 4, 2)] if kind == pa.string() else [4, 4, 2]
        put(db, f"c12_{kind}", 1, {"id": [1, 2, 2], MARKER: pa.array(values, kind)})


@pytest.mark.parametrize("place", [0, 1, 2])
def test_11_the_marker_may_stand_first_in_the_middle_and_last(world: World, place: int) -> None:
    """The vendor's older pages want it first, today's last."""
    assert world.rows(f"c11_{place}", after=1) == {(1, "a"): 1}
    assert MARKER not in world.types(f"c11_{place}")


@pytest.mark.parametrize("kind", ["int8", "int64", "string", "uint16"])
def test_12_the_marker_may_be_any_integer_or_a_string(world: World, kind: str) -> None:
    assert world.rows(f"c12_{kind}", after=1) == {(1,): 1}


@step(1)
def first_keys(db: Path) -> None:
    declare(db, "c18", ["id"])
    put(db, "c18", 1, {"id": [1], "other": [1]})
    declare(db, "c18_late", [])
    put(db, "c18_late", 1, {"id": [1, 1]})


@step(2)
def other_keys(db: Path) -> None:
    declare(db, "c18", ["id", "other"])
    put(db, "c18", 2, {"id": [2], "other": [2]})
    declare(db, "c18_late", ["id"])
    put(db, "c18_late", 2, {"id": [1], **marked(4)})


@step(3)
def first_keys_again(db: Path) -> None:
    declare(db, "c18", ["ID"])


def test_18_key_columns_once_declared_do_not_change(world: World) -> None:
    """Declared for the first time they may be at any time; the list counts as a set, in any case."""
    assert world.error("c18", after=2) == "key-columns-changed"
    assert "[id]" in world.status[1]["c18"]["errorMessage"]
    assert world.rows("c18", after=2) == {(1, 1): 1}
    assert world.error("c18", after=3) == ""
    assert world.rows("c18", after=3) == {(1, 1): 1, (2, 2): 1}
    assert world.rows("c18_late", after=2) == {(1,): 1}


@step(1)
def defaults(db: Path) -> None:
    for upsert in (False, True):
        for marker in (False, True):
            table = f"c25_{upsert}_{marker}"
            declare(db, table, ["id"], isUpsertDefaultRowMarker=upsert)
            put(db, table, 1, {"id": [1], "v": ["a"]})
            rows = {"id": [1, 1], "v": ["b", "c"]}
            put(db, table, 2, {**rows, **(marked(None, 0) if marker else {})})


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("c25_False_False", {(1, "a"): 1, (1, "b"): 1, (1, "c"): 1}),
        ("c25_False_True", {(1, "a"): 1, (1, "b"): 1, (1, "c"): 1}),
        ("c25_True_False", {(1, "c"): 1}),
        ("c25_True_True", {(1, "b"): 1, (1, "c"): 1}),
    ],
)
def test_25_what_a_row_without_marker_means(world: World, table: str, rows: dict[tuple[int, str], int]) -> None:
    assert world.rows(table, after=1) == rows


@step(1)
def keys(db: Path) -> None:
    declare(db, "c26", ["id"])
    put(db, "c26", 1, {"id": [1, 1, 1, 2], "v": ["a", "b", "c", "d"]})
    put(db, "c26", 2, {"id": [1], "v": ["new"], **marked(4)})
    declare(db, "c27", ["id"])
    put(db, "c27", 1, {"id": pa.array([None, 1], pa.int64()), "v": ["a", "b"]})
    put(db, "c27", 2, {"id": pa.array([None], pa.int64()), "v": ["c"], **marked(1)})
    declare(db, "c28", ["a", "b"])
    put(db, "c28", 1, {"a": [1, 1, None], "b": ["x", "y", None], "v": [1, 2, 3]})
    put(db, "c28", 2, {"a": [1, None, 1], "b": ["x", None, None], "v": [9, 8, 7], **marked(4, 4, 2)})
    put(db, "c29", 1, {"v": [1, 1]})
    put(db, "c29", 2, {"v": [1], **marked(0)})
    put(db, "c29_update", 1, {"v": [1]})
    put(db, "c29_update", 2, {"v": [1], **marked(1)})


def test_26_an_upsert_leaves_one_row_of_its_key(world: World) -> None:
    assert world.rows("c26", after=1) == {(1, "new"): 1, (2, "d"): 1}


def test_27_null_is_a_key_like_any_other(world: World) -> None:
    """Not decided by the vendor."""
    assert world.rows("c27", after=1) == {(None, "c"): 1, (1, "b"): 1}


def test_28_composite_keys(world: World) -> None:
    assert world.rows("c28", after=1) == {(1, "x", 9): 1, (1, "y", 2): 1, (None, None, 8): 1}


def test_29_a_table_without_keys_takes_inserts_alone(world: World) -> None:
    assert world.rows("c29", after=1) == {(1,): 3}
    assert world.error("c29_update", after=1) == "key-columns-missing"
    assert world.rows("c29_update") == {(1,): 1}


@step(1)
def real_publishers(db: Path) -> None:
    declare(db, "c40", ["_id"])
    put(db, "c40", 1, {"_id": ["a", "b"], "doc": ["1", "2"], **marked(4, 4, kind=pa.int64())})
    put(db, "c40", 2, {"_id": ["b", "c"], "doc": ["3", "4"], **marked(4, 0, kind=pa.int64())})
    put(db, "c40", 3, {"_id": ["a", "d"], "doc": [None, "5"], **marked(2, 0, kind=pa.int64())})
    declare(db, "c41", ["id"])
    put(db, "c41", 1, {**marked("0", "0", kind=pa.string()), "id": [1, 2]}, use_deprecated_int96_timestamps=True)
    put(db, "c41", 2, {**marked("2", "4", kind=pa.string()), "id": [1, 3]})


def test_40_inserts_as_upserts_while_the_first_copy_runs(world: World) -> None:
    """As the MongoDB connector writes them: 4 during its initial sync, 0 afterwards."""
    assert world.rows("c40", after=1) == {("b", "3"): 1, ("c", "4"): 1, ("d", "5"): 1}


def test_41_a_marker_in_front_and_as_text(world: World) -> None:
    """As the BigQuery connector writes it."""
    assert world.rows("c41", after=1) == {(2,): 1, (3,): 1}


@step(1)
def declared_once(db: Path) -> None:
    declare(db, "c42", ["id"])
    put(db, "c42", 1, {"id": [1]})


@step(2)
def declared_again(db: Path) -> None:
    text = json.dumps({"keyColumns": ["id"]}, indent=4)
    (folder(db, "c42") / "_metadata.json").write_text(text)
    time.sleep(0.01)
    put(db, "c42", 2, {"id": [2]})


def test_42_metadata_written_again_with_the_same_meaning_changes_nothing(world: World) -> None:
    assert world.rows("c42") == {(1,): 1, (2,): 1}
    assert world.status[0]["c42"]["id"] == world.status[1]["c42"]["id"]
