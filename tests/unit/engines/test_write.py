"""The write kernel: files, names, partitions, statistics, and what is removed after a failure."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.delta import exact_json
from lakemirror.delta.data_files import data_file, logged_path, partition_value
from lakemirror.delta.log import Protocol
from lakemirror.engines.kernels import write
from lakemirror.engines.kernels.dictionaries import is_repeated
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.kernels.write import ConstraintViolated, FileSizes, write_change_feed, write_rows
from lakemirror.engines.row_work import Action, Target, TargetColumn
from lakemirror.parquet.page_index import has_page_index


def target(path: Path, columns: dict[str, str], **options: Any) -> Target:
    return Target(str(path), tuple(TargetColumn(name, name, type_) for name, type_ in columns.items()), **options)


def commit(path: Path, columns: dict[str, str], adds: list[Action], partitions: tuple[str, ...] = ()) -> None:
    """A table of these files, as the smallest log that says it."""
    names = {"int": "integer", "bigint": "long", "smallint": "short"}
    fields = [{"name": n, "type": names.get(t, t), "nullable": True, "metadata": {}} for n, t in columns.items()]
    metadata = {
        "id": "t", "format": {"provider": "parquet", "options": {}}, "configuration": {},
        "schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": list(partitions),
    }  # fmt: skip
    (path / "_delta_log").mkdir(parents=True)
    lines = [Protocol(1, 2).to_action(), {"metaData": metadata}, *({"add": add} for add in adds)]
    (path / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, lines)))


def stats(add: Action) -> dict[str, Any]:
    return exact_json.read(add["stats"])


@pytest.mark.parametrize("added", ["__END_AT", "__deleted_at", "__applied_at"])
def test_tables_whose_old_rows_are_read_one_by_one_have_small_pages(tmp_path: Path, added: str) -> None:
    """Tables of versions, soft deletes and remembered changes have them, tables of changes do not."""
    (add,) = write_rows([pa.record_batch({"id": [1]})], target(tmp_path, {"id": "bigint", added: "timestamp"}))
    assert has_page_index(pq.read_metadata(data_file(tmp_path, add["path"]))) == (added != "__applied_at")


def test_rows_come_back_through_another_reader_by_partition(tmp_path: Path) -> None:
    columns = {"id": "bigint", "region": "string", "day": "date", "name": "string"}
    regions = ["eu/north", None, "a=b %41", "", "ü\n", "eu/north"]
    days = [datetime.date(2020, 1, 1), None, datetime.date(1, 1, 1), datetime.date(2020, 1, 1), None, None]
    rows = pa.record_batch({
        "name": [str(n) for n in range(6)], "id": list(range(6)), "region": regions,
        "day": pa.array(days, pa.date32()),
    })  # fmt: skip
    adds = write_rows([rows, rows.slice(0, 0), rows], target(tmp_path, columns, partition_columns=("region", "day")))
    assert len(adds) == 6, "one a partition"
    assert all(data_file(tmp_path, add["path"]).stat().st_size == add["size"] for add in adds)
    assert {add["partitionValues"]["region"] for add in adds} == {"eu/north", None, "a=b %41", "ü\n"}
    assert pq.ParquetFile(data_file(tmp_path, adds[0]["path"])).schema_arrow.names == ["id", "name"]
    assert set(stats(adds[0])["nullCount"]) == {"id", "name"}
    commit(tmp_path, columns, adds, ("region", "day"))
    read = deltalake.DeltaTable(tmp_path).to_pyarrow_table().sort_by("id").to_pylist()
    expected = [
        {"id": n, "region": regions[n] or None, "day": days[n], "name": str(n)} for n in range(6) for _ in range(2)
    ]
    assert read == expected


def test_physical_names_field_ids_and_absent_columns(tmp_path: Path) -> None:
    columns = (TargetColumn("a b", "col-1", "int", 1), TargetColumn("c", "col-2", "string", 2))
    (add,) = write_rows([pa.record_batch({"a b": pa.array([1, 2], pa.int32())})], Target(str(tmp_path), columns))
    file = pq.ParquetFile(tmp_path / add["path"])
    assert [(f.name, f.metadata[b"PARQUET:field_id"]) for f in file.schema_arrow] == [("col-1", b"1"), ("col-2", b"2")]
    assert stats(add)["minValues"] == {"col-1": 1} and stats(add)["nullCount"] == {"col-1": 0, "col-2": 2}
    assert file.metadata.metadata[b"org.apache.spark.version"] == b"4.2.0"


@pytest.mark.parametrize(("by_id", "expected"), [(True, "wrong place"), (False, None)])
def test_ids_of_fields_count_in_mode_id_alone(tmp_path: Path, by_id: bool, expected: str | None) -> None:
    """Old Arrow writers numbered the fields of each file by their places, whatever the table's columns."""
    fields = [pa.field("col-1", pa.int32(), metadata={"PARQUET:field_id": "1"}),
              pa.field("other", pa.string(), metadata={"PARQUET:field_id": "2"})]  # fmt: skip
    rows = pa.table([pa.array([1], pa.int32()), pa.array(["wrong place"])], schema=pa.schema(fields))
    pq.write_table(rows, tmp_path / "old.parquet")
    columns = (TargetColumn("a", "col-1", "int", 1, by_id=by_id), TargetColumn("b", "col-2", "string", 2, by_id=by_id))
    add = {"path": "old.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0}
    (read,) = live_rows(add, Target(str(tmp_path), columns))
    assert read.to_pylist() == [{"a": 1, "b": expected}]


def test_files_and_row_groups_end_where_they_should(tmp_path: Path) -> None:
    rows = pa.record_batch({"n": range(95)})
    adds = write_rows(
        [rows.slice(0, 33), rows.slice(33)], target(tmp_path, {"n": "bigint"}), sizes=FileSizes(40, rows_a_group=10)
    )
    assert [stats(add)["numRecords"] for add in adds] == [40, 40, 15]
    assert [stats(add)["minValues"]["n"] for add in adds] == [0, 40, 80]
    footer = pq.read_metadata(tmp_path / adds[0]["path"])
    assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == [10] * 4
    assert (
        len(write_rows([rows], target(tmp_path, {"n": "bigint"}), sizes=FileSizes(bytes_a_file=1, rows_a_group=10)))
        == 10
    )
    parts = [rows.slice(0, 3), rows.slice(3, 4)]
    (add,) = write_rows(parts, target(tmp_path, {"n": "bigint"}), sizes=FileSizes(bytes_a_group=1))
    assert pq.read_metadata(tmp_path / add["path"]).num_row_groups == 2
    assert write_rows([], target(tmp_path, {"n": "bigint"})) == []


def test_more_partitions_than_open_files(tmp_path: Path) -> None:
    few = FileSizes(most_open=3, bytes_buffered=100)
    table = target(tmp_path, {"p": "int", "n": "bigint"}, partition_columns=("p",))
    rows = pa.record_batch({"p": pa.array([n % 10 for n in range(100)], pa.int32()), "n": range(100)})
    adds = write_rows([rows.slice(n, 10) for n in range(0, 100, 10)], table, sizes=few)
    found = [
        (int(add["partitionValues"]["p"]), n)
        for add in adds
        for n in pq.read_table(tmp_path / add["path"], partitioning=None)["n"].to_pylist()
    ]
    assert sorted(found) == sorted((n % 10, n) for n in range(100))


def test_floating_point_has_no_dictionary_and_no_bounds_in_the_footer(tmp_path: Path) -> None:
    """Spark drops a chunk whose dictionary is -0.0 alone for `= 0.0`, and NaN by bounds that leave it out."""
    rows = pa.record_batch({"d": [-0.0] * 9, "f": pa.array([-0.0] * 9, pa.float32()), "s": ["x"] * 9})
    (add,) = write_rows([rows], target(tmp_path, {"d": "double", "f": "float", "s": "string"}))
    group = pq.read_metadata(tmp_path / add["path"]).row_group(0)
    for place, has_dictionary in enumerate((False, False, True)):
        assert ("RLE_DICTIONARY" in group.column(place).encodings) is has_dictionary
        assert (group.column(place).statistics is not None) is has_dictionary
    (alone,) = write_rows([pa.record_batch({"d": [-0.0] * 9})], target(tmp_path, {"d": "double"}))
    chunk = pq.read_metadata(tmp_path / alone["path"]).row_group(0).column(0)
    assert "RLE_DICTIONARY" not in chunk.encodings and chunk.statistics is None
    low, high = stats(add)["minValues"]["d"], stats(add)["maxValues"]["d"]
    assert math.copysign(1, low) == -1 and math.copysign(1, high) == 1, "one value to some readers, two to others"


@pytest.mark.parametrize("in_batches", [1, 3])
def test_a_dictionary_where_rows_share_values(tmp_path: Path, in_batches: int) -> None:
    rows = 60_000
    numbers = np.random.default_rng(1)
    columns = {
        "own": np.arange(rows), "few": numbers.integers(0, 100, rows), "runs": np.arange(rows) // 20,
        "many": numbers.integers(0, rows // 10, rows), "most": numbers.integers(0, rows, rows),
    }  # fmt: skip
    batch = pa.RecordBatch.from_pydict({**columns, "none": pa.nulls(rows, pa.int64())})
    step = rows // in_batches
    (add,) = write_rows([batch.slice(n * step, step) for n in range(in_batches)],
                        target(tmp_path, dict.fromkeys(batch.schema.names, "bigint")))  # fmt: skip
    with pq.ParquetFile(data_file(tmp_path, add["path"])) as file:
        group = file.metadata.row_group(0)
        encoded = {name: group.column(n).has_dictionary_page for n, name in enumerate(batch.schema.names)}
        assert file.read().equals(pa.Table.from_batches([batch]).cast(file.schema_arrow))
    assert encoded == {"own": False, "few": True, "runs": True, "many": True, "most": False, "none": True}


def test_as_many_files_as_cores_share_evenly() -> None:
    million = write.ROWS_A_FILE
    assert [write.file_count(rows) for rows in (0, 1, million, million + 1, 2 * million + 1, 5 * million)] == [
        0, 1, 1, 2, 4, 8,
    ]  # fmt: skip


def test_a_flipped_bit_is_seen_by_whoever_looks_at_checksums(tmp_path: Path) -> None:
    rows = pa.record_batch({"d": [math.sin(n) for n in range(5000)]})  # snappy leaves them as they are
    (add,) = write_rows([rows], target(tmp_path, {"d": "double"}))
    path = tmp_path / add["path"]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert pq.read_table(path).num_rows == 5000, "a wrong value, and nobody notices"
    with pytest.raises(OSError, match="could not verify page integrity"):
        pq.ParquetFile(path, page_checksum_verification=True).read()


@pytest.mark.parametrize(
    ("type_", "values", "low", "high"),
    [
        ("decimal(38,20)", ["9007199254740992.99", "-123456789012345678.12345678901234567890"],
         Decimal("-123456789012345678.12345678901234567890"), Decimal("9007199254740992.99")),
        ("double", [1.5, float("nan")], None, None),
        ("double", [float("-inf"), 1.5], None, None),
        ("double", [0.1, 1e300], Decimal("0.1"), Decimal("1e300")),
        ("float", [0.1], Decimal(repr(float(pa.scalar(0.1, pa.float32()).as_py()))), None),
        ("string", ["a" * 40, "é" * 40], "a" * 32, "é" * 32 + "\U0010ffff"),
        ("string", ["a" * 40], "a" * 32, "a" * 32 + "\x7f"),
        ("string", ["a" * 32 + "\U0010ffff"], None, None),
        ("string", ["\x00", "\U0001f600"], "\x00", "\U0001f600"),
        ("boolean", [True, False], None, None),
        ("binary", [b"a"], None, None),
        ("smallint", [-5, 7], -5, 7),
    ],
)  # fmt: skip
def test_bounds(tmp_path: Path, type_: str, values: list[Any], low: Any, high: Any) -> None:
    kind = write.stored_type(type_)
    assert kind is not None
    given = [Decimal(value) for value in values] if type_.startswith("decimal") else values
    (add,) = write_rows([pa.record_batch({"v": pa.array([*given, None], kind)})], target(tmp_path, {"v": type_}))
    found = stats(add)
    assert (found["numRecords"], found["nullCount"]) == (len(values) + 1, {"v": 1})
    assert found["minValues"].get("v") == low
    if high is not None or low is None:
        assert found["maxValues"].get("v") == high


def test_statistics_of_the_first_32_columns(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(40)]
    (add,) = write_rows([pa.record_batch({n: [1] for n in names})], target(tmp_path, dict.fromkeys(names, "bigint")))
    assert list(stats(add)["minValues"]) == list(stats(add)["nullCount"]) == names[:32]


def test_a_row_that_lacks_a_value_it_must_have(tmp_path: Path) -> None:
    table = Target(str(tmp_path), (TargetColumn("n", "n", "bigint", nullable=False), TargetColumn("s", "s", "string")))
    batches = [pa.record_batch({"n": [1, 2]}), pa.record_batch({"n": [3, None]})]
    with pytest.raises(ConstraintViolated) as raised:
        write_rows(batches, table)
    assert (raised.value.column, raised.value.row) == ("n", 4)
    with pytest.raises(ConstraintViolated):
        write_rows([pa.record_batch({"s": ["x"]})], table)
    assert not list(tmp_path.iterdir())


def test_after_a_failure_no_file_is_left(tmp_path: Path) -> None:
    table = target(tmp_path, {"p": "string", "n": "bigint"}, partition_columns=("p",))
    two = FileSizes(2, rows_a_group=2)

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"p": ["a", "b", "a", "b"], "n": [1, 2, 3, 4]})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rows(batches(), table, sizes=two)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with pytest.raises(pa.ArrowInvalid):
        write_rows([pa.record_batch({"n": ["x"]})], target(tmp_path, {"n": "bigint"}))
    with pytest.raises(ValueError, match="cannot write"):
        write_rows([], target(tmp_path, {"n": "interval"}))


