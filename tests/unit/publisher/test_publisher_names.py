"""Names of columns: what cannot be published, which readers a name loses, and plain names."""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import CommandRunner
from tests.publisher.published_contents import changes
from typer.testing import Result

from lakemirror.cli import app
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.declared_types import TypeWarning
from lakemirror.publisher.plain_names import plain_name
from lakemirror.publisher.sources.file_options import FileOptions
from lakemirror.publisher.sources.files import publish_files

FORMATS = ["csv", "parquet", "arrow", "xlsx"]


def write(path: Path, names: Sequence[str]) -> Path:
    """A file with one row: 0, 1, 2, …"""
    table = pa.Table.from_arrays([pa.array([place]) for place in range(len(names))], names=list(names))
    if path.suffix == ".csv":
        path.write_text("\n".join(",".join(f'"{each}"' for each in line) for line in (names, range(len(names)))) + "\n")
    elif path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    else:
        openpyxl = pytest.importorskip("openpyxl", reason="the publish extra is not installed")
        book = openpyxl.Workbook()
        for row in (list(names), list(range(len(names)))):
            book.active.append(row)
        book.save(path)
    return path


def publish(tmp_path: Path, source: Path, *options: str) -> Result:
    return CommandRunner().invoke(
        app, ["publish", str(tmp_path / "db"), "t", "--from", str(source), "--keys", "id", "--create", *options]
    )


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["id", "a", "a"], "columns-ambiguous"),
        (["id", "id"], "columns-ambiguous"),
        (["id", "a", "A"], "columns-ambiguous"),
        (["id", ""], "column-name-invalid"),
        (["id", " "], "column-name-invalid"),
    ],
)
@pytest.mark.parametrize(
    "options",
    [
        (),
        pytest.param(("--preview",), marks=pytest.mark.full),
        pytest.param(("--mode", "snapshot"), marks=pytest.mark.full),
        ("--names", "plain"),
    ],
)
def test_names_that_make_no_table(
    tmp_path: Path, names: list[str], code: str, format: str, options: tuple[str, ...]
) -> None:
    done = publish(tmp_path, write(tmp_path / f"t.{format}", names), *options)
    assert (done.exit_code, done.stderr.partition(":")[0]) == (3, code), done.output
    assert not list(tmp_path.rglob("0*.parquet"))


@pytest.mark.parametrize("name", ["", "a\0b", "\t"])
def test_names_of_rows_that_make_no_table(tmp_path: Path, name: str) -> None:
    with pytest.raises(LakemirrorError) as caught:
        Landing(tmp_path).table("t").insert([{"id": 1, name: 2}])
    assert caught.value.code == "column-name-invalid"


def test_a_field_that_a_struct_has_twice_is_refused(tmp_path: Path) -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    for column in (twice, pa.ListArray.from_arrays([0, 1], twice)):
        with pytest.raises(LakemirrorError) as caught:
            Landing(tmp_path).table("t").insert(pa.table({"id": [1], "s": column}))
        assert (caught.value.code, caught.value.column) == ("columns-ambiguous", "s")


@pytest.mark.parametrize("format", FORMATS)
def test_a_name_that_loses_readers_is_said_once(tmp_path: Path, format: str) -> None:
    source = write(tmp_path / f"t.{format}", ["id", "first name"])
    done = publish(tmp_path, source)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert "'first name'" in line and "polars" in line and "--names plain" in line and "'first_name'" in line
    assert "warning" not in publish(tmp_path, source).stderr


def test_plain_names_lose_none(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Landing(tmp_path).table("t").insert([{"id": 1, "größe-2.x": 2}])


@pytest.mark.parametrize("format", FORMATS)
def test_columns_are_renamed(tmp_path: Path, format: str) -> None:
    source = write(tmp_path / f"t.{format}", ["the id", "price (EUR)", "op code"])  # its marker is 2
    options = ["--names", "plain", "--keys", "the id", "--marker-column", "op code", "--types", "price (EUR)=text"]
    for _ in range(2):
        done = publish(tmp_path, source, *options)
        assert done.exit_code == 0, done.output
        assert "warning: column 'price (EUR)' is published as price_EUR" in done.stderr
    assert changes(tmp_path / "db/Files/LandingZone/t") == [(2, {"the_id": 0, "price_EUR": "1"})] * 2


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("first name", "first_name"),
        ("price (EUR)", "price_EUR"),
        ("a=b;c", "a_b_c"),
        (" x ", "x"),
        ("_id", "_id"),
        ("größe", "größe"),
        ("a\r\nb", "a_b"),
        ("a__b", "a__b"),
        ("()", ""),
    ],
)
def test_the_plain_name(name: str, plain: str) -> None:
    assert plain_name(name) == plain
    assert plain_name(plain) == plain


@pytest.mark.parametrize(
    ("names", "code"),
    [(["id", "a b", "a_b"], "columns-ambiguous"), (["id", "a b", "A,B"], "columns-ambiguous"),
     (["id", "()"], "column-name-invalid")],
)  # fmt: skip
def test_names_that_would_meet_are_refused(tmp_path: Path, names: list[str], code: str) -> None:
    done = publish(tmp_path, write(tmp_path / "t.parquet", names), "--names", "plain")
    assert (done.exit_code, done.stderr.partition(":")[0]) == (3, code)


def test_later_files_keep_the_types_of_renamed_columns(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t", ["id"])
    for text in ("id,zip code\n1,007\n", "id,zip code\n2,12345\n"):
        (tmp_path / "t.csv").write_text(text)
        with pytest.warns(TypeWarning, match="'zip code' is published as zip_code"):
            publish_files(table, [tmp_path / "t.csv"], options=FileOptions(plain_names=True))
    assert [row["zip_code"] for _, row in changes(table.folder)] == ["007", "12345"]


def test_a_query_names_its_columns(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "s.db").close()
    done = CommandRunner().invoke(
        app, ["publish", str(tmp_path / "db"), "t", "--from-sql", f"sqlite:///{tmp_path}/s.db", "--query", "select 1",
              "--names", "plain", "--create"]
    )  # fmt: skip
    assert done.exit_code == 2
    assert publish(tmp_path, write(tmp_path / "t.csv", ["id"]), "--names", "short").exit_code == 2


def test_sync_and_tables_name_the_readers_that_are_lost(tmp_path: Path) -> None:
    publish(tmp_path, write(tmp_path / "t.csv", ["id", "first name"]))
    db = str(tmp_path / "db")
    done = CommandRunner().invoke(app, ["sync", db, "--engine", "local"])
    assert done.exit_code == 0, done.output
    assert "column-mapping" in done.output and "polars" in done.output
    assert "polars" in CommandRunner().invoke(app, ["tables", db]).output
    (table,) = json.loads(CommandRunner().invoke(app, ["tables", db, "--json"]).stdout)
    assert any("polars" in each for each in table["unreadableBy"])
