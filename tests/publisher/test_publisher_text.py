"""CSV as spreadsheets write it, and spreadsheets themselves, published with the types that their cells mean."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import sys
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from published_contents import changes, fold
from tests.commands import CommandRunner

from lakemirror.cli import app
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.declared_types import TypeWarning
from lakemirror.publisher.sources.file_options import FileOptions
from lakemirror.publisher.sources.files import publish_files, read_file
from lakemirror.publisher.sources.text_types import KnownTypes

pytestmark = pytest.mark.usefixtures("door")

GERMAN = FileOptions(";", ",", ".", "dd.MM.yyyy", "dd.MM.yyyy HH:mm", "windows-1252")
EXPORT = 'sep=;\r\nid;amount;day;at;name\r\n1;1.234,50;01.03.2026;01.03.2026 07:08;Größe\r\n2;2,00;;;"a;b"\r\n'
ROWS = [
    {"id": 1, "amount": Decimal("1234.50"), "day": dt.date(2026, 3, 1),
     "at": dt.datetime(2026, 3, 1, 7, 8), "name": "Größe"},
    {"id": 2, "amount": Decimal("2.00"), "day": None, "at": None, "name": "a;b"},
]  # fmt: skip


@pytest.mark.parametrize("name", ["export.csv", "export.csv.gz"])
def test_a_german_export(name: str, tmp_path: Path) -> None:
    data = EXPORT.encode("windows-1252")
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert read_file(tmp_path / name, options=GERMAN).read_all().to_pylist() == ROWS


def test_the_command_takes_the_same(tmp_path: Path) -> None:
    (tmp_path / "export.csv").write_bytes(EXPORT.encode("windows-1252"))
    given = ["--delimiter", ";", "--decimal", ",", "--thousands", ".", "--date-format", "dd.MM.yyyy",
             "--timestamp-format", "dd.MM.yyyy HH:mm", "--encoding", "windows-1252", "--keys", "id",
             "--column", "amount=decimal(10,2)"]  # fmt: skip
    source = ["--from", str(tmp_path / "export.csv")]
    done = CommandRunner().invoke(app, ["publish", str(tmp_path / "shop"), "orders", *source, *given, "--create"])
    assert done.exit_code == 0, done.output
    rows = fold(changes(tmp_path / "shop/Files/LandingZone/orders"), ["id"])
    assert rows[0]["amount"] == Decimal("1234.50")
    assert rows[0]["day"] == dt.date(2026, 3, 1)


def test_a_second_file_keeps_the_types_of_the_first(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("orders", ["id"])
    for number, amount in ((1, "1,5"), (2, "2,0")):
        (tmp_path / "t.csv").write_text(f"id;amount\n{number};{amount}\n")
        publish_files(table, [tmp_path / "t.csv"], options=FileOptions(";", ","))
    assert [row["amount"] for row in fold(changes(table.folder), ["id"])] == [Decimal("1.5"), Decimal("2.0")]


@pytest.mark.parametrize(
    ("text", "form", "columns", "hint"),
    [
        ('id,v\n1,2\n2,"2,5"\n', FileOptions(), {"v": pa.float64()}, '--decimal ","'),
        ("id,v\n1,2026-01-01\n2,31.1.2026\n", FileOptions(), {"v": pa.date32()}, '--date-format "d.M.yyyy"'),
        ("id,v\n1,2\n2,2,5\n", FileOptions(), {}, ""),
        ("id;v\n1;2,5\n2;2.5\n", FileOptions(";", ","), {"v": pa.float64()}, ""),
    ],
)
def test_what_does_not_fit_is_said_with_its_line(
    text: str, form: FileOptions, columns: dict[str, Any], hint: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(LakemirrorError) as caught:
        read_file(tmp_path / "t.csv", KnownTypes(columns), options=form).read_all()
    assert (caught.value.code, caught.value.row) == ("value-invalid", 3)
    assert "t.csv, line 3" in caught.value.message
    assert hint in caught.value.hint


def test_another_encoding_is_hinted_at(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("id,name\n1,Größe\n".encode("windows-1252"))
    with pytest.raises(LakemirrorError) as caught:
        read_file(tmp_path / "t.csv")
    assert "--encoding" in caught.value.hint


@pytest.mark.parametrize(
    "form", [FileOptions(decimal=";"), FileOptions(thousands="x"), FileOptions(decimal=",", thousands=","),
             FileOptions(date_format="x"), FileOptions(encoding="none-such")],
)  # fmt: skip
def test_forms_that_are_none(form: FileOptions, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a\n1\n")
    with pytest.raises(LakemirrorError) as caught:
        read_file(tmp_path / "t.csv", options=form)
    assert caught.value.code == "input-invalid"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("id;v\n1;2,5\n", "--decimal"),
        ("id;v\n1;1.3.2026\n", "--date-format"),
        ("id;v\n1;3/1/2026 7:05\n", "--timestamp"),
    ],
)
def test_strings_that_look_like_more_are_warned_of(text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.warns(TypeWarning, match=what):
        read_file(tmp_path / "t.csv", options=FileOptions(";")).read_all()


def test_another_separator_is_hinted_at(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id;v\n1;2.5\n")
    with pytest.warns(TypeWarning, match='--delimiter ";"'):
        read_file(tmp_path / "t.csv").read_all()
    (tmp_path / "t.csv").write_text("id;v\n1;2,5\n")
    with pytest.raises(LakemirrorError) as caught:
        read_file(tmp_path / "t.csv")
    assert '--delimiter ";"' in caught.value.hint


def test_plain_text_is_warned_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,v,w\n1,2.5,a\n2,,2026-01-01\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_file(tmp_path / "t.csv").read_all()


def workbook(path: Path, rows: list[list[Any]], title: str = "Sheet1") -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="the publish extra is not installed")
    book = openpyxl.Workbook()
    book.active.title = title
    for row in rows:
        book.active.append(row)
    book.create_sheet("Other").append(["only"])
    book.save(path)


def test_a_workbook(tmp_path: Path) -> None:
    moment = dt.datetime(2026, 3, 1, 7, 8)
    header = ["id", "price", "day", "at", "name", "paid", "none"]
    workbook(tmp_path / "b.xlsx", [
        header, [1, 2.5, dt.date(2026, 3, 1), moment, "tea", True, None],
        [2, 3, None, dt.datetime(2026, 3, 1), "cup", False, None], [None] * 7,
    ])  # fmt: skip
    table = read_file(tmp_path / "b.xlsx").read_all()
    assert table.schema.types == [
        pa.int64(),
        pa.float64(),
        pa.date32(),
        pa.timestamp("us"),
        pa.string(),
        pa.bool_(),
        pa.null(),
    ]
    assert table.to_pylist() == [
        dict(zip(header, (1, 2.5, dt.date(2026, 3, 1), moment, "tea", True, None), strict=True)),
        dict(zip(header, (2, 3.0, None, dt.datetime(2026, 3, 1), "cup", False, None), strict=True)),
    ]
    assert read_file(tmp_path / "b.xlsx", options=FileOptions(sheet="Other")).schema.names == ["only"]
    with pytest.raises(LakemirrorError, match="has no sheet"):
        read_file(tmp_path / "b.xlsx", options=FileOptions(sheet="Missing"))


def test_cells_of_several_kinds(tmp_path: Path) -> None:
    workbook(tmp_path / "b.xlsx", [["id", "code"], [1, "A1"], [2, 7]])
    with pytest.warns(TypeWarning, match="several kinds"):
        assert [row["code"] for row in read_file(tmp_path / "b.xlsx").read_all().to_pylist()] == ["A1", "7"]
    with pytest.raises(LakemirrorError) as caught:
        read_file(tmp_path / "b.xlsx", KnownTypes({"code": pa.int64()})).read_all()
    assert (caught.value.code, caught.value.row, caught.value.column) == ("value-invalid", 2, "code")


def test_a_workbook_without_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b.xlsx").write_bytes(b"PK")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(LakemirrorError) as caught:
        read_file(tmp_path / "b.xlsx")
    assert caught.value.code == "excel-reader-missing"
    assert caught.value.code == "excel-reader-missing"


def test_a_workbook_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl", reason="the publish extra is not installed")
    (tmp_path / "b.xlsx").write_bytes(io.BytesIO(b"PK\x03\x04 and no more").getvalue())
    with pytest.raises(LakemirrorError, match=r"no readable \.xlsx"):
        read_file(tmp_path / "b.xlsx")
