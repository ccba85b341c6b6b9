"""After a drop other clients read the right rows: all of them, their count, and what a filter leaves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.clients import probe
from tests.clients.protocol_tables import IDS, make_all
from tests.clients.real_tables import CUT, IN_USE, SETUPS, make_one, rows_of

from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Snapshot, read_snapshot
from lakemirror.features.catalogue import BY_NAME, FEATURES
from lakemirror.features.compatibility import find_clients, verdicts
from lakemirror.features.drop import drop
from lakemirror.features.plan import Wish

pytestmark = pytest.mark.full

MADE = {name: ([name], statements) for name, statements in SETUPS.items()}
MADE |= {name: (list(dropped), statements) for name, (statements, dropped) in IN_USE.items() if dropped}
BY_HAND = [feature.name for feature in FEATURES if feature.drop != "no" and feature.name not in SETUPS]
"""The features that Delta Spark cannot bring into use here; their tables are made without it."""

Case = tuple[Path, dict[str, Any]]


@pytest.fixture(scope="module", params=[*MADE, *(f"by-hand-{name}" for name in BY_HAND)])
def dropped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Case:
    """A table from which features have been dropped, and the rows that it had before."""
    folder = tmp_path_factory.mktemp("dropped")
    name: str = request.param
    if name in MADE:
        features, statements = MADE[name]
        table = folder / "t"
        assert make_one(spark, table, statements, cut=name in CUT)
        expected = rows_of(spark, table)
    else:
        features = [name.removeprefix("by-hand-")]
        make_all(folder)
        table = folder / f"feature-{features[0]}"
        if "vacuumProtocolCheck" in BY_NAME[features[0]].requires:
            features.append("vacuumProtocolCheck")  # which delta-rs does not read
        expected = {"columns": ["id"], "rows": [[number] for number in IDS]}
    cutting = features == ["checkpointProtection"]
    later = datetime.now(timezone.utc) + timedelta(days=60 if cutting else 0)
    drop(table, Wish(tuple(features), truncate=cutting), session=lambda: spark, confirmed=True, now=lambda: later)
    assert not set(features) & features_of(snapshot(table).protocol)
    return table, expected


def snapshot(table: Path) -> Snapshot:
    found = read_snapshot(table)
    assert found is not None
    return found


def said_to_read(table: Path, client: str) -> list[str]:
    """The routes of a client by which it reads a table, as compat says."""
    records = find_clients(client)
    return [c.route for c, v in zip(records, verdicts(snapshot(table), records), strict=True) if v.read == "yes"]


def test_deltalake_reads_the_right_rows(dropped: Case) -> None:
    pytest.importorskip("deltalake")
    table, expected = dropped
    routes = said_to_read(table, "delta-rs")
    assert "datafusion" in routes
    for route in routes:
        client = probe.ROUTES[f"deltalake-{route}"]()
        assert probe.read(client, str(table), expected["columns"], expected["rows"]) is None, route


def test_delta_spark_reads_what_deltalake_appends(spark: SparkSession, dropped: Case, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    table, expected = dropped
    copy = Path(shutil.copytree(table, tmp_path / "t"))
    if "checkpointProtection" in features_of(snapshot(copy).protocol):  # which no writer but Delta Spark knows
        later = datetime.now(timezone.utc) + timedelta(days=60)
        drop(copy, Wish(("checkpointProtection",), truncate=True), now=lambda: later)
    client, new = probe.ROUTES["deltalake-datafusion"](), 99
    row = dict(zip(expected["columns"], [new, *expected["rows"][0][1:]], strict=True))
    row = {name: value for name, value in row.items() if name not in expected.get("days", [])}
    after = rows_of(spark, copy)
    if {v.write for v in verdicts(snapshot(copy), find_clients("delta-rs"))} == {"yes"}:
        client.append(str(copy), row)
        after["rows"] = sorted([*after["rows"], [row.get(name) for name in after["columns"]]], key=str)
    else:
        with pytest.raises(Exception, match=r"(?i)features? .*not supported|unsupported .*features?"):
            client.append(str(copy), row)
    spark.sql(f"REFRESH TABLE delta.`{copy}`")
    assert rows_of(spark, copy) == after
    found = spark.sql(f"SELECT count(*), count_if(id = {new}) FROM delta.`{copy}`").collect()[0]
    assert tuple(found) == (len(after["rows"]), sum(row[0] == new for row in after["rows"]))
    found = spark.sql(f"SELECT id FROM delta.`{copy}` WHERE id = {new}").collect()
    assert len(found) == sum(row[0] == new for row in after["rows"])


def test_duckdb_reads_the_right_rows(dropped: Case, duckdb: Any) -> None:
    table, expected = dropped
    assert said_to_read(table, "duckdb")
    assert probe.read(duckdb, str(table), expected["columns"], expected["rows"]) is None


@pytest.fixture
def duckdb() -> Iterator[Any]:
    """The reader of DuckDB; skips where its delta extension is not installed."""
    pytest.importorskip("duckdb")
    pytest.importorskip("duckdb_extension_delta", reason="DuckDB reads Delta with duckdb-extension-delta only")
    yield probe.ROUTES["duckdb"]()
