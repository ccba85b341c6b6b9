"""Delimited text becomes Parquet, value by value and row by row (contract sections 2 and 6)."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import importlib
import io
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from folders import patient
from hypothesis import given
from hypothesis import strategies as st

from lakemirror.errors import TableError
from lakemirror.landing_zone.delimited import convert, exact_rows, fast_reader, records, text_source
from lakemirror.landing_zone.delimited import convert as convert_file
from lakemirror.landing_zone.delimited.fast_reader import FastReader, Inexact, _simply_quoted, _well_quoted, whole_rows
from lakemirror.landing_zone.delimited.records import Blocks, RecordReader
from lakemirror.landing_zone.metadata import DelimitedFormat, TableMetadata, parse_metadata

UTC = dt.timezone.utc
convert_module = importlib.import_module("lakemirror.landing_zone.delimited.convert")


def declared(*columns: tuple[str, str], **properties: str) -> TableMetadata:
    """The metadata of a CSV table, as a publisher writes it."""
    import json

    document: dict[str, Any] = {"fileFormat": "CSV", "fileFormatTypeProperties": properties}
    if columns:
        document["SchemaDefinition"] = {"Columns": [{"Name": name, "DataType": kind} for name, kind in columns]}
    return parse_metadata(json.dumps(document).encode(), "_metadata.json")


def read(text: str | bytes, metadata: TableMetadata | None = None, file: str = "f.csv", **options: Any) -> pa.Table:
    target = io.BytesIO()
    source = io.BytesIO(text.encode() if isinstance(text, str) else text)
    convert(source, target, file=file, metadata=metadata or declared(), **options)
    return pq.read_table(io.BytesIO(target.getvalue()))


def rows(text: str | bytes, metadata: TableMetadata | None = None, **options: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in read(text, metadata, **options).to_pylist()]


def refused(text: str | bytes, metadata: TableMetadata | None = None, **options: Any) -> TableError:
    with pytest.raises(TableError) as raised:
        read(text, metadata, **options)
    assert raised.value.file == options.get("file", "f.csv")
    return raised.value


# rows and fields


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\r\n1,2\r\n3,4\r\n", [("1", "2"), ("3", "4")]),
        ("a,b\n1,2\n3,4", [("1", "2"), ("3", "4")]),  # other line ends, and no last one
        ('a,b\r\n,""\r\n', [(None, "")]),
        ('a,b\r\n"x,y","1\r\n2"\r\n', [("x,y", "1\r\n2")]),
        ('a,b\r\n"say ""hi""","c:\\temp"\r\n', [('say "hi"', "c:\\temp")]),
        ('a,b\r\n"say \\"hi\\"","c:\\\\temp"\r\n', [('say "hi"', "c:\\temp")]),
        ('a,b\r\nc:\\\\x,5" disk\r\n', [("c:\\\\x", '5" disk')]),  # ordinary outside of quotes
        ("a,b\r\n\r\n1,2\r\n\r\n", [("1", "2")]),
        ("a\r\nx\r\n\r\ny\r\n", [("x",), (None,), ("y",)]),
        ("a,b\r\n1,x\ry\r\n", [("1", "x\ry")]),
        ("a,b\r\n1,\r\n", [("1", None)]),
        ("a,b\r\n1,", [("1", None)]),
        ('a,b\r\n1,"x"', [("1", "x")]),
        ('"a","b"\r\n 1 , 2 \r\n', [(" 1 ", " 2 ")]),
        ("a,b\r\n", []),
        ("a,b", []),
        ('a,b\r\n1,""""\r\n2,""""""\r\n', [("1", '"'), ("2", '""')]),
    ],
)
def test_fields(text: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(text) == expected


@pytest.mark.parametrize(
    ("properties", "text", "expected"),
    [
        ({"columnSeparator": ";"}, "a;b\n1;2,3\n", [("1", "2,3")]),
        ({"columnSeparator": "\t"}, "a\tb\n1\t2\n", [("1", "2")]),
        ({"columnSeparator": "|"}, "a|b\n1|2\n", [("1", "2")]),
        ({"rowSeparator": "\r"}, "a,b\r1,x\ny\r2,z\r", [("1", "x\ny"), ("2", "z")]),
        ({"rowSeparator": "\r"}, "a,b\r\n1,2\r\n", [("1", "2")]),
        ({"rowSeparator": "\n"}, "a,b\n1,x\ry\n", [("1", "x\ry")]),
        ({"quoteCharacter": "'"}, "a,b\n'x,y','it''s'\n", [("x,y", "it's")]),
        ({"quoteCharacter": "'"}, "a,b\n'it\\'s',\"\n", [("it's", '"')]),
        ({"quoteCharacter": ""}, 'a,b\n"x,y"\n', [('"x', 'y"')]),
        ({"escapeCharacter": "/"}, 'a,b\n"x/"y","c//d"\n', [('x"y', "c/d")]),
        ({"escapeCharacter": '"'}, 'a,b\n"x""y","c\\"\n', [('x"y', "c\\")]),
        ({"escapeCharacter": ""}, 'a,b\n"x\\","c"\n', [("x\\", "c")]),
        ({"nullValue": "N/A"}, 'a,b\nN/A,\n"N/A",""\n', [(None, ""), (None, "")]),
        ({"nullValue": ""}, 'a,b\n"",\n', [(None, None)]),
    ],
)
def test_properties(properties: dict[str, str], text: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(text, declared(**properties)) == expected


@pytest.mark.parametrize(
    "encoding", ["utf-8", "UTF-8", "utf8", "utf-16", "UTF-16LE", "utf-16-be", "utf-32", "utf-8-sig"]
)
def test_encodings_of_unicode(encoding: str) -> None:
    assert rows("ä,b\r\nö€,😀\r\n".encode(encoding), declared(encoding=encoding)) == [("ö€", "😀")]
    assert read("ä,b\r\nö€,😀\r\n".encode(encoding), declared(encoding=encoding)).column_names == ["ä", "b"]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("windows-1252", "é€"), ("cp1252", "ß"), ("iso-8859-1", "é"), ("latin1", "ü"), ("gb18030", "汉字"),
     ("shift_jis", "日本"), ("cp037", "x"), ("ascii", "x"), ("US-ASCII", "y"), ("koi8-r", "привет")],
)  # fmt: skip
def test_other_encodings(encoding: str, text: str) -> None:
    assert rows(f"a,b\r\n{text},1\r\n".encode(encoding), declared(encoding=encoding)) == [(text, "1")]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_wins_over_utf_8(encoding: str) -> None:
    if encoding != "utf-32":
        assert read("a,b\r\n1,2\r\n".encode(encoding)).column_names == ["a", "b"]


