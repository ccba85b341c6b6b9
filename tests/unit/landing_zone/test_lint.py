"""What `check` finds, without applying anything."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from folders import file_name, parquet, storage_with, write
from tests.commands import CommandRunner

from lakemirror import MirroredDatabase
from lakemirror.cli import check as cli_check
from lakemirror.error_codes import CODES
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.findings import REPORTED, Finding
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.lint import check
from lakemirror.lint import contents as check_content
from lakemirror.lint import folders as check_module

ORDERS = f"{LANDING_ZONE}/orders"
KEYED = '{"keyColumns": ["id"]}'


def database(root: Path, *tables: Any, metadata: str | None = KEYED) -> Path:
    """Change files 1, 2, … of the orders table: each a dict of columns, a pyarrow table, or bytes."""
    storage_with(root)
    if metadata is not None:
        write(root, "orders/_metadata.json", metadata)
    for number, content in enumerate(tables, 1):
        data = content if isinstance(content, bytes) else parquet(pa.table(content))
        age(write(root, f"orders/{file_name(number)}", data))
    return root


def age(path: Path) -> None:
    os.utime(path, (1000, 1000))


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


def test_a_good_database_has_no_findings(tmp_path: Path) -> None:
    first = {"id": [1, 2], "name": ["a", None]}
    second = {"id": [1, 3], "name": ["b", "c"], "__rowMarker__": [4, 2]}
    third = {"ID": pa.array([5], pa.int32()), "more": [1.5], "__rowMarker__": ["0"]}
    assert check(database(tmp_path, first, second, third)) == []


def test_nothing_is_changed(tmp_path: Path) -> None:
    database(tmp_path, {"id": [1]}, b"broken", {"id": ["x"]})
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*")}
    assert check(tmp_path)
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*")} == before


# where it looks


@pytest.mark.parametrize(
    ("path", "prefix"), [("", f"{ORDERS}/"), ("Files/LandingZone", "orders/"), ("Files/LandingZone/orders", "")]
)
def test_a_database_a_landing_zone_and_a_table_folder(tmp_path: Path, path: str, prefix: str) -> None:
    database(tmp_path, {"id": [1]}, {"id": ["x"]})
    found = only(check(tmp_path / path))
    assert (found.code, found.table, found.file) == ("type-changed", "orders", prefix + file_name(2))


def test_a_table_folder_inside_a_schema(tmp_path: Path) -> None:
    write(tmp_path, f"sales.schema/customers/{file_name(2)}", parquet())
    for path in ("Files/LandingZone/sales.schema/customers", "Files/LandingZone/sales.schema"):
        found = only(check(tmp_path / path))
        assert (found.code, found.table) == ("number-missing", "sales.customers")


def test_folders_that_lie_anywhere(tmp_path: Path) -> None:
    database(tmp_path, {"id": [1]}, {"id": ["x"]})
    shutil.copytree(tmp_path / ORDERS, tmp_path / "out")
    assert [f.file for f in check(tmp_path / "out")] == [file_name(2)]
    shutil.copytree(tmp_path / LANDING_ZONE, tmp_path / "zone")
    assert [f.file for f in check(tmp_path / "zone")] == [f"orders/{file_name(2)}"]
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "x.parquet").write_bytes(parquet())
    assert codes(check(tmp_path / "bare")) == ["detection-undeclared"]


def test_the_relative_path_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database(tmp_path, {"id": [1]}, {"id": ["x"]})
    monkeypatch.chdir(tmp_path / ORDERS)
    assert [f.file for f in check(".")] == [file_name(2)]


def test_a_path_that_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(LakemirrorError) as caught:
        check(tmp_path / "nowhere")
    assert caught.value.code == "database-missing"


# the landing zone


def test_folders_and_files_that_are_no_tables(tmp_path: Path) -> None:
    storage_with(tmp_path, "_scratchPad/", "lost.parquet")
    write(tmp_path, "_partnerEvents.json", "[]")
    assert sorted(codes(check(tmp_path))) == ["file-stray", "folder-skipped", "partner-events-invalid"]


def test_tables_that_land_in_one_place(tmp_path: Path) -> None:
    storage_with(tmp_path, f"orders/{file_name(1)}", f"dbo.schema/orders/{file_name(1)}")
    assert check(tmp_path) == []
    definition = {"properties": {"target": {"typeProperties": {"defaultSchema": "dbo"}}}}
    (tmp_path / "mirroring.json").write_text(json.dumps(definition))
    assert codes(check(tmp_path)) == ["table-name-ambiguous", "table-name-ambiguous"]
    (tmp_path / "mirroring.json").write_text("{")
    assert codes(check(tmp_path)) == ["definition-invalid"]


def test_a_table_without_files(tmp_path: Path) -> None:
    assert codes(check(database(tmp_path))) == ["table-empty"]


# metadata


def test_metadata_that_does_not_parse_hides_nothing_else(tmp_path: Path) -> None:
    found = check(database(tmp_path, {"id": [1]}, {"id": ["x"], "__rowMarker__": [2]}, metadata='{"keyColumns": [}'))
    assert codes(found) == ["metadata-invalid", "type-changed"]
    assert "line 1, column 17" in found[0].message
    assert found[0].file == f"{ORDERS}/_metadata.json"


def test_metadata_warnings_and_many_keys(tmp_path: Path) -> None:
    metadata = '{"keyColumns": ["a", "b", "c", "d", "e",], "colour": 1}'
    row = {name: [1] for name in "abcde"}
    assert codes(check(database(tmp_path, row, metadata=metadata))) == [
        "metadata-lenient",
        "property-unknown",
        "keys-many",
    ]


TYPED = """{"keyColumns": ["id"], "fileFormat": "CSV", "SchemaDefinition": {"Columns": [
    {"Name": "id", "DataType": "Int32"}, {"Name": "note", "DataType": "String"}]}}"""


def delimited(root: Path, *texts: str, metadata: str = TYPED) -> list[Finding]:
    """What is found in such files."""
    database(root, metadata=metadata)
    for number, text in enumerate(texts, 1):
        age(write(root, f"orders/{file_name(number, 'csv')}", text))
    return check(root)


def test_good_delimited_files_have_no_findings(tmp_path: Path) -> None:
    assert delimited(tmp_path, "id,note\r\n1,a", 'note,id,__rowMarker__\r\n"b\n",1,4\r\n,1,2\r\n') == []


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ('id,note\r\n1,"\n"\r\n\r\nx,b\r\n', "value-invalid", 5, "id"),
        ("id,note\r\n1,a\r\n2\r\n", "value-invalid", 3, None),
        ("id,new\r\n", "column-undeclared", None, "new"),
        ("", "file-unreadable", None, None),
        ('note,id,__rowMarker__\r\n"\n\n",1,4\r\n,1,7\r\n,1,8', "row-marker-invalid", 5, "__rowMarker__"),
        ("id,__rowMarker__\r\n1,x", "row-marker-invalid", 2, "__rowMarker__"),
        ('note,id\r\n"\n\n",1\r\na,\r\nb,', "key-null", 5, "id"),
        ("note,__rowMarker__\r\na,\r\nb,2", "key-column-absent", 3, "id"),
    ],
)
def test_what_is_wrong_in_a_delimited_file(
    tmp_path: Path, text: str, code: str, line: int | None, column: str | None
) -> None:
    found = only(delimited(tmp_path, text))
    assert (found.code, found.row, found.column) == (code, line, column)
    assert found.file.endswith("0001.csv") and found.table == "orders"


def test_delimited_rows_that_need_keys(tmp_path: Path) -> None:
    metadata = '{"fileFormat": "CSV", "isUpsertDefaultRowMarker": true}'
    found = delimited(tmp_path, "id\r\n1", metadata=metadata)
    assert [(each.code, each.row) for each in found] == [("schema-undeclared", None), ("key-columns-missing", 2)]


def test_a_young_delimited_file_may_still_be_written(tmp_path: Path) -> None:
    delimited(tmp_path, "id,note\r\n1,a\r\n2")
    assert codes(check(tmp_path, now=1010.0)) == ["file-incomplete"]


def test_files_without_numbers_are_read_under_last_update_detection(tmp_path: Path) -> None:
    database(tmp_path, metadata='{"keyColumns": ["id"], "fileDetectionStrategy": "LastUpdateTimeFileDetection"}')
    for second, (name, value) in enumerate([("z", 1), ("a", "x")]):
        os.utime(write(tmp_path, f"orders/{name}.parquet", parquet(pa.table({"id": [value]}))), (1000, 1000 + second))
    found = check(tmp_path)
    assert codes(found) == ["type-changed"]
    assert found[0].file == f"{ORDERS}/a.parquet"


# names and numbers


def test_names_that_do_not_count(tmp_path: Path) -> None:
    database(tmp_path, {"id": [1]})
    write(tmp_path, "orders/2.parquet", parquet())
    write(tmp_path, f"orders/{file_name(3, 'parquet.tmp')}", b"")
    assert only(check(tmp_path)).file == f"{ORDERS}/2.parquet"


def test_gaps(tmp_path: Path) -> None:
    storage_with(tmp_path, *(f"orders/{file_name(n)}" for n in (2, 3, 7)))
    found = check(tmp_path)
    assert codes(found) == ["number-missing", "number-missing"]
    assert "number 1 is missing before number 2" in found[0].message
    assert "numbers 4 to 6 are missing before number 7" in found[1].message
    assert found[1].file == f"{ORDERS}/{file_name(7)}"


def test_applied_numbers_need_not_be_there(tmp_path: Path) -> None:
    storage_with(tmp_path, f"orders/{file_name(9)}", f"orders/{file_name(10)}", "orders/_mirror.json")
    assert check(tmp_path) == []
    storage_with(tmp_path, f"orders/_ProcessedFiles/{file_name(8)}")
    assert check(tmp_path) == []
    storage_with(tmp_path, f"orders/{file_name(12)}")
    assert codes(check(tmp_path)) == ["number-missing"]


def test_two_files_with_one_number(tmp_path: Path) -> None:
    database(tmp_path, {"id": [1]})
    write(tmp_path, f"orders/{file_name(1, 'csv')}", b"x")
    assert "file-ambiguous" in codes(check(tmp_path))


# sizes


def test_small_files(tmp_path: Path) -> None:
    database(tmp_path, *({"id": [n]} for n in range(check_module.SMALL_FILES - 1)))
    assert check(tmp_path) == []
    age(write(tmp_path, f"orders/{file_name(check_module.SMALL_FILES)}", parquet(pa.table({"id": [1]}))))
    assert codes(check(tmp_path)) == ["files-small"]


def test_many_files_and_large_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database(tmp_path, {"id": [1]}, {"id": [1]})
    monkeypatch.setattr(check_module, "MANY_FILES", 1)
    monkeypatch.setattr(check_module, "LARGE_BYTES", 100)
    assert codes(check(tmp_path)) == ["files-many", "file-large", "file-large"]


# the files' content


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    database(tmp_path, b"", parquet()[:-9], b"PAR1")
    assert codes(check(tmp_path)) == ["file-unreadable"] * 3
    os.utime(tmp_path / ORDERS / file_name(3))
    assert codes(check(tmp_path)) == ["file-unreadable", "file-unreadable", "file-incomplete"]
    assert codes(check(tmp_path, settle=0)) == ["file-unreadable"] * 3


@pytest.mark.parametrize(
    ("markers", "row"),
    [
        ([0, 1, 7, 3], 3),
        (["0", "1", "x"], 3),
        (["0", " 4 ", "2.0"], 3),
        (["1_0", "1"], 1),
        (pa.array(["0", "", "3"], pa.large_string()), 2),
        (pa.array(["0", "9"]).dictionary_encode(), 2),
        (pa.array([4, 200], pa.uint8()), 2),
        (pa.array([4, 2**64 - 1], pa.uint64()), 2),
        (pa.array([0, -1], pa.int8()), 2),
    ],
)
def test_markers_outside_the_contract(tmp_path: Path, markers: Any, row: int) -> None:
    found = check(database(tmp_path, {"id": list(range(len(markers))), "__rowMarker__": markers}))
    assert (only(found).code, only(found).row, only(found).column) == ("row-marker-invalid", row, "__rowMarker__")


def test_text_markers_as_the_engine_reads_them(tmp_path: Path) -> None:
    assert not check(database(tmp_path, {"id": [1, 2, 3], "__rowMarker__": ["\t0", "+0\r", "0" * 25]}))


@pytest.mark.parametrize("markers", [[0.5], [True], [b"1"], [[1]], pa.array([1], pa.time32("ms"))])
def test_marker_columns_of_other_types(tmp_path: Path, markers: Any) -> None:
    assert "row-marker-invalid" in codes(check(database(tmp_path, {"id": [1], "__rowMarker__": markers})))


@pytest.mark.parametrize(
    "markers", [[0, 1, 2, 4], ["0", "1", "2", "4"], pa.array([None, 0, 4, 2], pa.int8()), pa.nulls(4)]
)
def test_markers_of_the_contract(tmp_path: Path, markers: Any) -> None:
    assert check(database(tmp_path, {"__rowMarker__": markers, "id": [1, 2, 3, 4]})) == []


def test_the_first_bad_row_is_named_beyond_the_first_batch(tmp_path: Path) -> None:
    count = 200_000
    markers = [0] * count
    markers[150_000] = markers[150_007] = 9
    ids: list[int | None] = list(range(count))
    ids[170_000] = None
    found = check(database(tmp_path, {"id": ids, "__rowMarker__": markers}))
    assert [(f.code, f.row) for f in found] == [("row-marker-invalid", 150_001), ("key-null", 170_001)]
    assert "1 more" in found[0].message


def test_another_spelling_of_the_marker(tmp_path: Path) -> None:
    made = database(tmp_path, {"id": [1], "__rowmarker__": [1]})
    assert codes(check(made)) == ["row-marker-misspelt"]
    (made / "mirroring.json").write_text('{"lakemirror": {"row_marker_misspelt": "column"}}')
    assert codes(check(made)) == ["row-marker-spelling"]


@pytest.mark.parametrize(("markers", "row"), [([0, 1], 2), (["0", "4"], 2), ([2, 0], 1)])
def test_changes_without_declared_keys(tmp_path: Path, markers: list[Any], row: int) -> None:
    database(tmp_path, {"id": [1, 2]}, {"id": [1, 2], "__rowMarker__": markers}, metadata=None)
    found = only(check(tmp_path))
    assert (found.code, found.row, found.file) == ("key-columns-missing", row, f"{ORDERS}/{file_name(2)}")


def test_upserts_by_default_need_keys(tmp_path: Path) -> None:
    metadata = '{"isUpsertDefaultRowMarker": true}'
    marked = {"id": [1, 2], "__rowMarker__": pa.array([0, None], pa.int8())}
    found = check(database(tmp_path / "a", {"id": [1]}, marked, metadata=metadata))
    assert [(f.code, f.row) for f in found] == [("key-columns-missing", 1), ("key-columns-missing", 2)]
    assert check(database(tmp_path / "b", {"id": [1]}, marked, metadata=None)) == []


def test_keys_that_are_absent_or_null(tmp_path: Path) -> None:
    files = [
        {"v": [1], "__rowMarker__": [0]},
        {"v": [1, 1], "__rowMarker__": [0, 2]},
        {"ID": [None, 1, None], "v": [1, 1, 1]},
        {"id": pa.nulls(1), "v": [1]},
    ]
    found = check(database(tmp_path, *files))
    assert [(f.code, f.row, f.severity) for f in found] == [
        ("key-null", None, "warning"),
        ("key-column-absent", 2, "error"),
        ("key-null", 1, "warning"),
        ("key-null", 1, "warning"),
    ]
    assert "2 rows" in found[2].message


@pytest.mark.parametrize("keys", [["number"], ["id", "number"], []])
def test_key_columns_that_are_not_those_of_the_table(tmp_path: Path, keys: list[str]) -> None:
    root = database(tmp_path / "shop", {"id": [1], "number": [1]})
    opened = MirroredDatabase(root, cache_dir=str(tmp_path / "cache"))
    assert not opened.sync().failed and check(root) == []
    write(root, "orders/_metadata.json", json.dumps({"keyColumns": keys}))
    age(write(root, f"orders/{file_name(2)}", parquet(pa.table({"id": [2], "number": [2]}))))
    before = sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*"))
    finding = only(check(root))
    assert (finding.code, finding.severity, finding.table) == ("key-columns-changed", "error", "orders")
    assert finding.file == f"{ORDERS}/_metadata.json"
    assert sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*")) == before
    assert [error.code for error in opened.sync().failed.values()] == ["key-columns-changed"]


def test_types_that_change_between_files(tmp_path: Path) -> None:
    files = [
        {"id": [1], "a": pa.nulls(1)},
        {"id": pa.array([1], pa.int16()), "a": ["x"]},
        {"id": [1.5], "a": [1]},
        {"id": [1], "A": ["y"]},
    ]
    found = check(database(tmp_path, *files))
    assert [(f.code, f.column, f.file[-9:]) for f in found] == [
        ("type-changed", "id", "3.parquet"),
        ("type-changed", "a", "3.parquet"),
    ]
    assert f"string in the table since {file_name(2)}" in found[1].message


def test_columns_that_differ_in_case_alone(tmp_path: Path) -> None:
    assert codes(check(database(tmp_path, {"id": [1], "A": [1], "a": [1]}))) == ["columns-ambiguous"]
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([1])], ["id", "id"])
    assert set(codes(check(database(tmp_path, twice)))) == {"columns-ambiguous"}


def test_columns_that_no_table_holds(tmp_path: Path) -> None:
    found = check(database(tmp_path, {"id": [1], "a b": [1], "h": pa.array([1], pa.float16())}))
    assert [(f.code, f.column) for f in found] == [("type-unsupported", "h")]


def test_values_that_are_converted(tmp_path: Path) -> None:
    found = check(database(tmp_path, {"id": [1], "t": pa.array([1], pa.timestamp("ns", "UTC")), "l": [[1]]}))
    assert [(f.code, f.column, f.severity) for f in found] == [
        ("value-converted", "t", "warning"),
        ("value-converted", "l", "warning"),
    ]


def test_a_file_without_rows_is_a_good_file(tmp_path: Path) -> None:
    assert check(database(tmp_path, {"id": pa.array([], pa.int64())})) == []


def test_very_long_files_are_checked_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_content, "MAX_ROWS", 1000)
    found = only(check(database(tmp_path, {"id": list(range(100_000))})))
    assert (found.code, found.severity) == ("rows-unchecked", "advice")


def test_a_small_file_that_unfolds_to_gigabytes_stays_small(tmp_path: Path) -> None:
    # 300,000 times one string of 1 MB: 300 GB as plain values, one dictionary entry in the file
    big = pa.DictionaryArray.from_arrays(pa.array([0] * 300_000, pa.int32()), ["x" * 1_000_000])
    data = parquet(pa.table({"id": big}), store_schema=False)
    assert len(data) < 2_000_000
    before = pa.default_memory_pool().max_memory()
    assert check(database(tmp_path, data)) == []
    assert pa.default_memory_pool().max_memory() <= max(before, 400_000_000)


# every finding can be acted on


def test_every_code_has_a_severity_and_advice() -> None:
    for code, (severity, advice) in REPORTED.items():
        assert code not in CODES
        assert severity in ("warning", "advice")
        assert advice.endswith(".")


def test_fuzzed_files_are_coded_findings(tmp_path: Path) -> None:
    source = random.Random(7)
    whole = parquet(
        pa.table({"id": ["a", "b", None], "n": [1.5, 2, 3], "l": [[1], [], None], "__rowMarker__": ["0", "1", "4"]})
    )
    database(tmp_path)
    for round_ in range(12):
        shutil.rmtree(tmp_path / ORDERS)
        write(
            tmp_path,
            "orders/_metadata.json",
            bytes(source.randrange(256) if source.random() < 0.02 else c for c in KEYED.encode()),
        )
        for number in range(1, 31):
            data = bytearray(whole)
            for _ in range(source.randint(1, 8)):
                data[source.randrange(len(data))] = source.randrange(256)
            if source.random() < 0.2:
                del data[source.randrange(len(data)) :]
            age(write(tmp_path, f"orders/{file_name(number)}", bytes(data)))
        for finding in check(tmp_path):
            assert finding.code in CODES or finding.code in REPORTED, round_
            json.dumps(finding.__dict__).encode()


# the command


@pytest.fixture
def run() -> Any:
    app = typer.Typer()
    app.command()(cli_check.check)
    return lambda *arguments: CommandRunner().invoke(app, [str(a) for a in arguments])


def test_the_command_says_what_where_and_what_helps(tmp_path: Path, run: Any) -> None:
    database(tmp_path, {"id": [1], "__rowMarker__": [7]})
    result = run(tmp_path)
    assert result.exit_code == 3
    assert f"error: {ORDERS}/{file_name(1)}, row 1: row marker '7'" in result.stdout
    assert "[row-marker-invalid]" in result.stdout
    assert CODES["row-marker-invalid"].hint in result.stdout
    assert result.stderr.strip() == "1 error"


def test_the_command_on_a_clean_database(tmp_path: Path, run: Any) -> None:
    result = run(database(tmp_path, {"id": [1]}))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "all is well" in result.stderr


def test_the_command_as_json(tmp_path: Path, run: Any) -> None:
    result = run(database(tmp_path, {"id": [None]}), "--json")
    assert result.exit_code == 3
    assert [(f["code"], f["row"]) for f in json.loads(result.stdout)] == [("key-null", 1)]


def test_the_command_without_a_folder(tmp_path: Path, run: Any) -> None:
    result = run(tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "database-missing" in result.stderr


def test_names_cannot_write_to_the_terminal(tmp_path: Path, run: Any) -> None:
    write(tmp_path, "orders/\x1b[31mred.parquet", b"x")
    assert "\x1b" not in run(tmp_path).stdout


def test_progress_counts_tables(tmp_path: Path) -> None:
    storage_with(tmp_path, *(f"t{n}/{file_name(1)}" for n in range(3)))
    seen: list[tuple[int, int]] = []
    check(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3)]
