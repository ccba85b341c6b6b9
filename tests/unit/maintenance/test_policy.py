"""Which files are written anew: pure decisions about `add` actions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakemirror.maintenance.policy import AT_LEAST, at_rest, file_sizes, in_turn, optimize_helps, pieces

MIB = 1 << 20


def add(size: float, deleted: float = 0.0, path: str = "part.parquet", rows: int = 1000) -> dict[str, Any]:
    vector = {"deletionVector": {"cardinality": int(deleted * rows)}} if deleted else {}
    return {"path": path, "size": int(size * MIB), "stats": json.dumps({"numRecords": rows}), **vector}


def sizes(adds: Any) -> list[float]:
    return sorted(each["size"] / MIB for each in adds)


def test_in_turn_small_files_where_they_are_many_and_worn_ones() -> None:
    assert in_turn([add(1)] * (AT_LEAST - 1)) == []
    assert len(in_turn([add(1)] * AT_LEAST)) == AT_LEAST
    assert sizes(in_turn([add(20, 0.1), add(20, 0.09), add(33, 0.9), add(1, 0.9)])) == [20]
    assert sizes(in_turn([add(8)] * 100)) == [8] * 8, "64 MiB at once"


def test_at_rest_small_files_and_all_vectors() -> None:
    assert sizes(at_rest([add(1), add(2), add(20), add(30, 0.001)], all_vectors=True)) == [1, 2, 30]
    assert sizes(at_rest([add(1), add(20, 0.001)], all_vectors=True)) == [20]
    assert sizes(at_rest([add(1, 0.001), add(20)], all_vectors=True)) == [1]
    assert sizes(at_rest([add(30, 0.001)] * 8, all_vectors=True)) == [30, 30], "a piece of them"
    assert sizes(at_rest([add(1), add(2), add(20)], all_vectors=True)) == [1, 2]


def test_where_it_was_done_lately_only_if_many_rows_are_deleted() -> None:
    assert sizes(at_rest([add(1), add(2), add(20, 0.06), add(21, 0.03)], all_vectors=False)) == [1, 2, 20]
    assert sizes(at_rest([add(1), add(2), add(20, 0.07), add(21, 0.03)], all_vectors=False)) == [1, 2, 20, 21]
    assert at_rest([add(1), add(20, 0.05), add(21, 0.04)], all_vectors=False) == []


@pytest.mark.parametrize(
    "adds",
    [[add(33, 0.001), add(20, 0.001)], [add(30, 0.001)] * 9, [add(7, 0.001)] * 5 + [add(32, 0.001)] * 8,
     [add(30, 0.001, path="a%20b"), add(20, 0.001)], [add(2, 0.001), add(1, 0.001), add(1100)],
     [{**add(3, 0.1), "stats": "{}"}, add(20, 0.001)]],
    ids=["a large one", "too many", "too much together", "a name to decode", "a large table", "no statistics"],
)  # fmt: skip
def test_where_not_all_can_go_only_what_is_worth_it_by_itself(adds: Any) -> None:
    assert [a for a in at_rest(adds, all_vectors=True) if a["size"] > 8 * MIB] == in_turn(adds) == []
    assert 20 in sizes(at_rest([*adds, add(20, 0.5)], all_vectors=True))


def test_what_is_left_is_never_spark_s_for_small_tables() -> None:
    adds = [add(1), add(7.9), add(20, 0.06), add(16, 0.2), add(30, 0.001)]
    left = [each for each in adds if each not in at_rest(adds, all_vectors=False)]
    assert not optimize_helps([*left, add(40)]) and not optimize_helps([*left, add(5)])


def test_a_piece_is_not_what_optimize_would_write_again() -> None:
    for rest in ([], [add(100)] * 8):
        chosen = [add(29.5, 0.001)] * 2
        adds = [*chosen, *rest]
        living = sum(each["size"] for each in chosen)
        count = pieces(adds, living)
        made = [add(living / count / MIB * 0.8)] * count
        assert not optimize_helps([*made, *rest]), "also where it becomes smaller by a fifth"
    assert pieces([add(1)] * 16, 16 * MIB) == 1
    assert pieces([add(16)] * 2, 32 * MIB) == 2


def test_spark_is_asked_only_where_it_is_worth_it() -> None:
    assert file_sizes([add(1)]) == {"maxFileSize": 16 * MIB, "minFileSize": 8 * MIB}
    assert file_sizes([add(8000)] * 100) == {"maxFileSize": 1024 * MIB, "minFileSize": 512 * MIB}
    assert not optimize_helps([]) and not optimize_helps([add(1), add(20, 0.05)])
    assert optimize_helps([add(1), add(2)]) and optimize_helps([add(20, 0.06)])
    assert optimize_helps([{"path": "x", "size": 20 * MIB, "deletionVector": {"cardinality": 1}}]), "who knows"
