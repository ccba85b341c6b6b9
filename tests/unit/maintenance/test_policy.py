"""Which files are written anew: pure decisions about `add` actions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakemirror.delta.statistics import record_count
from lakemirror.maintenance.policy import (
    AT_LEAST,
    file_size,
    in_between,
    in_large_table,
    in_short_turn,
    in_turn,
    most_small_files,
    pieces,
    when_idle,
)

MIB = 1 << 20


def add(size: float, deleted: float = 0.0, path: str = "part.parquet", rows: int = 1000) -> dict[str, Any]:
    vector = {"deletionVector": {"cardinality": int(deleted * rows)}} if deleted else {}
    return {"path": path, "size": int(size * MIB), "stats": json.dumps({"numRecords": rows}), **vector}


def alike(size: float, count: int) -> list[dict[str, Any]]:
    """Files of one size: each is an action of its own, as in a log."""
    return [add(size) for _ in range(count)]


def sizes(adds: Any) -> list[float]:
    return sorted(each["size"] / MIB for each in adds)


def test_in_turn_small_files_where_they_are_many_and_worn_ones() -> None:
    assert in_turn([add(1)] * (AT_LEAST - 1)) == []
    assert len(in_turn([add(1)] * AT_LEAST)) == AT_LEAST
    assert sizes(in_turn([add(20, 0.1), add(20, 0.09), add(33, 0.9), add(1, 0.9)])) == [20]
    assert sizes(in_turn([add(8)] * 100)) == [8] * 8, "64 MiB at once"
    assert len(in_turn([add(1, rows=300_000)] * 40)) == 3, "a million rows at once, however few bytes they take"
    assert in_turn([add(1, rows=3_000_000)] * 40) == [], "one of them alone would become the same file"


def test_in_a_short_turn_no_more_is_merged_than_a_small_apply_can_wait_for() -> None:
    files = [*([add(0.1, rows=1_000)] * 24), *([add(4, rows=180_000)] * 32)]
    assert in_short_turn(files) == files[:24]
    assert in_short_turn(files[:7]) == in_short_turn(files[24:]) == []
    assert sum(record_count(each) or 0 for each in in_short_turn([add(0.1, rows=8_000)] * 40)) == 64_000
    assert sizes(in_short_turn([add(0.25)] * 40)) == [0.25] * 12, "3 MiB, however few rows they have"


@pytest.mark.parametrize(("size", "rows"), [(0.03, 1_000), (0.3, 500), (1.0, 5_000), (0.001, 10)])
def test_a_table_that_is_never_idle_has_no_more_small_files_than_a_bound(size: float, rows: int) -> None:
    """Each fourth pass looks; what it takes becomes one file."""
    files, heavy, most = list[dict[str, Any]](), 0, 0
    for _ in range(3_000):
        files += [add(size, rows=rows) for _ in range(4)]
        chosen = {id(each): each for each in in_short_turn(files)}
        if chosen:
            its = sum(each["size"] for each in chosen.values()) / MIB, sum(map(rows_of, chosen.values()))
            heavy += its[1] > 1 << 16 or its[0] > 3
            files = [*(each for each in files if id(each) not in chosen), add(its[0], rows=its[1])]
        most = max(most, sum(each["size"] <= 8 * MIB for each in files))
    assert most <= 256 + 4
    assert heavy <= 12_000 * max(size / 8, rows / 500_000), "so often as such files are full"


def rows_of(each: dict[str, Any]) -> int:
    return record_count(each) or 0


def test_few_small_files_where_they_make_spark_read_the_large_ones_by_one_task() -> None:
    assert [most_small_files(size * MIB) for size in (0, 15, 16, 128, 256, 320, 512, 9000)] == [
        AT_LEAST, AT_LEAST, 4, 4, 8, 10, 16, 16,
    ]  # fmt: skip
    large = alike(12, 4)
    assert in_between([*large, *alike(0.125, 3)]) == []
    assert sizes(in_between([*large, *alike(0.125, 4)])) == [0.125] * 4
    assert in_between([add(3), *alike(0.125, 4)]) == [], "of a small table"
    assert sizes(in_between([*large, add(0.125), add(0.25), add(0.5), add(4)])) == [0.125, 0.25, 0.5]
    assert in_between([*large, add(0.125), add(0.5), add(2), add(7)]) == [], "each is too large for those before it"
    assert sizes(in_between([*large, add(0.01), *alike(0.125, 4)])) == [0.125] * 4, "a tiny one is in nobody's way"
    assert in_between([*large, add(0.125), add(0.25), add(2), add(7)]) == [], "one file fewer is not worth a commit"


def test_few_small_files_of_partitions_only_where_one_has_several() -> None:
    parts = [{**add(5, 0.01), "partitionValues": {"region": str(number)}} for number in range(30)]
    assert in_between(parts) == [], "each would become the same file"
    more = [{**add(0.125), "partitionValues": {"region": str(number % 2)}} for number in range(6)]
    assert sizes(in_between([*parts, *more])) == [0.125] * 6


def test_a_row_is_written_again_only_after_as_many_new_ones() -> None:
    size, files, written = 0.05, [add(12)] * 4, 0.0
    small = []
    for _ in range(400):
        files = [*files, add(size)]
        if chosen := in_between(files):
            written += sum(sizes(chosen))
            files = [each for each in files if each not in chosen] + [add(sum(sizes(chosen)))]
        small.append(len(files) - 4)
    assert max(small) < 10 and written < 8 * 400 * size


def test_at_rest_small_files_and_all_vectors() -> None:
    assert sizes(when_idle([add(1), add(2), add(20), add(30, 0.001)], all_vectors=True)) == [1, 2, 30]
    assert sizes(when_idle([add(1), add(20, 0.001)], all_vectors=True)) == [20]
    assert sizes(when_idle([add(1, 0.001), add(20)], all_vectors=True)) == [1]
    assert sizes(when_idle([add(30, 0.001)] * 8, all_vectors=True)) == [30, 30], "a piece of them"
    assert sizes(when_idle([add(1), add(2), add(20)], all_vectors=True)) == [1, 2]


def test_where_it_was_done_lately_only_if_many_rows_are_deleted() -> None:
    assert sizes(when_idle([add(1), add(2), add(20, 0.06), add(21, 0.03)], all_vectors=False)) == [1, 2, 20]
    assert sizes(when_idle([add(1), add(2), add(20, 0.07), add(21, 0.03)], all_vectors=False)) == [1, 2, 20, 21]
    assert when_idle([add(1), add(20, 0.05), add(21, 0.04)], all_vectors=False) == []


@pytest.mark.parametrize(
    "adds",
    [[add(33, 0.001), add(20, 0.001)], [add(30, 0.001)] * 9, [add(7, 0.001)] * 5 + [add(32, 0.001)] * 8,
     [add(30, 0.001, path="file:/x"), add(20, 0.001)], [{**add(3, 0.1), "stats": "{}"}, add(20, 0.001)]],
    ids=["a large one", "too many", "too much together", "elsewhere", "no statistics"],
)  # fmt: skip
def test_where_not_all_can_go_only_what_is_worth_it_by_itself(adds: Any) -> None:
    assert [a for a in when_idle(adds, all_vectors=True) if a["size"] > 8 * MIB] == in_turn(adds) == []
    assert 20 in sizes(when_idle([*adds, add(20, 0.5)], all_vectors=True))


def test_in_large_tables_files_with_many_deleted_rows_and_small_ones_of_one_partition() -> None:
    assert in_large_table([]) == [] and in_large_table([add(900)] * 4) == []
    assert sizes(in_large_table([add(900, 0.06), add(900)])) == [900]
    assert in_large_table([add(900, 0.05), add(900)]) == []
    assert in_large_table([{"path": "x", "size": 20 * MIB, "deletionVector": {"cardinality": 1}}]) == [], "not counted"
    assert sizes(in_large_table([add(40)] * 5 + [add(200)] * 10)) == [40, 40, 40], "128 MiB at once"
    assert in_large_table([add(40), *[add(200)] * 10]) == [], "alone"
    eu, us = ({**add(60), "partitionValues": {"region": each}} for each in ("eu", "us"))
    assert in_large_table([eu, us, *[add(200)] * 10]) == []
    assert in_large_table([eu, us, eu, *[add(200)] * 10]) == [eu, eu]


def test_what_is_written_is_not_written_again() -> None:
    for rest in ([], [add(100)] * 8):
        chosen = [add(29.5, 0.001)] * 2
        adds = [*chosen, *rest]
        living = sum(each["size"] for each in chosen)
        count = pieces(adds, living)
        made = [add(living / count / MIB * 0.8)] * count
        assert not in_large_table([*made, *rest]), "also where it becomes smaller by a fifth"
    assert pieces([add(1)] * 16, 16 * MIB) == 1
    assert pieces([add(16)] * 2, 32 * MIB) == 2
    assert pieces([add(24)] * 2, 48 * MIB) == 4, "three files are read by two cores in the time of four"
    assert file_size([add(1)]) == 16 * MIB and file_size([add(8000)] * 100) == 128 * MIB
