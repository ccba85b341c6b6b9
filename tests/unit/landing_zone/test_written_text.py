"""Numbers and dates as people write them: read as declared, refused exactly, warned of where nothing is declared."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lakemirror.errors import TableError
from lakemirror.landing_zone.date_pattern import date_pattern
from lakemirror.landing_zone.delimited import convert, read_columns
from lakemirror.landing_zone.metadata import parse_metadata
from lakemirror.lint import check

GERMAN = {"columnSeparator": ";", "decimalSeparator": ",", "thousandsSeparator": ".", "dateFormat": "d.M.yyyy",
          "timestampFormat": "dd.MM.yyyy HH:mm[:ss[.SSS]]"}  # fmt: skip
TYPES = {"id": "Int64", "amount": "Decimal(12,2)", "rate": "Double", "day": "IDate", "at": "DateTime", "name": "String"}


def metadata(properties: dict[str, Any], types: dict[str, str] | None = None) -> Any:
    columns = [{"Name": name, "DataType": kind} for name, kind in (TYPES if types is None else types).items()]
    content = {"fileFormat": "CSV", "fileFormatTypeProperties": properties, "SchemaDefinition": {"Columns": columns}}
    return parse_metadata(json.dumps(content).encode(), "_metadata.json")


def rows(text: str | bytes, properties: dict[str, Any], types: dict[str, str] | None = None) -> list[dict[str, Any]]:
    data = text.encode() if isinstance(text, str) else text
    batches = read_columns(io.BytesIO(data), file="1.csv", metadata=metadata(properties, types))
    return [row for batch in batches for row in batch.to_pylist()]


def refused(text: str | bytes, properties: dict[str, Any], types: dict[str, str] | None = None) -> TableError:
    with pytest.raises(TableError) as caught:
        rows(text, properties, types)
    return caught.value


def test_a_german_spreadsheet() -> None:
    text = (
        "sep=;\r\nid;amount;rate;day;at;name\r\n"
        "1.234;-1.234.567,89;0,5;1.3.2026;01.03.2026 07:08;Größe\r\n"
        '2;12,5;;;01.03.2026 07:08:09.5;"a;b"\r\n'
    )
    utc = dt.timezone.utc
    assert rows(text.encode("windows-1252"), {**GERMAN, "encoding": "windows-1252"}) == [
        {"id": 1234, "amount": Decimal("-1234567.89"), "rate": 0.5, "day": dt.date(2026, 3, 1),
         "at": dt.datetime(2026, 3, 1, 7, 8, tzinfo=utc), "name": "Größe"},
        {"id": 2, "amount": Decimal("12.50"), "rate": None, "day": None,
         "at": dt.datetime(2026, 3, 1, 7, 8, 9, 500_000, utc), "name": "a;b"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("amount", "1.5"), ("amount", "1.2345"), ("amount", "12.34.567"), ("amount", "1,234"), ("amount", "1,,2"),
        ("id", "5,0"), ("rate", "1.5"), ("day", "2026-03-01"), ("day", "31.2.2026"), ("day", "1.3.26"),
        ("at", "1.3.2026 07:08"), ("at", "01.03.2026 25:00"), ("rate", "x"),
    ],
)  # fmt: skip
def test_what_is_not_as_declared_is_refused_where_it_is(column: str, value: str) -> None:
    good = {"id": "1", "amount": "1,0", "rate": "1", "day": "1.3.2026", "at": "01.03.2026 07:08", "name": "x"}
    lines = [";".join(good), *[";".join(good.values())] * 3, ";".join({**good, column: value}.values())]
    error = refused("\r\n".join(lines), GERMAN)
    assert (error.code, error.row, error.column) == ("value-invalid", 5, column)
    assert repr(value) in error.message


def test_row_markers_are_plain_numbers() -> None:
    assert rows("__rowMarker__;id\n4;1.000\n", GERMAN)[0] == {"__rowMarker__": 4, "id": 1000}
    assert refused("__rowMarker__;id\n1.000;1\n", GERMAN).code == "row-marker-invalid"


@pytest.mark.parametrize("between", [" ", "\u00a0", "\u202f"])
def test_any_space_stands_between_thousands(between: str) -> None:
    french = {"columnSeparator": ";", "decimalSeparator": ",", "thousandsSeparator": " "}
    assert rows(f"id;rate\n1{between}000{between}000;2{between}500,25\n", french) == [
        {"id": 1_000_000, "rate": 2500.25}
    ]


@pytest.mark.parametrize(
    ("pattern", "text", "iso"),
    [
        ("M/d/yyyy h:mm a", "3/1/2026 12:05 AM", "2026-03-01T00:05:00"),
        ("M/d/yyyy h:mm a", "3/1/2026 1:05 pm", "2026-03-01T13:05:00"),
        ("dd-MMM-yy", "01-mar-26", "2026-03-01T00:00:00"),
        ("d MMMM yyyy", "1 March 2026", "2026-03-01T00:00:00"),
        ("yyyyMMdd'T'HHmmssXX", "20260301T070809+0130", "2026-03-01T07:08:09+0130"),
        ("yyyy-MM-dd HH:mm:ss.SSSXXX", "2026-03-01 07:08:09.123Z", "2026-03-01T07:08:09.123Z"),
        ("yyyy-MM-dd", "2026-3-1", None),
        ("d.M.yyyy", "1.3.2026 x", None),
    ],
)
def test_patterns(pattern: str, text: str, iso: str | None) -> None:
    import pyarrow as pa

    assert date_pattern(pattern).iso(pa.array([text, None]), with_time=True).to_pylist() == [iso, None]


@pytest.mark.parametrize("pattern", ["dd.MM", "yyyy-MM-dd EEE", "yyyy-MM-dd 'x", "[yyyy-MM-dd", "dd.dd.yyyy.MM", "x",
                                     "yyyy-MM-dd hh:mm", "yyyyy-MM-dd", "yyyy-MM-dd]"])  # fmt: skip
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(TableError) as caught:
        metadata({"dateFormat": pattern})
    assert caught.value.code == "metadata-invalid"
    assert "dateFormat" in caught.value.message


def test_separators_that_are_the_same_are_refused() -> None:
    with pytest.raises(TableError, match="thousandsSeparator"):
        metadata({"thousandsSeparator": "."})


@pytest.mark.parametrize(
    ("text", "types", "hint"),
    [
        ('id,rate\n1,"1,5"\n', {"id": "Int64", "rate": "Double"}, '"decimalSeparator": ","'),
        (
            'id,rate\n1,"1.234,5"\n',
            {"id": "Int64", "rate": "Double"},
            '"decimalSeparator": "," and "thousandsSeparator": "."',
        ),
        ("id,rate\n1,1'000\n", {"id": "Int64", "rate": "Double"}, '"thousandsSeparator": "\'"'),
        ("id,day\n1,01.03.2026\n", {"id": "Int64", "day": "IDate"}, '"dateFormat": "d.M.yyyy"'),
        ("id,at\n1,13/3/2026 7:05\n", {"id": "Int64", "at": "DateTime"}, '"timestampFormat": "d/M/yyyy H:mm"'),
        ("id;rate\n1;2\n", {"id": "Int64", "rate": "Double"}, '"columnSeparator": ";"'),
        ("sep=;\nid;rate\n1;2\n", {"id": "Int64", "rate": "Double"}, '"columnSeparator": ";"'),
        ("id,name\n1,Größe\n".encode("windows-1252"), {"id": "Int64", "name": "String"}, '"encoding": "windows-1252"'),
    ],
)
def test_hints_name_what_to_declare(text: str | bytes, types: dict[str, str], hint: str) -> None:
    assert hint in refused(text, {}, types).hint


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (["1,5", "2.000,25"], 'decimalSeparator ","'),
        (["7,50", "1.234,50"], 'decimalSeparator "," and thousandsSeparator "."'),
        (["1,000", "22,000.5"], 'thousandsSeparator ","'),
        (["1.3.2026", "11.12.2026"], 'dateFormat "d.M.yyyy"'),
        (["3/1/2026"], "M/d/yyyy"),
        (["3/1/2026 1:05 PM"], "timestampFormat"),
    ],
)
def test_strings_that_look_like_more_are_warned_of(values: list[str], what: str, tmp_path: Path) -> None:
    text = "id;v\n" + "".join(f"{number};{value}\n" for number, value in enumerate(values))
    document = {"fileFormat": "CSV", "fileFormatTypeProperties": {"columnSeparator": ";"}}
    found = convert(
        io.BytesIO(text.encode()),
        io.BytesIO(),
        file="1.csv",
        metadata=parse_metadata(json.dumps(document).encode(), "m"),
    )
    assert [warned.code for warned in found] == ["text-looks-typed"]
    assert what in found[0].message
    folder = tmp_path / "orders"
    folder.mkdir()
    (folder / "_metadata.json").write_text(json.dumps(document))
    (folder / "00000000000000000001.csv").write_text(text)
    assert "text-looks-typed" in {finding.code for finding in check(folder)}


@pytest.mark.parametrize("values", [["1", "2"], ["1,5", "x"], [""], ["1.5"], ["10.0.0.1"], ["2026-03-01"]])
def test_other_strings_are_not(values: list[str]) -> None:
    text = "id;v\n" + "".join(f"{number};{value}\n" for number, value in enumerate(values))
    form = metadata({"columnSeparator": ";"}, {})
    assert convert(io.BytesIO(text.encode()), io.BytesIO(), file="1.csv", metadata=form) == ()


def test_a_header_that_is_one_column_is_warned_of() -> None:
    found = convert(io.BytesIO(b"id;name\n1;a\n"), io.BytesIO(), file="1.csv", metadata=metadata({}, {}))
    assert [warned.code for warned in found] == ["separator-doubtful"]


def test_bytes_that_are_no_text_are_shown_with_one_escape() -> None:
    found = refused(b"id,name\n1,M\xfcller\n", {}, {"id": "Int64", "name": "String"})
    assert r"'M\xfcller' is not UTF-8" in found.message
