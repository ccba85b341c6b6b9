"""`_metadata.json` (contract section 2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from folders import patient
from hypothesis import example, given
from hypothesis import strategies as st

from lakemirror.errors import TableError
from lakemirror.landing_zone.metadata import (
    LAST_UPDATE,
    MAX_SIZE,
    DelimitedFormat,
    TableMetadata,
    Warned,
    capped,
    parse_metadata,
)

FILE = "Files/LandingZone/orders/_metadata.json"


def parse(document: Any) -> TableMetadata:
    data = document if isinstance(document, bytes) else document.encode() if isinstance(document, str) else None
    return parse_metadata(json.dumps(document).encode() if data is None else data, FILE)


def codes(metadata: TableMetadata) -> list[str]:
    return [warning.code for warning in metadata.warnings]


def refused(document: Any) -> TableError:
    with pytest.raises(TableError) as caught:
        parse(document)
    assert caught.value.code == "metadata-invalid"
    assert caught.value.file == FILE
    return caught.value


# defaults and spellings


def test_an_empty_document_is_the_defaults() -> None:
    assert parse({}) == TableMetadata()
    assert parse({"keyColumns": None, "fileFormat": None, "SchemaDefinition": None}) == TableMetadata()


@pytest.mark.parametrize("name", ["keyColumns", "KeyColumns", "KEYCOLUMNS", "keycolumns"])
def test_property_names_in_any_case(name: str) -> None:
    assert parse({name: ["Id", "line"]}).key_columns == ("Id", "line")


def test_no_keys() -> None:
    assert parse({"keyColumns": []}).key_columns == ()
    empty = parse({"keyColumns": ["", "id", ""]})  # [""] is what the vendor's own benchmark writes
    assert empty.key_columns == ("id",)
    assert [warned.code for warned in empty.warnings] == ["key-name-empty", "key-name-empty"]


@pytest.mark.parametrize("value", [LAST_UPDATE, LAST_UPDATE.lower(), LAST_UPDATE.upper()])
def test_fixed_values_in_any_case(value: str) -> None:
    assert parse({"fileDetectionStrategy": value}).file_detection_strategy == LAST_UPDATE
    assert parse({"fileFormat": "csv"}).file_format == "CSV"
    assert parse({"fileFormat": "parquet"}).file_format == "Parquet"


@pytest.mark.parametrize(
    ("value", "meant"), [(True, True), ("true", True), ("True", True), ("FALSE", False), (False, False)]
)
def test_booleans_may_be_strings(value: Any, meant: bool) -> None:
    metadata = parse({"isUpsertDefaultRowMarker": value, "isPartitionEnabled": value})
    assert (metadata.upsert_by_default, metadata.partitioned) == (meant, meant)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le"])
def test_byte_order_marks(encoding: str) -> None:
    text = '{"keyColumns": ["é"]}'
    data = text.encode(encoding) if encoding != "utf-16-le" else b"\xff\xfe" + text.encode(encoding)
    assert parse(data).key_columns == ("é",)


def test_unknown_properties_are_warned_of_and_not_fatal() -> None:
    metadata = parse({"keyColumns": ["id"], "ConditionalUpdateColumn": "seqNum", "colour": {"a": [1]}})
    assert metadata.key_columns == ("id",)
    assert codes(metadata) == ["property-unknown", "property-unknown"]
    assert "ConditionalUpdateColumn" in metadata.warnings[0].message
    assert metadata.warnings[1].file == FILE


def test_the_same_said_twice_is_said_once() -> None:
    assert parse('{"keyColumns": ["a"], "KeyColumns": ["a"]}').key_columns == ("a",)
    assert "keyColumns and KeyColumns" in refused('{"keyColumns": ["a"], "KeyColumns": ["b"]}').message
    assert "keyColumns" in refused('{"keyColumns": ["a"], "keyColumns": ["b"]}').message


def test_warnings_are_capped() -> None:
    metadata = parse({f"p{n}": n for n in range(1000)})
    assert len(metadata.warnings) == 20
    assert "980 more" in metadata.warnings[-1].message
    kept = capped([Warned("a", str(n)) for n in range(3)] + [Warned("b", "x")], most=2)
    assert kept == [Warned("a", "0"), Warned("a", "1 (and 1 more)"), Warned("b", "x")]


# what is refused


@pytest.mark.parametrize(
    "keys",
    [
        "id",
        {"a": 1},
        3,
        True,
        [1],
        [None],
        [["a"]],
        ["  "],
        ["a", "a"],
        ["id", "ID"],
        ["__rowMarker__"],
        ["\ud800"],
    ],
)
def test_key_columns_that_make_no_sense(keys: Any) -> None:
    assert "keyColumns" in refused({"keyColumns": keys}).message


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"fileDetectionStrategy": "Newest"}, "fileDetectionStrategy"),
        ({"fileDetectionStrategy": 1}, "fileDetectionStrategy"),
        ({"fileFormat": "avro"}, "fileFormat"),
        ({"isUpsertDefaultRowMarker": "yes"}, "isUpsertDefaultRowMarker"),
        ({"isPartitionEnabled": 1}, "isPartitionEnabled"),
        ({"fileFormat": "CSV", "fileExtension": ""}, "fileExtension"),
        ({"fileExtension": "a/b"}, "fileExtension"),
        ({"fileExtension": 1}, "fileExtension"),
        ({"fileFormat": "DelimitedText"}, "fileExtension"),
        ({"fileFormatTypeProperties": []}, None),  # an empty list stands for an empty object
        ({"lakemirror": {}}, None),
        ({"lakemirror": []}, "lakemirror must be an object"),
        ({"fileFormatTypeProperties": ["a"]}, "fileFormatTypeProperties"),
        ({"fileFormatTypeProperties": {"firstRowAsHeader": False}}, "firstRowAsHeader"),
        ({"fileFormatTypeProperties": {"rowSeparator": "|"}}, "rowSeparator"),
        ({"fileFormatTypeProperties": {"columnSeparator": "::"}}, "columnSeparator"),
        ({"fileFormatTypeProperties": {"quoteCharacter": "x"}}, "quoteCharacter"),
        ({"fileFormatTypeProperties": {"escapeCharacter": "x"}}, "escapeCharacter"),
        ({"fileFormatTypeProperties": {"nullValue": 1}}, "nullValue"),
        ({"fileFormatTypeProperties": {"encoding": "martian"}}, "encoding"),
        ({"fileFormatTypeProperties": {"encoding": "base64"}}, "encoding"),
        ({"fileFormatTypeProperties": {"encoding": "a\x00b"}}, "encoding"),
        ({"SchemaDefinition": {"Columns": {"a": 1}}}, "SchemaDefinition.Columns"),
        ({"SchemaDefinition": {"Columns": [1]}}, "SchemaDefinition.Columns[0]"),
        ({"SchemaDefinition": {"Columns": [{"Name": "a"}]}}, "Columns[0].DataType"),
        ({"SchemaDefinition": {"Columns": [{"DataType": "String"}]}}, "Columns[0].Name"),
        ({"SchemaDefinition": {"Columns": [{"Name": "a", "DataType": "Uuid"}]}}, "Columns[0].DataType"),
        ({"SchemaDefinition": {"Columns": [{"Name": "a", "DataType": "Decimal(39,1)"}]}}, "DataType"),
        ({"SchemaDefinition": {"Columns": [{"Name": "a", "DataType": "Decimal(3,4)"}]}}, "DataType"),
        ({"SchemaDefinition": {"Columns": [{"Name": n, "DataType": "String"} for n in "aA"]}}, "twice"),
        ([], "JSON object"),
        ("1", "JSON object"),
        (b"", "empty"),
        (b" \n", "empty"),
    ],
)
def test_values_outside_the_contract(document: Any, named: str | None) -> None:
    if named is None:
        assert parse(document) == TableMetadata()
    else:
        assert named in refused(document).message


# JSON that is none


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"keyColumns": ["a"] "b": 1}', "line 1, column 22"),
        ('{\n  "keyColumns": [\n    "a",\n    }\n', "line 4, column 5"),
        ('{"a": "b', "line 1, column 7"),
        ('{"a": 1} x', "line 1, column 10"),
        ("{'a': 1}", "line 1, column 2"),
        ('{"a": "x\ny"}', "line 1, column 9"),
        ('{"é": ?}', "line 1, column 7"),
        ('{"a" 1}', "line 1, column 6"),
        (b'{\n "a": "\xff"}', "line 2, column 8"),
    ],
)
def test_invalid_json_is_refused_with_its_place(text: Any, place: str) -> None:
    assert f"_metadata.json: {place}: " in refused(text).message


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '{"a":' + "[" * 70 + "]" * 70 + "}", "[" * 900 + "]" * 900]
)
def test_deep_json_is_refused(text: str) -> None:
    assert "nested deeper" in refused(text).message


def test_a_moderate_depth_is_no_matter() -> None:
    assert codes(parse('{"a":' + "[" * 60 + "]" * 60 + "}")) == ["property-unknown"]
    assert codes(parse('{"a":' + "[" * 60 + "]" * 60 + ",}")) == ["metadata-lenient", "property-unknown"]


def test_a_huge_file_is_refused_at_once() -> None:
    assert "larger than" in refused(b" " * (MAX_SIZE + 1)).message
    refused(b"[" * MAX_SIZE)
    refused(b"7" * MAX_SIZE)


def test_trailing_commas() -> None:
    metadata = parse('{"keyColumns": ["C1", "C2",],}')
    assert metadata.key_columns == ("C1", "C2")
    assert codes(metadata) == ["metadata-lenient"]


def test_a_value_without_quotes() -> None:
    metadata = parse('{"keyColumns": ["id"], "fileDetectionStrategy": LastUpdateTimeFileDetection}')
    assert metadata.file_detection_strategy == LAST_UPDATE
    assert codes(metadata) == ["metadata-lenient"]


def test_the_vendors_delimited_sample_with_a_lone_backslash() -> None:
    text = r"""{
      "KeyColumns": ["id"],
      "SchemaDefinition": {"Columns": [
        {"Name": "id", "DataType": "Int32"},
        {"Name": "name", "DataType": "String", "IsNullable": true}]},
      "FileFormat": "DelimitedText",
      "FileExtension": "tsv",
      "FileFormatTypeProperties": {
        "FirstRowAsHeader": true, "RowSeparator": "\r\n", "ColumnSeparator": ",",
        "QuoteCharacter": "'", "EscapeCharacter": "\", "NullValue": "N/A", "Encoding": "UTF-8"}
    }"""
    metadata = parse(text)
    assert metadata.key_columns == ("id",)
    assert (metadata.file_format, metadata.file_extension) == ("DelimitedText", "tsv")
    assert metadata.delimited == DelimitedFormat("\r\n", ",", "'", "\\", "N/A", "UTF-8")
    assert [column.name for column in metadata.columns] == ["id", "name"]
    assert codes(metadata) == ["metadata-lenient"]


def test_a_backslash_that_escapes_nothing_is_itself() -> None:
    metadata = parse(r'{"keyColumns": ["a\b", "c\x", "\u00e9", "\u12"]}')
    assert metadata.key_columns == ("a\b", "c\\x", "é", "\\u12")


def test_valid_json_is_read_strictly() -> None:
    metadata = parse(r'{"keyColumns": ["a\"", "b\\"]}')
    assert metadata.key_columns == ('a"', "b\\")
    assert codes(metadata) == []


# formats


def test_delimited_defaults() -> None:
    metadata = parse({"fileFormat": "CSV"})
    assert metadata.file_extension == "csv"
    assert metadata.delimited == DelimitedFormat("\r\n", ",", '"', "\\", None, "UTF-8")
    assert metadata.columns == ()


@pytest.mark.parametrize(
    ("document", "file_format", "extension"),
    [
        ({"fileFormatTypeProperties": {"nullValue": ""}}, "CSV", "csv"),
        ({"SchemaDefinition": {"Columns": [{"Name": "a", "DataType": "String"}]}}, "CSV", "csv"),
        ({"fileExtension": "tsv"}, "CSV", "tsv"),
        ({"fileExtension": "parquet"}, "Parquet", "parquet"),
        ({"fileExtension": ".parquet", "SchemaDefinition": {"Columns": []}}, "Parquet", "parquet"),
        ({"fileFormat": "DelimitedText", "fileExtension": ".psv"}, "DelimitedText", "psv"),
        ({"fileFormat": "parquet", "fileExtension": "pq"}, "Parquet", "pq"),
        ({"fileFormatTypeProperties": {}}, "Parquet", "parquet"),
    ],
)
def test_the_format_where_it_is_and_is_not_said(document: Any, file_format: str, extension: str) -> None:
    metadata = parse(document)
    assert (metadata.file_format, metadata.file_extension) == (file_format, extension)
    assert (metadata.delimited is None) == (file_format == "Parquet")


def test_delimited_properties_mean_nothing_for_parquet() -> None:
    metadata = parse({"fileFormat": "Parquet", "fileFormatTypeProperties": {"rowSeparator": "?"}})
    assert metadata.delimited is None
    assert codes(metadata) == ["property-unknown"]


def test_every_delimited_property() -> None:
    properties = {
        "FIRSTROWASHEADER": "True", "rowseparator": "\n", "COLUMNSEPARATOR": "\t", "QuoteCharacter": "",
        "escapeCharacter": '"', "NullValue": "", "Encoding": "windows-1252", "spare": 1,
    }  # fmt: skip
    metadata = parse({"fileFormat": "CSV", "FILEFORMATTYPEPROPERTIES": properties})
    assert metadata.delimited == DelimitedFormat("\n", "\t", "", '"', "", "windows-1252")
    assert [w.message for w in metadata.warnings if "fileFormatTypeProperties.spare" in w.message]


@pytest.mark.parametrize(("spelt", "meant"), [("\\t", "\t"), ("\t", "\t"), (";", ";"), ("|", "|"), (",", ",")])
def test_separators_may_be_spelt(spelt: str, meant: str) -> None:
    metadata = parse({"fileFormat": "CSV", "fileFormatTypeProperties": {"columnSeparator": spelt}})
    assert metadata.delimited is not None
    assert metadata.delimited.column_separator == meant


@pytest.mark.parametrize(
    "encoding", ["ascii", "UTF-16", "utf8", "windows-1252", "iso-8859-15", "shift_jis", "gb18030", "cp037"]
)
def test_encodings_that_publishers_use(encoding: str) -> None:
    metadata = parse({"fileFormat": "CSV", "fileFormatTypeProperties": {"encoding": encoding}})
    assert metadata.delimited is not None
    assert metadata.delimited.encoding == encoding


def test_every_data_type() -> None:
    types = {
        "Int16": "smallint", "Int32": "int", "Int64": "bigint", "Single": "float", "Double": "double",
        "Boolean": "boolean", "String": "string", "DateTime": "timestamp", "IDate": "date", "ITime": "string",
        "ByteArray": "binary", "Decimal(10,2)": "decimal(10,2)", "Decimal(38,0)": "decimal(38,0)",
    }  # fmt: skip
    columns = [{"name": f"c{n}", "DATATYPE": name.lower(), "isNullable": "false"} for n, name in enumerate(types)]
    metadata = parse({"fileFormat": "CSV", "schemaDefinition": {"columns": columns}})
    assert [(column.data_type, column.table_type) for column in metadata.columns] == list(types.items())
    assert not any(column.nullable for column in metadata.columns)
    assert codes(metadata) == []


def test_columns_are_nullable_unless_said_otherwise() -> None:
    metadata = parse({"SchemaDefinition": {"Columns": [{"Name": "a", "DataType": "String"}]}})
    assert metadata.columns[0].nullable


def test_the_row_marker_is_no_declared_column() -> None:
    columns = [{"Name": name, "DataType": "Int32"} for name in ("a", "__rowMarker__")]
    assert [column.name for column in parse({"SchemaDefinition": {"Columns": columns}}).columns] == ["a"]


def test_a_document_of_business_central() -> None:
    metadata = parse(
        {
            "keyColumns": ["systemId-2000000000", "$Company"],
            "fileDetectionStrategy": "LastUpdateTimeFileDetection",
            "SchemaDefinition": {"Columns": [{"Name": "timestamp-0", "DataType": "Int64", "IsNullable": True}]},
            "fileFormat": "csv",
        }
    )
    assert (metadata.file_format, metadata.file_extension) == ("CSV", "csv")
    assert metadata.key_columns == ("systemId-2000000000", "$Company")


# whatever is in the file: metadata or one error


def survives(data: bytes) -> None:
    try:
        metadata = parse_metadata(data, FILE)
    except TableError as error:
        assert error.code == "metadata-invalid"
        str(error).encode()
    else:
        "".join((*metadata.key_columns, *(w.message for w in metadata.warnings))).encode()


@patient
@given(st.binary(max_size=200))
@example(b"\x00\x00\xfe\xff\x00\x00\x00")
@example(b'{"a": 1e999, "b": -Infinity, "c": NaN}')
@example(b'{"\\ud800": 1}')
def test_any_bytes(data: bytes) -> None:
    survives(data)


@patient
@given(st.text(alphabet='{}[]",:\\ \n\tantrue1.e-keyColumnsNulcd', max_size=80))
def test_any_text_of_json_characters(text: str) -> None:
    survives(text.encode())


_NAMES = ["keyColumns", "fileDetectionStrategy", "isUpsertDefaultRowMarker", "fileFormat", "fileExtension",
          "fileFormatTypeProperties", "SchemaDefinition", "Columns", "Name", "DataType", "IsNullable", "encoding",
          "nullValue", "rowSeparator", "isPartitionEnabled", "firstRowAsHeader"]  # fmt: skip
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["CSV", "Parquet", "String", "utf-8"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4),
    max_leaves=12,
)


@patient
@given(st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=6), st.data())
def test_any_json_and_any_change_of_one_byte(document: dict[str, Any], data: st.DataObject) -> None:
    content = bytearray(json.dumps(document).encode())
    survives(bytes(content))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(content))
