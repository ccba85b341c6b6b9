"""JSON lines: numbers are read as their text, absent and null fields are NULL, errors name the line."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.publisher.published_contents import changes

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.declared_types import TypeWarning
from lakemirror.publisher.sources import json_rows
from lakemirror.publisher.sources.files import publish_files, read_file
from lakemirror.publisher.sources.text_types import KnownTypes

pytestmark = pytest.mark.filterwarnings("ignore::lakemirror.publisher.declared_types.TypeWarning")


def read(tmp_path: Path, text: str, **types: pa.DataType) -> pa.Table:
    (tmp_path / "t.jsonl").write_text(text)
    return read_file(tmp_path / "t.jsonl", KnownTypes(types)).read_all()


def refused(tmp_path: Path, text: str, **types: pa.DataType) -> LakemirrorError:
    with pytest.raises(LakemirrorError) as caught:
        read(tmp_path, text, **types)
    return caught.value


@pytest.mark.parametrize(
    ("number", "kind", "value"),
    [
        ("12345678901234.123456789", pa.decimal128(30, 9), Decimal("12345678901234.123456789")),
        ("1.15", pa.decimal128(20, 2), Decimal("1.15")),
        ("1e2", pa.decimal128(20, 0), Decimal(100)),
        ("89490200001234567890", pa.decimal128(38, 0), Decimal("89490200001234567890")),
        ("89490200001234567890", pa.string(), "89490200001234567890"),
        ("1.50", pa.string(), "1.50"),
        ("1.5E5", pa.string(), "1.5E5"),
        ("1.5e5", pa.float64(), 150_000.0),
        ("7", pa.int16(), 7),
        ('"7.5"', pa.decimal128(5, 2), Decimal("7.50")),
        ("true", pa.string(), "true"),
        ("true", pa.bool_(), True),
        ('{"a": 1.0, "b": null}', pa.string(), '{"a":1.0,"b":null}'),
        ("null", pa.int64(), None),
        ("[1, null]", pa.list_(pa.int64()), [1, None]),
    ],
)
def test_a_named_type(tmp_path: Path, number: str, kind: pa.DataType, value: Any) -> None:
    assert read(tmp_path, f'{{"V": {number}}}', v=kind).to_pylist() == [{"V": value}]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        ("1.15", pa.decimal128(20, 1)),
        ("12345678901234.1234567891", pa.decimal128(30, 9)),
        ("1.5", pa.int64()),
        ("9223372036854775808", pa.int64()),
        ("9" * 5000, pa.decimal128(38, 0)),
        ('"x"', pa.int64()),
        ('""', pa.int64()),
        ('""', pa.date32()),
        ('"\\ud800"', pa.string()),
    ],
)
def test_what_does_not_fit_names_line_and_column(tmp_path: Path, number: str, kind: pa.DataType) -> None:
    error = refused(tmp_path, f'{{"v": null}}\n\n{{"w": 1}}\n{{"v": {number}}}\n', v=kind)
    assert (error.code, error.row, error.column) == ("value-invalid", 4, "v")
    assert "t.jsonl, line 4" in error.message


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ("1 2", pa.int64()),
        ("1 89490200001234567890", pa.decimal128(38, 0)),
        ("9" * 5000, pa.string()),
        ("1.15 2.50", pa.decimal128(38, 2)),
        ("1.5 2.25 3", pa.float64()),
        ("1.50 2.5", pa.string()),
        ("1e5 100000", pa.string()),
        ("-0 0", pa.string()),
        ("NaN 1.5", pa.string()),
        ("true false", pa.bool_()),
        ('"1" "2"', pa.string()),
        ("null", pa.null()),
    ],
)
def test_numbers_get_a_type_that_gives_back_their_text(tmp_path: Path, numbers: str, kind: pa.DataType) -> None:
    table = read(tmp_path, "\n".join(f'{{"v": {number}}}' for number in numbers.split()))
    assert table.schema.types == [kind]
    if kind == pa.string():
        assert table["v"].to_pylist() == [number.strip('"') for number in numbers.split()]


def test_the_type_is_chosen_over_the_whole_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "ROWS", 2)
    numbers = ["1", "2", "3", "4", "5", "89490200001234567890"]
    table = read(tmp_path, "\n".join(f'{{"v": {number}}}' for number in numbers))
    assert [str(value) for value in table["v"].to_pylist()] == numbers


@pytest.mark.parametrize(
    ("line", "kinds"), [('{"v": "x"}', "numbers and strings"), ('{"v": true}', "numbers and true")]
)
def test_values_of_several_kinds_are_refused_with_the_line(tmp_path: Path, line: str, kinds: str) -> None:
    error = refused(tmp_path, '{"v": 1}\n' * 3 + line)
    assert (error.code, error.row, error.column) == ("value-invalid", 4, "v")
    assert kinds in error.message
    assert read(tmp_path, '{"v": 1}\n{"v": "x"}', v=pa.string())["v"].to_pylist() == ["1", "x"]


def test_numbers_beside_strings_are_refused_where_the_column_is_text(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t")
    (tmp_path / "t.jsonl").write_text('{"v": "x"}')
    publish_files(table, [tmp_path / "t.jsonl"])
    (tmp_path / "t.jsonl").write_text('{"v": 7}\n{"v": "7"}')
    with pytest.raises(LakemirrorError) as caught:
        publish_files(table, [tmp_path / "t.jsonl"])
    assert (caught.value.code, caught.value.row) == ("value-invalid", 2)


def test_absent_and_null_fields_are_null_whatever_the_neighbours_are(tmp_path: Path) -> None:
    lines = ['{"id": 1}', '{"id": 2, "v": null}', '{"id": 3, "v": {"a": null}}', '{"id": 4, "v": {}}']
    for some in (lines, lines[::-1], lines[2:], lines[3:]):
        (tmp_path / "db").mkdir(exist_ok=True)
        table = Landing(tmp_path / "db").table("t")
        table.recreate()
        (tmp_path / "t.jsonl").write_text("\n".join(some))
        publish_files(table, [tmp_path / "t.jsonl"])
        found = {row["id"]: row.get("v") for _, row in changes(table.folder)}
        expected = {1: None, 2: None, 3: '{"a":null}', 4: "{}"}
        assert found == {number: expected[number] for number in found}


def test_nested_values_keep_the_text_of_their_numbers(tmp_path: Path) -> None:
    with pytest.warns(TypeWarning, match="JSON string"):
        table = read(tmp_path, '{"v": [1.50, 1e5, 12345678901234567890, "ü\\n", {"b": true}]}')
    assert table["v"][0].as_py() == '[1.50,1e5,12345678901234567890,"ü\\n",{"b":true}]'
    assert json.loads(table["v"][0].as_py())[3:] == ["ü\n", {"b": True}]


@pytest.mark.parametrize("line", ['{"a": 1, "b": {"c": 1, "c": 2}}', '{"c": 1, "a": 1, "c": 2}'])
def test_a_name_that_is_given_twice_is_refused(tmp_path: Path, line: str) -> None:
    error = refused(tmp_path, '{"a": 1}\n' + line)
    assert (error.code, error.row, error.column) == ("columns-ambiguous", 2, "c")


def test_later_values_of_another_kind_are_refused_with_the_line(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t")
    (tmp_path / "t.jsonl").write_text('{"n": 1, "s": "x", "b": true}')
    publish_files(table, [tmp_path / "t.jsonl"])
    for line in ('{"n": "1"}', '{"b": 1}', '{"s": true}'):
        (tmp_path / "t.jsonl").write_text('{"s": null}\n' + line)
        with pytest.raises(LakemirrorError) as caught:
            publish_files(table, [tmp_path / "t.jsonl"])
        assert (caught.value.code, caught.value.row) == ("type-changed", 2)
    (tmp_path / "t.jsonl").write_text('{"n": 2, "s": null}\n{"n": 1.5}')
    with pytest.raises(LakemirrorError) as caught:
        publish_files(table, [tmp_path / "t.jsonl"])
    assert (caught.value.code, caught.value.row, caught.value.column) == ("value-invalid", 2, "n")


def test_a_packed_file_is_read_in_lines(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(b'\xef\xbb\xbf{"v": 1}\r\n\r\n{"v": 2}'))
    assert read_file(tmp_path / "t.jsonl.gz").read_all()["v"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    "text",
    ['{"a":[{}\n{}]}\n{},{}\n', '{"a":1},{"a":2}\n', '{"a":"x\n"}\n', '{"a":1}\n{"a":2}}\n', '{"a":1\n,"b":2}\n'],
)
def test_a_value_that_goes_beyond_its_line_is_refused(tmp_path: Path, text: str) -> None:
    """Lines are decoded together: no two of them make up for each other."""
    error = refused(tmp_path, '{"a":null}\n' + text)
    assert error.code == "input-invalid"
    assert error.row == (3 if "}}" in text else 2)
