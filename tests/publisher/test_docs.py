"""Every example of docs/how-to/write-a-publisher.md is run, in its order, and leaves what the page says."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from published_contents import MARKER, change_files, changes, fold, others
from tests import preloaded

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-publisher.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = """
import sys, typer
from lakemirror.cli.publish import publish
assert sys.argv.pop(1) == "publish"
typer.run(publish)
"""


def run_block(language: str, code: str, folder: Path, environment: dict[str, str]) -> None:
    command = {
        "python": [sys.executable, "-W", "error", "-c", code],
        "sql": [sys.executable, "-c", "import duckdb, sys; duckdb.execute(sys.argv[1])", code],
        "sh": ["sh", "-euc", code],
    }[language]
    start = subprocess.run if language == "sh" else preloaded.run
    done = start(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def zone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The landing zone after all examples."""
    folder = tmp_path_factory.mktemp("page")
    binaries = folder / "bin"
    binaries.mkdir()
    preloaded.program(binaries / "lakemirror", "-c", COMMAND)
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"}
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert [language for language, _ in blocks] == ["python"] * 4 + ["sh", "sql"] + ["sh"] * 3
    for language, code in blocks:
        run_block(language, code, folder, environment)
    return folder / "shop" / "Files" / "LandingZone"


EXPECTED = {
    "orders": [
        {"id": 1, "item": "tea", "price": 2.5},
        {"id": 2, "item": "large cup", "price": 5.0},
        {"id": 4, "item": "spoon", "price": 1.0},
    ],
    "clicks": [{"id": number, "page": f"/{number % 7}"} for number in range(1000)],
    "invoices": [{"id": 2, "total": 25.0}],
    "customers": [{"id": id, "name": "renamed" if id == 2 else f"customer {id}"} for id in range(1, 5)],
    "people": [{"id": 1, "name": "Ada", "zip": "01234"}, {"id": 3, "name": "Eve", "zip": "00008"}],
}


@pytest.mark.parametrize("table", EXPECTED)
def test_tables_hold_what_the_page_says(zone: Path, table: str) -> None:
    rows = fold(changes(zone / table), ["id"])
    assert sorted(rows, key=lambda row: row["id"]) == EXPECTED[table]


def test_the_snapshot_of_the_page(zone: Path) -> None:
    rows = fold(changes(zone / "stock"), ["warehouse", "item"])
    assert {(row["warehouse"], row["item"]): row["count"] for row in rows} == {
        (1, "tea"): 10,
        (2, "tea"): 29,
        (2, "pot"): 5,
    }
    assert pq.read_metadata(change_files(zone / "stock")[2]).num_rows == 3


def test_the_delimited_text_of_the_page(zone: Path) -> None:
    from lakemirror.landing_zone.delimited import convert
    from lakemirror.landing_zone.metadata import parse_metadata

    folder, target = zone / "payments", io.BytesIO()
    metadata = parse_metadata((folder / "_metadata.json").read_bytes(), "_metadata.json")
    with (folder / f"{1:020d}.csv").open("rb") as source:
        convert(source, target, file="1.csv", metadata=metadata)
    assert [list(row.values()) for row in pq.read_table(target).to_pylist()] == [
        [1, Decimal("19.90"), datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc), 'two "large" cups,\nand a pot', 4],
        [2, Decimal("5.00"), None, "", 4],
        [1, None, None, None, 2],
    ]


def test_every_table_obeys_the_contract(zone: Path) -> None:
    for folder in zone.iterdir():
        if folder.name == "payments":
            continue  # delimited text: not what the publisher writes
        assert others(folder) == set()
        assert not [path for path in folder.iterdir() if path.suffix == ".tmp"]
        assert json.loads((folder / "_metadata.json").read_text())["keyColumns"]
        for path in change_files(folder).values():
            schema = pq.read_schema(path)
            if MARKER in schema.names:
                assert schema.names[-1] == MARKER
                assert schema.field(MARKER).type == pa.int32()


def test_no_error_is_found_in_any_of_them(zone: Path) -> None:
    from lakemirror.lint import check

    assert [finding for finding in check(zone) if finding.severity == "error"] == []


def test_the_shell_example_counts_files_at_rest(zone: Path, tmp_path: Path) -> None:
    """The function of the page, on a folder whose applied files were moved."""
    code = next(code for language, code in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if "publish()" in code)
    function = code[: code.index("folder=")]
    folder = tmp_path / "t"
    (folder / "_ProcessedFiles").mkdir(parents=True)
    (folder / "_ProcessedFiles" / f"{8:020d}.parquet").touch()
    (folder / f"{9:020d}.parquet").touch()  # 9 has a digit that an octal number cannot have
    (folder / "_x.tmp").write_text("x")
    subprocess.run(["sh", "-euc", f"{function}\npublish {folder} _x.tmp"], check=True)
    assert (folder / f"{10:020d}.parquet").read_text() == "x"
    assert not (folder / "_x.tmp").exists()


def test_the_markers_of_the_page_are_those_of_the_code() -> None:
    from lakemirror.publisher.change_writer import DELETE, INSERT, MARKERS, UPDATE, UPSERT

    listed = dict(re.findall(r"^\| (\d) \| (\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {str(INSERT): "insert", str(UPDATE): "update", str(DELETE): "delete", str(UPSERT): "upsert"}
    assert set(MARKERS) == {int(marker) for marker in listed}