def test_a_byte_order_mark_behind_the_header_belongs_to_a_value() -> None:
    """As files that were joined have it. Arrow would leave it out at the beginning of what it reads."""
    mark = "\N{ZERO WIDTH NO-BREAK SPACE}"
    text = f"{mark}a,b\r\n{mark}1,x\r\n2,{mark}y\r\n"
    assert rows(text, declared(("a", "String"), ("b", "String"))) == [(f"{mark}1", "x"), ("2", f"{mark}y")]
    assert refused(text, declared(("a", "Int32"), ("b", "String"))).code == "value-invalid"


def test_text_that_is_not_in_its_encoding() -> None:
    error = refused(b"a,b\r\n1,2\r\n3,\xff\r\n")
    assert (error.code, error.row, error.column) == ("value-invalid", 3, "b")
    assert refused(b"a\r\nx\r\n\x81\r\n", declared(encoding="cp1252")).code == "file-unreadable"
    assert refused("a\r\nxy".encode("utf-16")[:-1], declared(encoding="utf-16")).code == "file-unreadable"


@pytest.mark.parametrize(
    ("text", "form", "advice"),
    [
        (b"id,v\r1,2\r3,4\r", {}, '"rowSeparator": "\\r"'),
        (b"id\r1\r2\r", {"rowSeparator": "\n"}, '"rowSeparator": "\\r"'),
        (b"id\n1\n2\n", {"rowSeparator": "\r"}, '"rowSeparator": "\\n"'),
        ("id,v\r\n1,2\r\n".encode("utf-16-le"), {}, '"encoding": "utf-16-le"'),
        (b"id,v,\r\n1,2,\r\n", {}, "a separator at the end"),
    ],
)
def test_a_header_that_shows_another_form(text: bytes, form: dict[str, str], advice: str) -> None:
    """All rows would be names of columns, and none of them in the table."""
    error = refused(text, declared(**form))
    assert error.code == "column-name-invalid" and advice in error.hint


