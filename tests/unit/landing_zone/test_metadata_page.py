"""The reference page of `_metadata.json` says what the code does."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from lakemirror.errors import TableError
from lakemirror.landing_zone import metadata
from lakemirror.landing_zone.metadata import DelimitedFormat, TableMetadata, parse_metadata
from lakemirror.landing_zone.table_options import OPTION_NAMES, HistoryOptions

PAGE = (Path(__file__).parents[3] / "docs/reference/metadata.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.partition("\n## ")[0].splitlines()
    if line.startswith("| `")
]
PROPERTIES = {row[0].strip("`"): row[1:] for row in ROWS if len(row) == 4}
TYPES = {row[0].strip("`"): row[1] for row in ROWS if len(row) == 2}
FIELDS = {
    "keyColumns": "key_columns",
    "fileDetectionStrategy": "file_detection_strategy",
    "isUpsertDefaultRowMarker": "upsert_by_default",
    "isPartitionEnabled": "partitioned",
    "fileFormat": "file_format",
    "fileExtension": "file_extension",
    "SchemaDefinition.Columns": "columns",
}


def listed(cell: str) -> list[str]:
    """The values that a cell names; of a word alone none."""
    found = re.findall(r"`([^`]+)`", cell)
    return [*found, *([""] if "empty" in cell else [])]


def document(path: str, value: Any) -> bytes:
    outer, _, inner = path.partition(".")
    content: dict[str, Any] = {"fileFormat": "CSV"} if path != "fileFormat" else {}
    content[outer] = {inner: value} if inner else value
    if path.endswith("thousandsSeparator") and value == ".":
        content[outer]["decimalSeparator"] = ","
    if value == "DelimitedText":
        content["fileExtension"] = "txt"
    return json.dumps(content).encode()


def parsed(path: str, value: Any) -> TableMetadata:
    unescaped = value.encode().decode("unicode_escape") if isinstance(value, str) and len(value) > 1 else value
    return parse_metadata(document(path, unescaped), "_metadata.json")


@pytest.mark.parametrize("path", PROPERTIES)
def test_every_value_of_the_page_is_taken_and_no_other_of_a_fixed_set(path: str) -> None:
    values = listed(PROPERTIES[path][0])
    for value in values:
        assert "property-unknown" not in {warned.code for warned in parsed(path, value).warnings}, (path, value)
    if values:
        with pytest.raises(TableError):
            parsed(path, "something else")


@pytest.mark.parametrize("path", PROPERTIES)
def test_the_defaults_of_the_page_are_the_code_s(path: str) -> None:
    default = PROPERTIES[path][1].strip("`")
    outer, _, inner = path.partition(".")
    if outer == "fileFormatTypeProperties" and inner != "firstRowAsHeader":
        name = re.sub("[A-Z]", lambda m: "_" + m[0].lower(), inner).replace("_character", "")
        actual: Any = getattr(DelimitedFormat(), name)
        assert (default.encode().decode("unicode_escape") if len(default) > 1 else default) == (actual or "none")
    elif path in FIELDS:
        actual = getattr(TableMetadata(), FIELDS[path])
        assert default == (actual if isinstance(actual, str) else json.dumps(actual))


def test_the_page_names_every_property_that_the_code_takes() -> None:
    source = Path(metadata.__file__).read_text(encoding="utf-8")
    taken = set(re.findall(r'(?:take|text|flag|choice|inner|_character|_encoding)\((?:members, )?"(\w+)"', source))
    named = {part for path in PROPERTIES for part in path.split(".")}
    assert taken - {"Name", "DataType", "IsNullable"} <= named | {"encoding"}
    assert len(taken) >= 14
    assert "no_such_property" not in named
    assert {w.code for w in parsed("noSuchProperty", "x").warnings} >= {"property-unknown"}


@pytest.mark.parametrize("name", TYPES)
def test_the_types_of_the_page(name: str) -> None:
    columns = {"SchemaDefinition": {"Columns": [{"Name": "a", "DataType": name}]}}
    (column,) = parse_metadata(json.dumps(columns).encode(), "m").columns
    assert column.table_type == TYPES[name]


def test_the_page_names_every_type() -> None:
    assert {name for name in TYPES if "(" not in name} == set(metadata._DATA_TYPES)


def test_the_page_names_every_option_that_the_code_takes() -> None:
    taken = {*OPTION_NAMES, "freshness", *(f"history.{field.name}" for field in dataclasses.fields(HistoryOptions))}
    options = PAGE.partition("\n## Options\n")[2]
    assert set(re.findall(r"^\| `([\w.]+)`", options, re.M)) == taken
