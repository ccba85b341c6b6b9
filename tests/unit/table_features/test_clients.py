"""Predictions against what real clients did (`tests/clients/measured.json`, made by `probe.py` in each client)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from protocol_tables import make_all

from lakemirror.delta_log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.table_features.compatibility import clients, features_all_read, find_clients, verdict
from lakemirror.table_features.features import BY_NAME
from lakemirror.table_features.many import parse_statement, wish_for
from lakemirror.table_features.protocol import features_of

MEASURED = json.loads((Path(__file__).parents[2] / "clients" / "measured.json").read_text())
ALWAYS_IN_USE = {"columnMapping"}  # the only feature that the hand-made tables really use


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    make_all(folder)
    return folder


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_predictions(name: str, tables: Path) -> None:
    text, _, route = name.partition(":")
    (client,) = [c for c in find_clients(text) if not route or c.route == route]
    wrong = []
    for table, seen in MEASURED[name].items():
        snapshot = read_snapshot(tables / table)
        assert snapshot is not None
        used = ALWAYS_IN_USE & features_of(snapshot.protocol)
        found = verdict(client, snapshot.protocol, used, ["domainMetadata"] if snapshot.domains else [])
        write = {"unsafe": "yes", "never": None}.get(found.write, found.write)
        if (found.read, write) != (seen["read"], seen.get("write")):
            wrong.append((table, (found.read, write), seen))
    assert not wrong


def test_records_name_known_features() -> None:
    for client in clients():
        named = client.reader_features | client.writer_features | client.refused_in_use | client.wrong_in_use
        assert named <= BY_NAME.keys(), client.label
    assert len(MEASURED) >= 8


def test_finding_clients() -> None:
    assert {c.first for c in find_clients("delta-rs@0.19.2")} == {"0.19"}
    assert {c.route for c in find_clients("deltalake")} == {"pyarrow", "datafusion"}
    with pytest.raises(LakemirrorError, match="known are") as error:
        find_clients("nobody")
    assert error.value.code == "client-unknown"


def test_features_that_all_readers_know() -> None:
    all_know = features_all_read(["delta-rs@0.19", "duckdb"])
    assert "timestampNtz" in all_know and "clustering" in all_know
    assert not {"deletionVectors", "columnMapping", "v2Checkpoint"} & all_know
    assert "deletionVectors" in features_all_read(["duckdb"])


def test_a_clients_wish(tables: Path) -> None:
    snapshot = read_snapshot(tables / "feature-deletionVectors")
    assert snapshot is not None
    wish = wish_for(snapshot, find_clients("delta-rs@0.19"), "write")
    assert wish.features == ("deletionVectors",) and wish.unprotect
    assert wish_for(snapshot, find_clients("duckdb"), "read").features == ()
    four = read_snapshot(tables / "numbers-1-4")
    assert four is not None
    assert wish_for(four, find_clients("duckdb"), "write").features == ("checkConstraints", "generatedColumns")
    with pytest.raises(LakemirrorError) as error:
        wish_for(snapshot, find_clients("polars"), "write")
    assert error.value.code == "target-unreachable"


def test_statements() -> None:
    table, wish = parse_statement("alter table delta.`/a b/t` drop feature collations-preview truncate history;")
    assert (str(table), wish.features, wish.truncate) == ("/a b/t", ("collations-preview",), True)
    assert parse_statement("ALTER TABLE '/t' DROP FEATURE `typeWidening-preview`")[1].features == (
        "typeWidening-preview",
    )
    with pytest.raises(LakemirrorError) as error:
        parse_statement("DROP TABLE t")
    assert error.value.code == "statement-invalid"