def test_a_quoted_name_may_hold_line_breaks() -> None:
    assert read(b'"a\rb",c\r\n1,2\r\n').column_names == ["a\rb", "c"]


def test_a_decimal_separator_that_always_ends_the_field() -> None:
    same = {"decimalSeparator": ",", "columnSeparator": ","}
    assert rows(b'a\r\n"1,5"\r\n', declared(("a", "Double"), **same)) == [(1.5,)]
    with pytest.raises(TableError, match="decimalSeparator must differ from columnSeparator"):
        declared(quoteCharacter="", **same)


# compression

TEXT = b"a,b\r\n" + b"".join(b"%d,%d\r\n" % (n, n * n) for n in range(50_000))


def hadoop_snappy(data: bytes, piece: int = 65_536) -> bytes:
    found = b""
    for at in range(0, len(data), 4 * piece):
        block = data[at : at + 4 * piece]
        found += len(block).to_bytes(4, "big")
        for inner in range(0, len(block), piece):
            body = bytes(pa.compress(block[inner : inner + piece], "snappy"))
            found += len(body).to_bytes(4, "big") + body
    return found


def framed_snappy(data: bytes) -> bytes:
    found = b"\xff\x06\x00\x00sNaPpY"
    for at in range(0, len(data), 65_536):
        body = bytes(4) + bytes(pa.compress(data[at : at + 65_536], "snappy"))
        found += b"\x00" + len(body).to_bytes(3, "little") + body
    return found


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("f.csv.gz", gzip.compress(TEXT, 1)),
        ("f.csv.gz", gzip.compress(TEXT[:7]) + gzip.compress(TEXT[7:], 1)),
        ("f.csv.zst", bytes(pa.compress(TEXT, "zstd"))),
        ("f.csv.snappy", bytes(pa.compress(TEXT, "snappy"))),
        ("f.csv.snappy", hadoop_snappy(TEXT)),
        ("f.csv.snappy", framed_snappy(TEXT)),
    ],
)
def test_compressed_files(name: str, data: bytes) -> None:
    found = read(data, file=name)
    assert found.num_rows == 50_000
    assert found.column("a").to_pylist() == [str(n) for n in range(50_000)]
    assert refused(data[: len(data) // 2], file=name).code == "file-unreadable"
    assert refused(b"x" * 100, file=name).code == "file-unreadable"


# types

CASES: dict[str, list[tuple[str, Any]]] = {
    "Int16": [("-32768", -32768), (" 7 ", 7), ("+7", 7), ("007", 7)],
    "Int32": [("2147483647", 2147483647), ("-0", 0)],
    "Int64": [("9223372036854775807", 9223372036854775807)],
    "Single": [("1.5", 1.5), ("-1e10", -1e10)],
    "Double": [
        ("1e300", 1e300), (".5", 0.5), ("5.", 5.0), ("Infinity", math.inf), ("-inf", -math.inf), ("+1.25", 1.25),
    ],
    "Boolean": [("true", True), ("FALSE", False), ("1", True), ("0", False), (" True", True)],
    "String": [(" x ", " x ")],
    "DateTime": [
        ("2024-02-29T12:34:56Z", dt.datetime(2024, 2, 29, 12, 34, 56, tzinfo=UTC)),
        ("2024-02-29T12:34:56.1234567+02:00", dt.datetime(2024, 2, 29, 10, 34, 56, 123456, UTC)),
        ("2024-02-29 12:34:56", dt.datetime(2024, 2, 29, 12, 34, 56, tzinfo=UTC)),
        ("2024-02-29 12:34:56.7", dt.datetime(2024, 2, 29, 12, 34, 56, 700000, UTC)),
        ("2024-02-29T12:34:56.000-0130", dt.datetime(2024, 2, 29, 14, 4, 56, tzinfo=UTC)),
        ("2024-02-29", dt.datetime(2024, 2, 29, tzinfo=UTC)),
        ("2024-02-29T12:34", dt.datetime(2024, 2, 29, 12, 34, tzinfo=UTC)),
        ("1900-01-01T00:00:00.000z", dt.datetime(1900, 1, 1, tzinfo=UTC)),
        ("0001-01-01 00:00:00", dt.datetime(1, 1, 1, tzinfo=UTC)),
    ],
    "IDate": [("2024-02-29", dt.date(2024, 2, 29)), ("0001-01-01", dt.date(1, 1, 1))],
    "ITime": [("12:34:56", "12:34:56")],
    "ByteArray": [("AAEC", b"\0\1\2"), ("0x00fF", b"\0\xff"), ("0x", b"")],
    "Decimal(5,2)": [
        ("1.5", Decimal("1.50")), ("-999.99", Decimal("-999.99")), ("1.500", Decimal("1.50")), ("1e2", Decimal(100)),
    ],
    "Decimal(38,2)": [("1" * 36, Decimal("1" * 36)), ("1" * 36 + ".99", Decimal("1" * 36 + ".99"))],
    "Decimal(38,0)": [("9" * 38, Decimal("9" * 38))],
}  # fmt: skip
BAD: dict[str, list[str]] = {
    "Int16": ["32768", "1.0", "x", "0x1F", "1_0", "١"],
    "Int32": ["2147483648", "--1", "1e3"],
    "Int64": ["9223372036854775808", "0X1f", "-0x1"],
    "Single": ["1e39", "1,5", "x", "0x10"],
    "Double": ["1e999", "1_0", "NaN1", "nan(1)"],
    "Boolean": ["yes", "2", "t"],
    "DateTime": ["2024-02-30", "29.02.2024", "2024-02-29T25:00:00", "2024-02-29T12:34:56+99:00", "10000-01-01", "now"],
    "IDate": ["2024-2-9", "2024-02-29T00:00:00", "2023-02-29", "20240229", "0000-12-31"],
    "ByteArray": ["0x0", "0xzzz", "AAE", "ä"],
    "Decimal(38,2)": ["1" * 37, "1" * 38, "1" * 60, "1e36", "3.4E38", "-1.7e38"],
    "Decimal(38,0)": ["1e38", "3.4e38"],
    "Decimal(5,2)": ["1000", "1.005", "NaN", "x", "1e400"],
}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("alone", [True, False])
def test_values(kind: str, alone: bool) -> None:
    cases = CASES[kind]
    for group in [[case] for case in cases] if alone else [cases]:
        text = "n,v\r\n" + "".join(f'{n},"{value}"\r\n' for n, (value, _) in enumerate(group)) + "x,\r\n"
        found = read(text, declared(("n", "String"), ("v", kind))).column("v").to_pylist()
        assert found == [expected for _, expected in group] + [None], group


@pytest.mark.parametrize(("kind", "bad"), [(kind, value) for kind, values in BAD.items() for value in values])
def test_values_that_do_not_convert(kind: str, bad: str) -> None:
    good = CASES[kind][0][0]
    error = refused(f'n,v\r\n"1\r\n",{good}\r\n2,"{bad}"\r\n', declared(("n", "String"), ("v", kind)))
    assert (error.code, error.row, error.column) == ("value-invalid", 4, "v")
    assert repr(bad) in error.message


def test_nan_and_floats_too_small_are_values() -> None:
    found = read("v\r\nNaN\r\n1e-400\r\n", declared(("v", "Double"))).column("v").to_pylist()
    assert math.isnan(found[0]) and found[1] == 0.0


def test_an_empty_text_is_null_outside_of_strings() -> None:
    metadata = declared(("s", "String"), ("i", "Int32"), ("b", "ByteArray"), nullValue="N/A")
    assert rows('s,i,b\r\n"","",""\r\nN/A,N/A,\r\n', metadata) == [("", None, None), (None, None, None)]


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(refused("v\r\n" + "9" * 5000 + "\r\n", declared(("v", "Int32"))).message) < 200


def test_the_first_bad_value_by_line_is_named_however_far_it_is() -> None:
    lines = [f"{n},{n}" for n in range(300_000)]
    lines[250_000] = "1,x"
    lines[250_001] = "y,1"
    error = refused("a,b\r\n" + "\r\n".join(lines), declared(("a", "Int32"), ("b", "Int64")))
    assert (error.row, error.column) == (250_002, "b")


# columns


def test_columns_are_declared_by_name_in_any_case_and_order() -> None:
    metadata = declared(("ID", "Int64"), ("gone", "Int32"), ("Price", "Decimal(9,2)"))
    found = read("price,__rowMarker__,id\r\n1.5,4,7\r\n2,,8\r\n", metadata)
    assert found.schema.names == ["price", "__rowMarker__", "id"]
    assert found.schema.types == [pa.decimal128(9, 2), pa.int32(), pa.int64()]
    assert found.column("__rowMarker__").to_pylist() == [4, None]


def test_without_schema_every_column_is_a_string_but_the_marker() -> None:
    assert read("a,__rowMarker__\r\n1,0\r\n").schema.types == [pa.string(), pa.int32()]


def test_undeclared_columns() -> None:
    metadata = declared(("a", "Int32"))
    error = refused("a,extra\r\n1,2\r\n", metadata)
    assert (error.code, error.column) == ("column-undeclared", "extra")
    assert read("a,extra\r\n1,2\r\n", metadata, undeclared="string").to_pylist() == [{"a": 1, "extra": "2"}]


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("", "file-unreadable", None),
        ("a,A\r\n1,2\r\n", "columns-ambiguous", None),
        ("a,\r\n1,2\r\n", "column-name-invalid", None),
        ("a,b\r\n1,2\r\n1\r\n", "value-invalid", 3),
        ('a,b\r\n"1\r\n",2\r\n1,2,3\r\n', "value-invalid", 4),
        ('a,b\r\n"1"x,2\r\n', "value-invalid", 2),
        ('a,b\r\n"1" ,2\r\n', "value-invalid", 2),
        ('a,b\r\n1,2\r\n"1,2\r\n3,4\r\n', "file-unreadable", 3),
        ("a,__rowMarker__\r\n1,4\r\n1,x\r\n", "row-marker-invalid", 3),
        ("a,__rowMarker__\r\n1,4.0\r\n", "row-marker-invalid", 2),
    ],
)
def test_what_is_wrong_with_a_file(text: str, code: str, line: int | None) -> None:
    error = refused(text)
    assert (error.code, error.row) == (code, line)


