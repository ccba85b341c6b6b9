"""Statistics keep every digit, whoever wrote them."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemirror.delta import exact_json
from lakemirror.delta.checkpoint_file import json_value
from lakemirror.delta.deletion_vectors import delete_rows, remove_files
from lakemirror.delta.statistics import parse_statistics, record_count, with_loose_bounds

BOUND = "99999999999999999999999999999999999.999"
STATS = ('{ "numRecords":3, "minValues":{"d":-BOUND,"tightBounds":1},"maxValues":{"d":BOUND,"s":"ü\\"}{"} }').replace(
    "BOUND", BOUND
)

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False, places=10)
)  # fmt: skip


@given(st.dictionaries(st.text(), SCALARS | st.dictionaries(st.text(), SCALARS), max_size=5), st.text(max_size=3))
def test_text_and_back(value: dict[str, Any], name: str) -> None:
    written = exact_json.text(value)
    json.loads(written)
    assert exact_json.read(written) == {k: _exact(v) for k, v in value.items()}
    changed = exact_json.read(exact_json.replaced(written, name, False))
    assert changed == {**exact_json.read(written), name: False}


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _exact(v) for k, v in value.items()}
    return Decimal(repr(value)) if isinstance(value, float) else value


def test_only_tight_bounds_is_changed() -> None:
    loose = with_loose_bounds(STATS)
    assert loose == STATS[: STATS.rindex("}")] + ',"tightBounds":false}'
    assert with_loose_bounds('{"tightBounds" : true ,"a":1}') == '{"tightBounds" : false ,"a":1}'
    assert with_loose_bounds(" {} ") == ' {"tightBounds":false} '
    assert with_loose_bounds(loose) == loose
    assert parse_statistics({"stats": loose})["maxValues"]["d"] == Decimal(BOUND)
    for bad in ("[]", "", '{"a":NaN}', "{"):
        with pytest.raises(ValueError):
            with_loose_bounds(bad)


@pytest.mark.parametrize(
    "stats", [None, "", "[]", '{"numRecords":true}', '{"numRecords":-3}', '{"numRecords":1.5}', "{"]
)
def test_files_without_a_count(stats: str | None) -> None:
    assert record_count({"stats": stats}) is None


def test_numbers_that_json_lacks() -> None:
    for value in (float("nan"), float("inf"), Decimal("NaN"), Decimal("Infinity")):
        with pytest.raises(ValueError):
            exact_json.text({"a": value})
    assert exact_json.text([Decimal("1E+3"), -0.0, "ü", (1,)]) == '[1000,-0.0,"ü",[1]]'


def test_typed_statistics_of_a_checkpoint() -> None:
    utc = datetime.timezone.utc
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 678000, utc)
    value = {
        "minValues": {
            "d": Decimal("9007199254740992.99"), "f": float("nan"), "i": float("-inf"), "t": moment,
            "u": moment.replace(microsecond=1), "day": moment.date(), "raw": b"x", "none": None, "x": 1.5,
        }
    }  # fmt: skip
    assert exact_json.text(json_value(value)) == (
        '{"minValues":{"d":9007199254740992.99,"t":"2020-01-02T03:04:05.678Z","u":"2020-01-02T03:04:05.000001Z",'
        '"day":"2020-01-02","x":1.5}}'
    )


def test_rows_deleted_by_their_numbers(tmp_path: Path) -> None:
    add: dict[str, Any] = {"path": "a", "partitionValues": {}, "size": 9, "stats": STATS, "baseRowId": 7}
    deleted, added = delete_rows(tmp_path, {"a": add}, {"a": pa.array([1, 1], pa.int64())})
    assert deleted["remove"]["path"] == "a" and deleted["remove"]["dataChange"] and deleted["remove"]["baseRowId"] == 7
    once = added["add"]
    assert once["stats"] == with_loose_bounds(STATS) and once["deletionVector"]["cardinality"] == 1
    assert delete_rows(tmp_path, {"a": once}, {"a": pa.array([1], pa.int64())}) == [], "nothing further"
    (alone,) = delete_rows(tmp_path, {"a": once}, {"a": pa.array([0, 2], pa.int64())})
    assert alone["remove"]["deletionVector"] == once["deletionVector"]
    with pytest.raises(ValueError, match="the file has 3 rows"):
        delete_rows(tmp_path, {"a": add}, {"a": pa.array([3], pa.int64())})
    with pytest.raises(ValueError, match="does not say"):
        delete_rows(tmp_path, {"a": {**add, "stats": None}}, {"a": pa.array([0], pa.int64())})
    assert remove_files([once], 5)[0]["remove"]["deletionTimestamp"] == 5
