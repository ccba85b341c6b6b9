"""Files of every format, their quirks, and `publish_files`."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from published_contents import change_files, changes, fold

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing, LandingTable, disk_rows
from lakemirror.publisher.declared_types import TypeWarning, named_type
from lakemirror.publisher.sources import json_rows, workbook
from lakemirror.publisher.sources.file_options import FileOptions
from lakemirror.publisher.sources.files import publish_files, read_file
from lakemirror.publisher.sources.text_types import KnownTypes

pytestmark = pytest.mark.usefixtures("door")

TABLE = pa.table({"id": [1, 2, 3], "name": ["a", None, "ü"]})
ROWS = TABLE.to_pylist()
CSV = 'id,name\n1,a\n2,\n3,"ü"\n'.encode()
JSONL = b'{"id": 1, "name": "a"}\n\n{"id": 2}\n{"id": 3, "name": "\xc3\xbc"}'


@pytest.fixture
def orders(tmp_path: Path) -> LandingTable:
    return Landing(tmp_path / "db").table("orders", ["id"])


def code_of(call: Any, *args: Any, **named: Any) -> str:
    with pytest.raises(LakemirrorError) as caught:
        call(*args, **named)
    return caught.value.code


def arrow_bytes(stream: bool) -> bytes:
    sink = pa.BufferOutputStream()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=2)
    return sink.getvalue().to_pybytes()


def parquet_bytes() -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink)
    return sink.getvalue()


CONTENTS = {
    "o.parquet": parquet_bytes(),
    "o.csv": CSV,
    "o.tsv": CSV.replace(b",", b"\t"),
    "o.CSV": b"\xef\xbb\xbf" + CSV.replace(b"\n", b"\r\n"),
    "o.csv.gz": gzip.compress(CSV),
    "o.tsv.bz2": bz2.compress(CSV.replace(b",", b"\t")),
    "o.csv.zst": pa.compress(CSV, "zstd", asbytes=True),
    "o.jsonl": JSONL,
    "o.ndjson": b"\xef\xbb\xbf" + JSONL,
    "o.json": json.dumps(ROWS, indent=2).encode(),
    "o.jsonl.gz": gzip.compress(JSONL),
    "o.arrow": arrow_bytes(stream=False),
    "o.arrows": arrow_bytes(stream=True),
    "o.feather": arrow_bytes(stream=False),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(CONTENTS[name])
    assert read_file(tmp_path / name).read_all().to_pylist() == ROWS


@pytest.mark.parametrize(
    "name", ["o.parquet", "o.csv", "o.jsonl", "o.json", "o.arrow", "o.arrows", "o.CSV", "o.ndjson"]
)
def test_by_the_first_bytes(tmp_path: Path, name: str) -> None:
    (tmp_path / "data").write_bytes(CONTENTS[name])
    assert read_file(tmp_path / "data").read_all().to_pylist() == ROWS


@pytest.mark.parametrize("name", ["o.parquet", "o.csv", "o.jsonl", "o.json", "o.arrow", "o.arrows"])
@pytest.mark.parametrize("told", [True, False])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, name: str, told: bool) -> None:
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(CONTENTS[name]))  # type: ignore[arg-type]

    monkeypatch.setattr(sys, "stdin", Stdin())
    formats = {"o.parquet": "parquet", "o.csv": "csv", "o.jsonl": "jsonl", "o.json": "jsonl"}
    assert (
        read_file("-", options=FileOptions(format=formats.get(name, "arrow") if told else "")).read_all().to_pylist()
        == ROWS
    )


def csv_rows(tmp_path: Path, text: str, **types: pa.DataType) -> list[dict[str, Any]]:
    (tmp_path / "t.csv").write_text(text)
    return read_file(tmp_path / "t.csv", KnownTypes(types)).read_all().to_pylist()  # type: ignore[no-any-return]


def test_null_and_empty_text(tmp_path: Path) -> None:
    assert csv_rows(tmp_path, 'a,b\n,""\nNA,null\n') == [{"a": None, "b": ""}, {"a": "NA", "b": "null"}]


def test_line_breaks_and_quotes_in_a_field(tmp_path: Path) -> None:
    assert csv_rows(tmp_path, 'a,b\n1,"x\ny ""z"""\n') == [{"a": 1, "b": 'x\ny "z"'}]