# bounds


def test_a_row_without_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_IN_RECORD", 3 * text_source.BLOCK)
    assert refused(b'a,b\r\n1,"' + b"x" * 9 * text_source.BLOCK).code == "file-too-large"
    bomb = gzip.compress(b"a\r\n" + b"x" * 40 * text_source.BLOCK)
    assert refused(bomb, file="f.csv.gz").code == "file-too-large"


def test_more_memory_takes_a_longer_row() -> None:
    text = ("a,b\r\n1," + "x" * (9 << 20) + "\r\n").encode()
    error = refused(text, memory=64 << 20)
    assert (
        error.code == "file-too-large" and f"more than {2 << 20} bytes" in error.message and "`memory`" in error.message
    )
    assert len(rows(text, memory=512 << 20)) == 1


def test_a_row_longer_than_the_blocks_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "ä" * (2 * text_source.BLOCK)
    assert rows(f"a,b\r\n1,{long}\r\n2,x\r\n") == [("1", long), ("2", "x")]


# any table in any form

TEXTS = st.text(st.sampled_from("ab,;|'\"\\/\r\n\t é\0x0"), max_size=6)
FORMS = st.builds(
    DelimitedFormat,
    row_separator=st.sampled_from(["\r\n", "\n", "\r"]),
    column_separator=st.sampled_from(",;|\t"),
    quote=st.sampled_from(['"', "'"]),
    escape=st.sampled_from(["\\", "/", '"', ""]),
    null_value=st.none() | st.sampled_from(["N/A", "null"]),
)