def test_the_change_feed_has_files_of_its_own(tmp_path: Path) -> None:
    table = target(tmp_path, {"p": "string", "n": "bigint"}, partition_columns=("p",))
    rows = pa.record_batch({"p": ["a", "b"], "n": [1, 2], "_change_type": ["insert", "delete"]})
    actions = write_change_feed([rows], table)
    assert all(set(action) == {"path", "partitionValues", "size", "dataChange"} for action in actions)
    assert {action["path"].rpartition("/")[0] for action in actions} == {"_change_data/p=a", "_change_data/p=b"}
    file = pq.read_table(data_file(tmp_path, actions[0]["path"]), partitioning=None)
    assert file.to_pylist() == [{"n": 1, "_change_type": "insert"}] and not actions[0]["dataChange"]


def test_partition_values_and_paths() -> None:
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 6, datetime.timezone.utc)
    given = [None, "", "x", True, 5, Decimal("1E+2"), moment, moment.replace(tzinfo=None), moment.date(), b"a"]
    assert [partition_value(value) for value in given] == [
        None, None, "x", "true", "5", "100", "2020-01-02T03:04:05.000006Z", "2020-01-02 03:04:05.000006", "2020-01-02",
        "a",
    ]  # fmt: skip
    assert logged_path("a=%2F ü/b") == "a=%252F%20%C3%BC/b"
    assert data_file("/t", "a=%252F%20%C3%BC/b") == Path("/t/a=%2F ü/b")
    assert data_file("/t", "file:///o%20x/f") == Path("/o x/f")


@pytest.mark.parametrize(("repeated", "pays"), [(306, False), (308, True)])
def test_a_dictionary_needs_six_rows_that_share_a_value(repeated: int, pays: bool) -> None:
    """By the sample: 4 runs of 512 rows. 2048 * 2048 * 6 / (2 * 40960) = 307.2 values are found again."""
    numbers = np.arange(40_960)
    numbers[10_240 : 10_240 + repeated] = numbers[:repeated]
    assert is_repeated([pa.array(numbers)]) == pays
