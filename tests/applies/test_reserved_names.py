"""Names that lakemirror or Delta's readers use themselves: refused with a code, or a column like any other."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.applies.test_applies import no_spark, sync
from tests.applies.test_columns_of_others import again, altered, rows
from tests.landing import MARKER, declare, put
from tests.rounds import rounds

from lakemirror import LakemirrorError, MirroredDatabase
from lakemirror.delta.protocol import FEED, FEED_COLUMNS
from lakemirror.engines.row_work import FILE, ROW
from lakemirror.engines.row_work import MARKER as INNER_MARKER
from lakemirror.landing_zone.reserved_columns import UNCHANGED
from lakemirror.mirror.operations import resync
from lakemirror.publisher.landing import Landing
from lakemirror.storage import LocalStorage

__all__ = ["no_spark"]

FEED_NAMES = [*sorted(FEED_COLUMNS), "_Change_Type", "_COMMIT_VERSION"]


def upserts(name: str, **columns: Any) -> dict[str, Any]:
    count = len(columns["id"])
    return {**columns, name: [f"v{each}" for each in columns["id"]], MARKER: pa.array([4] * count, pa.int32())}


@pytest.mark.parametrize("name", FEED_NAMES)
def test_columns_first_then_the_feed(tmp_path: Path, name: str) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, upserts(name, id=[1, 2]))
    sync(tmp_path)
    before = rows(tmp_path / "Tables/t")
    put(tmp_path, "t", 2, upserts(name, id=[1]))
    failed = MirroredDatabase(tmp_path, change_data_feed=True).sync().failed["t"]
    assert failed.code == "column-name-invalid" and name in failed.message and "Switch" in failed.hint
    assert rows(tmp_path / "Tables/t") == before
    sync(tmp_path)  # one way out: the feed stays off
    assert not again(tmp_path)


def test_a_table_that_is_published_again_may_have_the_feed(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    first = put(tmp_path, "t", 1, upserts("_change_type", id=[1]))
    sync(tmp_path)
    put(tmp_path, "t", 2, upserts("v", id=[1]))
    assert MirroredDatabase(tmp_path, change_data_feed=True).sync().failed
    first.unlink(missing_ok=True)
    put(tmp_path, "t", 1, upserts("v", id=[7]))
    resync(LocalStorage(tmp_path), "t")
    sync(tmp_path, change_data_feed=True)
    assert sum(rows(tmp_path / "Tables/t").values()) == 2


@pytest.mark.parametrize("by_others", [False, True])
@pytest.mark.parametrize("name", FEED_NAMES)
def test_the_feed_first_then_the_columns(tmp_path: Path, name: str, by_others: bool) -> None:
    """Also where another writer switched the feed on: then no setting says so."""
    settings = {"change_data_feed": not by_others}
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, upserts("v", id=[1, 2]))
    sync(tmp_path, **settings)
    if by_others:
        altered(tmp_path / "Tables/t", lambda fields: fields, mapped=False, **{FEED: "true"})
    put(tmp_path, "t", 2, upserts("v", id=[2]))
    put(tmp_path, "t", 3, upserts(name, id=[1]))
    failed = MirroredDatabase(tmp_path, **settings).sync().failed["t"]
    assert (failed.code, failed.file) == ("column-name-invalid", f"Files/LandingZone/t/{3:020}.parquet")
    assert sum(rows(tmp_path / "Tables/t").values()) == 2


KNOWN = [
    FILE, ROW, INNER_MARKER, "__lakemirror_untyped__id", "__lakemirror_infinite__", "_metadata", "_row_id", "broken",
    "row_marker", "__unchangedColumns__", "numRecords", "stats", "key", "value", "element", "list", *FEED_NAMES,
]  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(KNOWN), st.sampled_from(KNOWN).map(str.upper), st.text(st.characters(codec="utf-8"), max_size=6)
)


@settings(max_examples=rounds(25, 60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMES, st.booleans(), st.booleans(), st.booleans())
def test_a_name_is_refused_or_a_column(
    tmp_path_factory: pytest.TempPathFactory, name: str, is_key: bool, feed: bool, vectors: bool
) -> None:
    """Twice the same key with other values, by each way of writing: one row is left, and it is the last one."""
    database = tmp_path_factory.mktemp("names")
    if name.lower() == "id" or name in (MARKER, UNCHANGED):
        return
    given = {"change_data_feed": feed, "deletion_vectors": vectors, "maintenance": False}
    declare(database, "t", ["id", name] if is_key else ["id"])
    for number in (1, 2):
        put(database, "t", number, upserts(name, id=[1, 2][:number]) | {"n": [number] * number})
        failed = MirroredDatabase(database, **given).sync().failed
        if failed:
            refused = ("column-name-invalid", "row-marker-misspelt", "partial-row-invalid", "columns-ambiguous")
            no_key = ("metadata-invalid",) if is_key and not name.strip() else ()
            assert failed["t"].code in (*refused, *no_key), failed
            return
    wanted = [{"id": each, name: f"v{each}", "n": 2} for each in (1, 2)]
    assert rows(database / "Tables/t") == Counter(json.dumps(each, sort_keys=True) for each in wanted)


@pytest.mark.parametrize(
    ("name", "code"),
    [("row-marker", "row-marker-misspelt"), ("__row_marker__", "row-marker-misspelt"), ("a\0b", "column-name-invalid")],
)
def test_a_publish_says_it_first(tmp_path: Path, name: str, code: str) -> None:
    table = Landing(tmp_path).table("t", keys=["id"])
    for act in (table.upsert, table.load):  # of a delete, only the keys are published
        with pytest.raises(LakemirrorError) as caught:
            act([{"id": 1, name: 2}])
        assert caught.value.code == code
    if code == "row-marker-misspelt":
        table.changes([{"id": 1, name: 4}], marker=name)
        sync(tmp_path)
        assert rows(tmp_path / "Tables/t") == Counter({'{"id": 1}': 1})