def written(table: list[list[str | None]], form: DelimitedFormat, choices: Any) -> str:
    """The table as text, each field quoted or not where both would do, each quote escaped in one of its ways."""
    lines = []
    for row in table:
        fields = []
        for value in row:
            null = form.null_value or ""
            text = null if value is None else value
            special = any(each in text for each in (form.column_separator, "\r", "\n")) or text.startswith(form.quote)
            must = special or (value == "" and form.null_value is None)
            if (must or choices.draw(st.booleans())) and not (value is None and form.null_value is None):
                escape = form.escape if form.escape not in ("", form.quote) else ""
                inner = text.replace(escape, escape * 2) if escape else text
                doubled = escape + form.quote if escape and choices.draw(st.booleans()) else form.quote * 2
                text = form.quote + inner.replace(form.quote, doubled) + form.quote
            fields.append(text)
        lines.append(form.column_separator.join(fields))
    return form.row_separator.join(lines) + (form.row_separator if choices.draw(st.booleans()) else "")


@patient
@given(
    table=st.lists(st.lists(TEXTS | st.none(), min_size=2, max_size=2), max_size=6), form=FORMS, choices=st.data(),
    block=st.integers(1, 40),
)  # fmt: skip
def test_any_table_is_read_as_it_was_written(
    table: list[list[str | None]], form: DelimitedFormat, choices: Any, block: int
) -> None:
    table = [
        [None if form.null_value is not None and value == form.null_value else value for value in row] for row in table
    ]
    data = ("a" + form.column_separator + "b" + form.row_separator + written(table, form, choices)).encode()
    metadata = TableMetadata(file_format="CSV", file_extension="csv", delimited=form)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_source, "BLOCK", block)
        assert [list(row) for row in rows(data, metadata)] == table


