"""The model of history against examples that were worked by hand.

The users and the employees are the facts of Databricks' examples of SCD type 1 and 2; the rest follows from the
contract.
"""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.history_model import APPLY_TIME, Change, ChangeFile, HistoryModel, PartialRowMissing, SequenceNull

NOON = datetime(2026, 5, 1, 12)
USER_CHANGES = [
    (0, 124, "Raul", "Oaxaca", 1),
    (0, 123, "Isabel", "Monterrey", 1),
    (0, 125, "Mercedes", "Tijuana", 2),
    (0, 126, "Lily", "Cancun", 2),
    (2, 123, None, None, 6),
    (1, 125, "Mercedes", "Guadalajara", 6),
    (1, 125, "Mercedes", "Mexicali", 5),
    (1, 123, "Isabel", "Chihuahua", 5),
]
USERS = {
    (124, "Raul", "Oaxaca", 1): 1,
    (125, "Mercedes", "Guadalajara", 6): 1,
    (126, "Lily", "Cancun", 2): 1,
}
USER_VERSIONS = {
    (123, "Isabel", "Monterrey", 1, 1, 5): 1,
    (123, "Isabel", "Chihuahua", 5, 5, 6): 1,
    (124, "Raul", "Oaxaca", 1, 1, None): 1,
    (125, "Mercedes", "Tijuana", 2, 2, 5): 1,
    (125, "Mercedes", "Mexicali", 5, 5, 6): 1,
    (125, "Mercedes", "Guadalajara", 6, 6, None): 1,
    (126, "Lily", "Cancun", 2, 2, None): 1,
}
NAME_VERSIONS = {  # the same changes where a new city begins no version
    (123, "Isabel", "Chihuahua", 5, 1, 6): 1,
    (124, "Raul", "Oaxaca", 1, 1, None): 1,
    (125, "Mercedes", "Guadalajara", 6, 2, None): 1,
    (126, "Lily", "Cancun", 2, 2, None): 1,
}
EMPLOYEE_CHANGES = [
    (0, 5, "Chris", "owner", 6),
    (1, 5, "Chris", "manager", 5),
    (2, 6, "Pat", "mechanic", 8),
    (0, 6, "Pat", "mechanic", 7),
]
EMPLOYEES = {(5, "Chris", "owner", 6): 1}
EMPLOYEE_VERSIONS = {
    (5, "Chris", "manager", 5, 5, 6): 1,
    (5, "Chris", "owner", 6, 6, None): 1,
    (6, "Pat", "mechanic", 7, 7, 8): 1,
}


def users(history: Any = "scd2", **options: Any) -> HistoryModel:
    return HistoryModel(["id"], {"sequence": "n", "history": history, **options})


def fill(model: HistoryModel, columns: str, changes: Any, *, size: int = 100) -> HistoryModel:
    """Files of `size` changes each; a change is (marker, values)."""
    names = tuple(columns.split())
    rows = [Change(marker, dict(zip(names, values, strict=True))) for marker, *values in changes]
    for number, begin in enumerate(range(0, len(rows), size)):
        model.apply(ChangeFile(f"{number + 1:020}.parquet", names, tuple(rows[begin : begin + size])))
    return model


@pytest.mark.parametrize("order", list(itertools.permutations(range(8)))[::997])
def test_users_in_any_order_of_arrival(order: tuple[int, ...]) -> None:
    changes = [USER_CHANGES[place] for place in order]
    whole = fill(users(), "id name city n", changes, size=3)
    assert whole.current() == USERS
    assert whole.versions() == USER_VERSIONS
    named = fill(users({"mode": "scd2", "track": ["name"]}), "id name city n", changes)
    assert named.versions() == NAME_VERSIONS


def test_employees() -> None:
    model = fill(users(), "id name role n", EMPLOYEE_CHANGES)
    assert model.current() == EMPLOYEES
    assert model.versions() == EMPLOYEE_VERSIONS
    assert model.late_changes() == 2


def test_a_soft_delete_keeps_the_last_values_and_a_later_row_revives_it() -> None:
    model = HistoryModel(["id"], {"deletes": "soft"})
    fill(model, "id v", [(0, 1, "a"), (0, 2, "b"), (2, 1, None), (2, 2, None), (4, 2, "c"), (2, 3, None)])
    assert model.current() == {(1, "a", True, APPLY_TIME): 1, (2, "c", False, None): 1}
    model.apply(ChangeFile("5", ("id", "v"), (Change(1, {"id": 1}, ("v",)), Change(2, {"id": 2}, at=NOON))))
    assert model.current() == {(1, "a", False, None): 1, (2, "c", True, NOON): 1}