def test_another_delimiter(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b\n1;x,y\n")
    assert read_file(tmp_path / "t.csv", options=FileOptions(";")).read_all().to_pylist() == [{"a": 1, "b": "x,y"}]


def test_a_type_that_is_named_keeps_zeros(tmp_path: Path) -> None:
    assert csv_rows(tmp_path, "zip\n12345\n") == [{"zip": 12345}]
    assert csv_rows(tmp_path, "zip\n12345\n", zip=pa.string()) == [{"zip": "12345"}]
    assert csv_rows(tmp_path, "zip\n01234\n", zip=pa.int64()) == [{"zip": 1234}]


def test_times_with_and_without_zone(tmp_path: Path) -> None:
    text = "t\n2026-01-02\n2026-01-02 03:04:05\n2026-01-02T03:04:05.25Z\n2026-01-02T03:04:05+01:00\n"
    expected = [
        dt.datetime(2026, 1, 2),
        dt.datetime(2026, 1, 2, 3, 4, 5),
        dt.datetime(2026, 1, 2, 3, 4, 5, 250_000),
        dt.datetime(2026, 1, 2, 2, 4, 5),
    ]
    with pytest.warns(TypeWarning, match="column t has times without a zone"):
        rows = csv_rows(tmp_path, text, t=pa.timestamp("us", "UTC"))
    assert [row["t"] for row in rows] == [each.replace(tzinfo=dt.timezone.utc) for each in expected]
    without = "\n".join(text.splitlines()[:3])
    assert [row["t"] for row in csv_rows(tmp_path, without, t=pa.timestamp("us"))] == expected[:2]
    assert code_of(csv_rows, tmp_path, text, t=pa.timestamp("us")) == "value-invalid"  # a zone would be lost
    assert code_of(csv_rows, tmp_path, "t\nsoon\n", t=pa.timestamp("us")) == "value-invalid"


def test_json_strings_stay_strings(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": 1, "day": "2026-01-02"}\n{"id": 2, "day": "soon"}\n')
    assert [row["day"] for row in read_file(tmp_path / "t.jsonl").read_all().to_pylist()] == ["2026-01-02", "soon"]


def test_json_of_many_lines_and_kinds(tmp_path: Path) -> None:
    lines = [json.dumps({"id": number, "x": number if number < 30_000 else number + 0.5}) for number in range(40_000)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    table = read_file(tmp_path / "t.jsonl").read_all()
    assert (table.num_rows, table.schema.field("x").type) == (40_000, pa.float64())
    (tmp_path / "t.jsonl").write_text("\n".join([*lines, '{"id": "text"}']))
    assert code_of(read_file, tmp_path / "t.jsonl") == "value-invalid"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.parquet", b"PAR1 but not more"),
        ("t.parquet", b""),
        ("t.csv", b""),
        ("t.csv", b"a,b\n1\n"),
        ("t.csv", b"a\n\xff\xfe\n"),
        ("t.jsonl", b'{"a": 1}\n{"a": '),
        ("t.jsonl", b"[1, 2]"),
        ("t.jsonl", b"7"),
        ("t.jsonl", b"[" * 100_000),
        ("t.arrow", b"ARROW1 but not more"),
        ("t.csv.gz", b"not compressed"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LakemirrorError) as caught:
        read_file(tmp_path / name).read_all()
    assert caught.value.code in ("input-invalid", "value-invalid")
    assert name in str(caught.value)


def test_damage_that_shows_late_publishes_nothing(tmp_path: Path, orders: LandingTable) -> None:
    content = bytearray(CONTENTS["o.parquet"])
    content[10:40] = b"\0" * 30  # the data, not the footer
    (tmp_path / "t.parquet").write_bytes(content)
    assert code_of(publish_files, orders, [tmp_path / "t.parquet"]) == "input-invalid"
    assert not list(orders.folder.glob("*.parquet")) and not list(orders.folder.glob("_publishing-*"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert code_of(read_file, tmp_path / "none.csv") == "input-invalid"
    assert code_of(lambda: FileOptions(format="xml")) == "input-invalid"


@pytest.mark.parametrize(
    ("mode", "marker"), [("load", None), ("insert", 0), ("update", 1), ("upsert", 4), (None, 4), ("delete", 2)]
)
def test_modes(tmp_path: Path, orders: LandingTable, mode: str | None, marker: int | None) -> None:
    (tmp_path / "o.csv").write_bytes(CSV)
    (published,) = publish_files(orders, [tmp_path / "o.csv"], mode)
    assert published.rows == 3
    assert [found for found, _ in changes(orders.folder)] == [marker] * 3


def test_without_keys_rows_are_inserted(tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_bytes(CSV)
    log = Landing(tmp_path).table("log")
    publish_files(log, [tmp_path / "o.csv"])
    assert [marker for marker, _ in changes(log.folder)] == [0, 0, 0]


def test_a_mode_that_does_not_exist(tmp_path: Path, orders: LandingTable) -> None:
    (tmp_path / "o.csv").write_bytes(CSV)
    assert code_of(publish_files, orders, [tmp_path / "o.csv"], "merge") == "input-invalid"


def test_markers_in_a_column(tmp_path: Path, orders: LandingTable) -> None:
    (tmp_path / "o.csv").write_text("op,id\n0,1\n4,1\n2,1\n")
    publish_files(orders, [tmp_path / "o.csv"], marker="op")
    assert changes(orders.folder) == [(0, {"id": 1}), (4, {"id": 1}), (2, {"id": 1})]


def test_several_files_are_published_in_order(tmp_path: Path, orders: LandingTable) -> None:
    for name, text in (("b.csv", "id,v\n1,x\n"), ("a.jsonl", '{"id": 1, "v": "y"}')):
        (tmp_path / name).write_text(text)
    published = publish_files(orders, [tmp_path / "b.csv", tmp_path / "a.jsonl"])
    assert [each.number for each in published] == [1, 2]
    assert fold(changes(orders.folder), ["id"]) == [{"id": 1, "v": "y"}]


def test_a_snapshot_of_several_files(tmp_path: Path, orders: LandingTable) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,x\n")
    (tmp_path / "b.csv").write_text("id,v\n2,y\n")
    both = [tmp_path / "a.csv", tmp_path / "b.csv"]
    publish_files(orders, both, "snapshot")
    assert publish_files(orders, both, "snapshot") == []
    publish_files(orders, both[1:], "snapshot")
    assert fold(changes(orders.folder), ["id"]) == [{"id": 2, "v": "y"}]


def test_later_files_are_read_in_the_types_of_before(tmp_path: Path, orders: LandingTable) -> None:
    first = "id,price,code,at\n0,0.25,A0,2026-01-02T03:04:05Z\n1,1.5,A1,2026-01-02T03:04:05Z\n"
    later = "id,price,code,at\n2,7,12,2026-01-02 03:04:05.5\n"
    (tmp_path / "o.csv").write_text(first)
    publish_files(orders, [tmp_path / "o.csv"])
    (tmp_path / "o.csv").write_text(later)
    (tmp_path / "o.jsonl").write_text('{"id": 3, "price": 7, "code": "x", "at": "2026-01-02"}\n')
    for file in ("o.csv", "o.jsonl"):
        with pytest.warns(TypeWarning, match="column at has times without a zone"):
            publish_files(orders, [tmp_path / file])
    kinds = [
        [str(kind).replace("[us", "[ms") for kind in pq.read_schema(path).types]
        for path in change_files(orders.folder).values()
    ]
    assert kinds == [["int64", "double", "string", "timestamp[ms, tz=UTC]", "int32"]] * 3
    (tmp_path / "o.csv").write_text("id,price\n4,dear\n")
    assert code_of(publish_files, orders, [tmp_path / "o.csv"]) == "value-invalid"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("string", pa.string()),
        ("Int64", pa.int64()),
        ("bigint", pa.int64()),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        ("decimal(5)", pa.decimal128(5, 0)),
        (" date ", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ],
)
def test_types_by_name(text: str, kind: pa.DataType) -> None:
    assert named_type(text) == kind


@pytest.mark.parametrize("text", ["", "number", "decimal(x)", "decimal(99,1)"])
def test_no_types(text: str) -> None:
    assert code_of(named_type, text) == "input-invalid"


@pytest.mark.parametrize("mode", [None, "insert", "update", "upsert", "delete"])
def test_a_header_without_rows_publishes_nothing(tmp_path: Path, mode: str | None) -> None:
    (tmp_path / "h.csv").write_text("id,v\n")
    table = Landing(tmp_path).table("t", ["id"])
    assert publish_files(table, [tmp_path / "h.csv"], mode) == []
    assert publish_files(Landing(tmp_path).table("none"), [tmp_path / "h.csv"], "insert") == []


@pytest.mark.parametrize("mode", ["load", "snapshot"])
def test_no_table_is_made_of_a_header_unless_types_are_named(tmp_path: Path, mode: str) -> None:
    (tmp_path / "h.csv").write_text("id,v\n")
    with pytest.raises(LakemirrorError) as caught:
        publish_files(Landing(tmp_path).table("t", ["id"]), [tmp_path / "h.csv"], mode)
    assert (caught.value.code, "type of id" in caught.value.message) == ("input-invalid", True)
    assert "--types id=bigint" in caught.value.hint
    named = Landing(tmp_path).table("t", ["id"], columns=pa.schema({"id": pa.int64()}))
    (published,) = publish_files(named, [tmp_path / "h.csv"], mode)
    assert published.rows == 0
    assert pq.read_schema(named.folder / published.path.name).names == ["id"]


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.xlsx"])
def test_rows_beyond_memory_come_back_from_the_disk(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": number, "v": f"text {number}", "w": number / 4} for number in range(50)]
    if name == "t.csv":
        (tmp_path / name).write_text("id,v,w\n" + "".join(",".join(map(str, row.values())) + "\n" for row in rows))
    elif name == "t.jsonl":
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        openpyxl = pytest.importorskip("openpyxl", reason="the publish extra is not installed")
        book = openpyxl.Workbook()
        for cells in (list(rows[0]), *(list(row.values()) for row in rows)):
            book.active.append(cells)
        book.save(tmp_path / name)
    monkeypatch.setattr(disk_rows, "IN_MEMORY_BYTES", 1000)
    monkeypatch.setattr(json_rows, "ROWS", 7)
    monkeypatch.setattr(workbook, "ROWS", 7)
    assert read_file(tmp_path / name).read_all().to_pylist() == rows