@patient
@given(
    text=st.text(st.sampled_from('ab,"\\\r\n'), max_size=30), form=FORMS, block=st.integers(1, 9), wide=st.booleans()
)
def test_the_fast_reader_agrees_or_says_that_it_cannot(
    text: str, form: DelimitedFormat, block: int, wide: bool
) -> None:
    text = text.replace(",", form.column_separator).replace('"', form.quote)
    data = text.encode()
    names = ["a", "b"] if wide else ["a"]
    try:
        blocks = Blocks(data[at : at + block] for at in range(0, len(data), block))
        reader = FastReader(dict.fromkeys(names, pa.string()), form)
        batches = [reader.parsed(piece) for piece in whole_rows(blocks, form)]
    except Inexact:
        return
    found = [list(row.values()) for batch in batches for row in batch.to_pylist()]
    expected = []
    for record in RecordReader(Blocks([b"h" + form.row_separator.encode() + data]), form, "f"):
        if record.line == 1 and record.fields[0].text == b"h":
            continue
        if wide and len(record.fields) == 1 and record.fields[0] == (b"", False):
            continue
        assert len(record.fields) == len(names)
        texts = [
            None if (field.text.decode() == form.null_value if form.null_value is not None else field == (b"", False))
            else field.text.decode()
            for field in record.fields
        ]  # fmt: skip
        expected.append(texts)
    assert found == expected


NUMBERS = st.text(st.sampled_from("0123456789+-.eExXaAnfi \t_,\u0660"), max_size=8) | st.sampled_from(
    [
        "1e309",
        "9223372036854775808",
        "-9223372036854775808",
        "2147483648",
        "32768",
        "3.5e38",
        "nan",
        "-inf",
        "0x1F",
        "1_0",
    ]
)