def test_a_second_delete_does_not_change_when_a_row_died() -> None:
    model = HistoryModel(["id"], {"deletes": "soft"})
    changes = (Change(0, {"id": 1}), Change(2, {"id": 1}, at=NOON), Change(2, {"id": 1}, at=NOON + timedelta(1)))
    model.apply(ChangeFile("1", ("id",), changes))
    assert model.current() == {(1, True, NOON): 1}


def test_an_insert_older_than_the_delete_is_kept_dead_and_of_several_the_latest() -> None:
    changes = [(2, 1, None, 5), (0, 1, "a", 2), (0, 1, "b", 4), (0, 1, "c", 3)]
    dead = Counter({(1, "b", 4, True, APPLY_TIME): 1})
    for order in itertools.permutations(changes):
        assert fill(users("changes", deletes="soft"), "id v n", order).current() == dead
        assert not fill(users("changes"), "id v n", order).current()


def test_ignored_deletes_are_counted_and_leave_versions_open() -> None:
    model = fill(users(deletes="ignore"), "id v n", [(0, 1, "a", 1), (2, 1, None, 2), (4, 1, "b", 3)])
    assert model.current() == {(1, "b", 3): 1}
    assert model.versions() == {(1, "a", 1, 1, 3): 1, (1, "b", 3, 3, None): 1}
    assert model.ignored_deletes() == 1


def test_of_equal_sequences_the_later_change_wins() -> None:
    model = fill(users(), "id v n", [(0, 1, "a", 1), (0, 1, "b", 5), (0, 1, "a", 5)])
    assert model.current() == {(1, "a", 5): 1}
    assert model.versions() == {(1, "a", 5, 1, None): 1}  # what held for no time is no version
    model = fill(users(), "id v n", [(0, 1, "a", 1), (0, 1, "b", 5), (2, 1, None, 5)])
    assert not model.current()
    assert model.versions() == {(1, "a", 1, 1, 5): 1}
    assert model.late_changes() == 0


def test_a_late_change_splits_and_equal_neighbours_are_one() -> None:
    begun = [(0, 1, "a", 1), (0, 1, "a", 9)]
    assert fill(users(), "id v n", begun).versions() == {(1, "a", 9, 1, None): 1}
    split = fill(users(), "id v n", [*begun, (0, 1, "b", 5)])
    assert split.versions() == {(1, "a", 1, 1, 5): 1, (1, "b", 5, 5, 9): 1, (1, "a", 9, 9, None): 1}
    ended = fill(users(), "id v n", [*begun, (2, 1, None, 5)])
    assert ended.versions() == {(1, "a", 1, 1, 5): 1, (1, "a", 9, 9, None): 1}
    same = fill(users(), "id v n", [(0, 1, "a", 1), (0, 1, "b", 9), (0, 1, "b", 5)])
    assert same.versions() == {(1, "a", 1, 1, 5): 1, (1, "b", 9, 5, None): 1}


def test_versions_without_a_sequence_begin_at_the_times_of_source_or_file() -> None:
    model = HistoryModel(["id"], {"history": "scd2"})
    rows = (Change(0, {"id": 1, "v": "a"}), Change(0, {"id": 1, "v": "b"}), Change(0, {"id": 1, "v": "b"}))
    model.apply(ChangeFile("1", ("id", "v"), rows, NOON))
    tick, later = timedelta(microseconds=1), NOON + timedelta(hours=1)
    model.apply(ChangeFile("2", ("id", "v"), (Change(2, {"id": 1}), Change(0, {"id": 1, "v": "b"}, at=later)), NOON))
    assert model.versions() == {
        (1, "a", NOON, NOON + tick): 1,
        (1, "b", NOON + tick, NOON + 2 * tick): 1,
        (1, "b", later, None): 1,
    }
    assert model.current() == {(1, "b"): 1}  # marker 0 is an upsert here


