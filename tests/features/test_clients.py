"""Predictions against what real clients did (`tests/clients/measured.json`, made by `probe.py` in each client)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from measure import load, said
from protocol_tables import make_all

from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features.catalogue import BY_NAME
from lakemirror.features.compatibility import clients, features_all_read, find_clients, verdicts
from lakemirror.features.many import parse_statement, wish_for

MEASURED = json.loads((Path(__file__).parents[1] / "clients" / "measured.json").read_text())
REAL = load()
FINER = {
    "clustering: mapped",
    *(f"columnMapping: {what}" for what in ("dropped", "nested", "partitions", "renamed", "upgraded")),
    "deletionVectors: in files",
    "files: several",
    "paths: not ASCII",
    "typeWidening-preview: widened",
    "typeWidening: widened",
    "types: map of maps",
}


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
        (found,) = verdicts(snapshot, [client])
        write = {"unsafe": "yes", "never": None}.get(found.write, found.write)
        if (found.read, write) != (seen["read"], seen.get("write")):
            wrong.append((table, (found.read, write), seen))
    assert not wrong


@pytest.mark.parametrize("name", sorted(REAL["clients"]))
def test_tables_in_real_use(name: str) -> None:
    """Nobody is promised right rows and gets wrong ones; what is not foreseen is a refusal, and rare."""
    seen = {table: (said(name, REAL["tables"][table]), row["did"]) for table, row in REAL["clients"][name].items()}
    lies = [t for t, (now, did) in seen.items() if now["read"] == "yes" and did["read"] == "wrong"]
    off = [(t, mode) for t, (now, did) in seen.items() for mode in did if now[mode] != did[mode]]
    assert not lies and len(off) <= 4, off


def test_the_finer_traits_appear_in_real_tables() -> None:
    met = {trait for known in REAL["tables"].values() for trait in known["in_use"]}
    assert met >= FINER


def test_records_name_known_features() -> None:
    for client in clients():
        tripping = client.refused_in_use | client.wrong_in_use | client.unwritable_in_use
        plain = {trait for trait in tripping if ":" not in trait}
        assert client.reader_features | client.writer_features | plain <= BY_NAME.keys(), client.label
        assert tripping - plain <= FINER, client.label
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