@patient
@given(
    texts=st.lists(NUMBERS, min_size=1, max_size=4), quoted=st.booleans(), null=st.sampled_from([None, "N", "0"]),
    kind=st.sampled_from(["Int16", "Int32", "Int64", "Single", "Double"]),
)  # fmt: skip
def test_numbers_that_arrow_parses_are_those_of_the_contract(
    texts: list[str], quoted: bool, null: str | None, kind: str
) -> None:
    properties = {} if null is None else {"nullValue": null}
    fields = [f'"{text}"' if quoted or "," in text else text for text in texts]
    data = "n,t\r\n" + "".join(f"{field},x\r\n" for field in fields)
    metadata = declared(("n", kind), ("t", "String"), **properties)
    outcomes = []
    for direct in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not direct:
                patch.setattr(convert_module, "_parsed_type", lambda *_: pa.string())
            try:
                outcomes.append(repr(rows(data, metadata)))
            except TableError as error:
                outcomes.append(f"{error.code} {error}")
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("block", [16, 64, 1000])
def test_the_exact_reader_reads_only_the_pieces_that_need_it(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f'{number},"plain, {number}"' for number in range(60)]
    lines[20] = '20,"escaped \\" quote"'
    lines[40] = "+40,plain"
    metadata = declared(("n", "Int64"), ("t", "String"))
    exact: list[int] = []
    columns = exact_rows.ExactRows.columns

    def counted(self: Any, size: int) -> Any:
        for texts, at in columns(self, size):
            exact.extend(at)
            yield texts, at

    monkeypatch.setattr(exact_rows.ExactRows, "columns", counted)
    monkeypatch.setattr(text_source, "BLOCK", block)
    monkeypatch.setattr(fast_reader, "_LONG_ROW", 100)
    found = rows("n,t\r\n" + "\r\n".join(lines), metadata)
    assert [row[0] for row in found] == list(range(60)) and found[20][1] == 'escaped " quote'
    assert 22 in exact and (len(exact) < 16 or block == 1000)
    lines[50] = "fifty,plain"
    error = refused("n,t\r\n" + "\r\n".join(lines), metadata)
    assert (error.code, error.row, error.column) == ("value-invalid", 52, "n") and "'fifty'" in str(error)


@patient
@given(text=st.text(st.sampled_from('a",\r\n'), max_size=12), form=FORMS)
def test_the_quick_look_at_quotes_never_says_more_than_the_thorough_one(text: str, form: DelimitedFormat) -> None:
    data = text.replace(",", form.column_separator).replace('"', form.quote).encode() + form.row_separator.encode()
    if _simply_quoted(data, form):
        assert form.quote.encode() not in _well_quoted(form).sub(b"", form.column_separator.encode() + data)


def test_most_quoted_text_passes_the_quick_look() -> None:
    form = DelimitedFormat()
    for text, passes in ((b'"a b",1\n"c","d,\ne"\r\n', True), (b',"a ""b""",1\n', False), (b'a "b"\n', False)):
        assert _simply_quoted(text, form) is passes


@patient
@given(st.binary(max_size=200))
def test_any_bytes_are_rows_or_a_coded_error(data: bytes) -> None:
    for name in ("f.csv", "f.csv.gz", "f.csv.zst", "f.csv.snappy"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_source, "BLOCK", 16)
            try:
                read(b"a,b\r\n" + data if name == "f.csv" else data, file=name)
            except TableError as error:
                assert error.file == name


@patient
@given(st.lists(st.binary(max_size=9)))
def test_bytes_are_read_as_base64_and_as_hex(values: list[bytes]) -> None:
    text = "v,w\r\n" + "".join(f"{base64.b64encode(v).decode()},0x{v.hex()}\r\n" for v in values)
    found = rows(text, declared(("v", "ByteArray"), ("w", "ByteArray")))
    plain = [v for v in values if not base64.b64encode(v).startswith((b"0x", b"0X"))]
    assert [row for row in found if row[1] in plain] == [(v or None, v) for v in plain]
    assert [row[1] for row in found] == values


def test_the_source_may_be_a_file(tmp_path: Any) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(TEXT)
    with path.open("rb") as source, (tmp_path / "x.parquet").open("wb") as target:
        convert_file(source, target, file="x.csv", metadata=declared(("a", "Int32"), ("b", "Int64")))
    found = pq.read_table(tmp_path / "x.parquet")
    assert found.column("b").to_pylist() == [n * n for n in range(50_000)]
