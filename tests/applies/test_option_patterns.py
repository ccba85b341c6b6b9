"""Options for many tables in `mirroring.json`: which pattern counts, errors, and everybody who must know them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.landing import MARKER, declare, put
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.change_file import AppliedFiles
from lakemirror.landing_zone.metadata import TableMetadata, parse_metadata, undeclared_metadata
from lakemirror.landing_zone.option_patterns import options_for
from lakemirror.landing_zone.table_options import TableOptions
from lakemirror.landing_zone.zone import read_metadata, scan
from lakemirror.lint.folders import check_table
from lakemirror.settings.settings import converted
from lakemirror.storage import LocalStorage
from lakemirror.verify import Report, verify_database
from lakemirror.verify.proof import Options

SETTINGS: dict[str, Any] = {"engine": "local", "durability": "process", "settle": 0}


def options(table: str, patterns: Any, own: Any = None, keys: Any = ("id",)) -> TableOptions:
    given = options_for(table, converted("tables", patterns))
    if keys is None:
        return undeclared_metadata(given).options
    content = {"keyColumns": list(keys), **({} if own is None else {"lakemirror": own})}
    return parse_metadata(json.dumps(content).encode(), "t/_metadata.json", given).options


def define(database: Path, tables: Any) -> None:
    database.mkdir(exist_ok=True)
    (database / "mirroring.json").write_text(json.dumps({"lakemirror": {"tables": tables}}))


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def codes_of(report: Report) -> set[str]:
    return {finding.code for each in report.tables for finding in each.findings}


def versions(database: Path) -> int:
    return len(list((database / "Tables/t/_delta_log").glob("*.json")))


@pytest.mark.parametrize(
    ("table", "patterns", "deletes"),
    [
        ("orders", {"*": {"deletes": "soft"}}, "soft"),
        ("sales.orders", {"sales.*": {"deletes": "soft"}, "*": {"deletes": "ignore"}}, "soft"),
        ("sales.orders", {"*": {"deletes": "ignore"}, "sales.*": {"deletes": "soft"}}, "soft"),
        ("sales.orders", {"sales.order*": {"deletes": "ignore"}, "sales.orders": {"deletes": "soft"}}, "soft"),
        ("a", {"a*": {"deletes": "ignore"}, "a": {"deletes": "soft"}}, "soft"),
        ("ab", {"a*": {"deletes": "soft"}, "*b": {"deletes": "ignore"}}, "soft"),
        ("salesXorders", {"sales.*": {"deletes": "soft"}}, "hard"),
        ("Sales.orders", {"sales.*": {"deletes": "soft"}}, "hard"),
        ("sales.orders", {"sales": {"deletes": "soft"}}, "hard"),
        ("sales.orders", {"*": {"deletes": "soft"}, "sales.*": {"deletes": None}}, "hard"),
        ("sales.orders", {"*": {"deletes": "soft"}, "sales.*": {"freshness": "1m"}}, "soft"),
        ("sales.orders", {"*": {"deletes": "soft"}, "sales.*": {"DELETES": "ignore"}}, "ignore"),
    ],
)
def test_the_most_exact_pattern_counts(table: str, patterns: Any, deletes: str) -> None:
    assert options(table, patterns).deletes == deletes


def test_what_the_publisher_says_wins_option_by_option() -> None:
    patterns = {"*": {"deletes": "soft", "history": "changes", "freshness": "1m"}}
    found = options("t", patterns, {"deletes": "ignore", "history": []})
    assert (found.deletes, found.history, found.freshness) == ("ignore", (), 60.0)
    assert options("t", patterns, {"deletes": None}).deletes == "hard"
    assert options("t", patterns, {}).deletes == "soft"
    assert options("t", {}, {"deletes": "soft"}).deletes == "soft"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"deletes": "sotf"}, '"].deletes must be'),
        ({"delete": "soft"}, '"].delete'),
        ({"history": {"mode": "x"}}, '"].history.mode must be'),
        ({"history": ["changes", {"mode": "scd2", "x": 1}]}, '"].history[1].x'),
        ({"late_days": 3}, '"].late_days has no meaning'),
        ({"deletes": "soft", "Deletes": "hard"}, '"].deletes and '),
        ("soft", '"] must be an object'),
        ([[]], '"] must be an object'),
    ],
)
def test_an_error_names_option_and_pattern(given: Any, named: str) -> None:
    with pytest.raises(TableError) as error:
        options("s.t", {"s.*": given, "*": {"deletes": "soft"}})
    assert error.value.code == "metadata-invalid"
    assert error.value.file == "mirroring.json"
    assert error.value.message.startswith("mirroring.json ") and 'lakemirror.tables["s.*' + named in error.value.message
    assert options("other", {"s.*": given, "*": {"deletes": "soft"}}).deletes == "soft"


@pytest.mark.parametrize("asked", [{"deletes": "soft"}, {"history": "scd2"}])
def test_a_table_without_keys(asked: Any) -> None:
    for keys in ((), None):
        with pytest.raises(TableError, match=r'lakemirror.tables\["\*"\].*needs keyColumns'):
            options("t", {"*": asked}, keys=keys)


def test_the_publisher_s_own_error_names_its_file() -> None:
    with pytest.raises(TableError, match=r"_metadata.json lakemirror.deletes must be"):
        options("t", {"*": {"deletes": "soft"}}, {"deletes": "x"})


@pytest.mark.parametrize("value", ["x", "[1]", [1], 5, {"": {}}, {f"{n}*": {} for n in range(1001)}])
def test_a_setting_that_is_no_object_of_patterns(value: Any) -> None:
    with pytest.raises(LakemirrorError) as error:
        converted("tables", value, "mirroring.json")
    assert error.value.code == "setting-invalid"


def test_a_database(tmp_path: Path) -> None:
    """One table fails, the others go on; check, verify, status and replay know the options."""
    define(tmp_path, {"*": {"deletes": "soft"}, "t": {"history": "changes"}, "bad*": {"deletes": "x"}})
    for table in ("t", "u", "bad"):
        declare(tmp_path, table, ["id"], **({"lakemirror": {"deletes": "hard"}} if table == "u" else {}))
        put(tmp_path, table, 1, {"id": [1, 2]})
        put(tmp_path, table, 2, {"id": [1], MARKER: [2]})
    database = MirroredDatabase(tmp_path, **SETTINGS)
    done = database.sync()
    assert {name: each.error and each.error.code for name, each in done.tables.items()} == {
        "t": None, "u": None, "bad": "metadata-invalid",
    }  # fmt: skip
    assert sorted(read_table(tmp_path / "Tables/t")["__deleted"].to_pylist()) == [False, True]
    assert read_table(tmp_path / "Tables/t__changes").num_rows == 3
    assert read_table(tmp_path / "Tables/u").to_pydict() == {"id": [2]}
    storage, settings = LocalStorage(tmp_path), database.settings
    zone = scan(storage)
    codes = {
        str(n): {f.code for f in check_table(storage, each, settings, AppliedFiles(), now=9e9)}
        for n, each in zone.tables.items()
    }
    assert "metadata-invalid" in codes["bad"] and "metadata-invalid" not in codes["t"] | codes["u"]
    report = verify_database(storage, ["t"], Options(against_files=True, patterns=settings.tables))
    assert [each.table for each in report.tables] == ["t", "t__changes"] and codes_of(report) == {"verify-not-compared"}
    blind = verify_database(storage, ["t"], Options(against_files=True))
    assert len(blind.tables) == 1, "verify finds a history by the patterns"

    aside = tmp_path / "Files/LandingZone/t/_QuarantinedFiles"
    aside.mkdir()
    (tmp_path / f"Files/LandingZone/t/_ProcessedFiles/{1:020}.parquet").rename(aside / f"{1:020}.parquet")
    with pytest.raises(LakemirrorError) as error:
        database.replay("t")
    assert error.value.code == "history-has-no-place"


def test_an_empty_folder_without_metadata_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "Files/LandingZone/t"
    folder.mkdir(parents=True)
    storage, patterns = LocalStorage(tmp_path), converted("tables", {"*": {"deletes": "soft"}})
    (empty,) = scan(storage).tables.values()
    assert read_metadata(storage, empty, patterns) == TableMetadata()
    put(tmp_path, "t", 1, {"id": [1]})
    (filled,) = scan(storage).tables.values()
    with pytest.raises(TableError, match="needs keyColumns"):
        read_metadata(storage, filled, patterns)


def test_a_run_follows_a_changed_file(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2]})
    define(tmp_path, {"x*": {"deletes": "soft"}})
    database, stop = MirroredDatabase(tmp_path, **SETTINGS, poll=0.0, poll_idle=0.05), threading.Event()
    runs = threading.Thread(target=lambda: database.run(stop=stop))
    runs.start()
    try:
        until(lambda: versions(tmp_path) >= 1)
        define(tmp_path, {"t": {"deletes": "soft"}})
        until(lambda: database._runner is not None and database._runner.settings.tables[0][0] == "t")
        put(tmp_path, "t", 2, {"id": [1], MARKER: [2]})
        until(lambda: database.status().tables[0].position == 2)
    finally:
        stop.set()
        runs.join(20)
    assert sorted(read_table(tmp_path / "Tables/t")["__deleted"].to_pylist()) == [False, True]