def test_keys_that_are_null_and_keys_of_several_columns() -> None:
    model = HistoryModel(["a", "b"], {"sequence": ["x", "y"], "history": "scd2"})
    fill(model, "a b v x y", [(4, None, 1, "p", 1, 9), (4, None, 1, "q", 2, 0), (4, 0, 1, "r", 1, 1)])
    one, two = (("x", 1), ("y", 9)), (("x", 2), ("y", 0))
    assert model.versions() == {
        (None, 1, "p", 1, 9, one, two): 1,
        (None, 1, "q", 2, 0, two, None): 1,
        (0, 1, "r", 1, 1, (("x", 1), ("y", 1)), None): 1,
    }


def test_a_new_column_begins_a_version_only_with_a_value() -> None:
    model = HistoryModel(["id"], {"sequence": "n", "history": "scd2"})
    fill(model, "id n", [(4, 1, 1), (4, 2, 1)])
    fill(model, "id w n", [(4, 1, None, 2), (4, 2, "w", 2)])
    assert model.versions() == {(1, 2, None, 1, None): 1, (2, 1, None, 1, 2): 1, (2, 2, "w", 2, None): 1}


def test_a_column_that_a_file_lacks_is_null_in_its_rows() -> None:
    model = HistoryModel(["id"], {"sequence": "n", "history": {"mode": "scd2", "track": ["v"]}})
    fill(model, "id v w n", [(4, 1, "a", "p", 1)])
    fill(model, "id v n", [(4, 1, "a", 2)])
    assert model.current() == {(1, "a", None, 2): 1}
    assert model.versions() == {(1, "a", None, 2, 1, None): 1}


def test_values_that_are_equal_by_the_contract_begin_no_version() -> None:
    nan = float("nan")
    model = fill(users(), "id v n", [(4, 1, nan, 1), (4, 1, nan, 2), (4, 2, 0.0, 1), (4, 2, -0.0, 2)])
    assert model.versions() == {(1, "NaN", 2, 1, None): 1, (2, 0.0, 2, 1, None): 1}


def test_changes_are_as_they_came() -> None:
    model = HistoryModel(["id"], {"history": ["changes"], "deletes": "ignore"}, upsert_by_default=True)
    first = (Change(None, {"id": 1, "v": "a"}), Change(1, {"id": 1, "v": "x"}, ("v",)), Change(2, {"id": 1}))
    model.apply(ChangeFile("1.parquet", ("id", "v"), first))
    assert model.changes() == {
        (1, "a", "upsert", "1.parquet", 0, None): 1,
        (1, None, "update", "1.parquet", 1, ("v",)): 1,
        (1, None, "delete", "1.parquet", 2, None): 1,
    }
    assert model.current() == {(1, "a"): 1}


def test_partial_rows_take_the_values_of_their_moment() -> None:
    model = HistoryModel(["id"], {"history": "scd2"})
    parts = (
        Change(0, {"id": 1, "v": "a", "w": 1}),
        Change(1, {"id": 1, "w": 2}, ("v",)),
        Change(1, {"id": 1}, ("v", "w")),
    )
    model.apply(ChangeFile("1", ("id", "v", "w"), parts, NOON))
    tick = timedelta(microseconds=1)
    assert model.versions() == {(1, "a", 1, NOON, NOON + tick): 1, (1, "a", 2, NOON + tick, None): 1}
    with pytest.raises(PartialRowMissing):
        model.apply(ChangeFile("2", ("id",), (Change(1, {"id": 2}, ("v",)),)))


def test_a_partial_row_with_a_sequence_takes_what_is_known_as_it_comes() -> None:
    model = users(["changes", "scd2"], deletes="soft")
    fill(model, "id v w n", [(4, 1, "a", "p", 1), (4, 1, "c", "r", 9)])
    model.apply(ChangeFile("2", ("id", "w", "n"), (Change(1, {"id": 1, "w": "q", "n": 5}, ("v",)),)))
    fill(model, "id v w n", [(4, 1, "b", "p", 3)])  # too late for the partial row
    assert model.current() == {(1, "c", "r", 9, False, None): 1}
    assert model.versions() == {
        (1, "a", "p", 1, 1, 3): 1,
        (1, "b", "p", 3, 3, 5): 1,
        (1, "a", "q", 5, 5, 9): 1,
        (1, "c", "r", 9, 9, None): 1,
    }
    assert model.late_changes() == 2


def test_a_change_without_a_sequence_is_refused() -> None:
    with pytest.raises(SequenceNull):
        fill(users(), "id v n", [(4, 1, "a", None)])
