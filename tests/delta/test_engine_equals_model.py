"""The engine against the model, over random databases: the core promise of the contract."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.landing import MARKER, declare, folder, put, table_bag
from tests.model import ModelTable
from tests.rounds import SLOW
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase

NAN = float("nan")
KEY_TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [1, 2, 3, None]),
    "text": (pa.string(), ["a", "b", "ä", "", None]),
    "float": (pa.float64(), [0.0, -0.0, NAN, 1.5, None]),
}
MARKER_TYPES = [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.string()]


@st.composite
def change_file(draw: Any, kinds: tuple[str, ...]) -> dict[str, Any]:
    """One file's content: columns with types, marker column or none, rows in order."""
    markerless = draw(st.integers(0, 5)) == 0
    inserts_only = draw(st.integers(0, 4)) == 0
    columns = {f"k{i}": KEY_TYPES[kind][0] for i, kind in enumerate(kinds)}
    for name in ("v", "w", "x"):
        if draw(st.integers(0, 3)) > 0:
            columns[name] = {"v": pa.int32(), "w": pa.string(), "x": pa.float64()}[name]
    rows = []
    for _ in range(draw(st.integers(0, 8))):
        row = {f"k{i}": draw(st.sampled_from(KEY_TYPES[kind][1])) for i, kind in enumerate(kinds)}
        row |= {"v": draw(st.integers(0, 9)), "w": draw(st.sampled_from(["p", "q", None])), "x": draw(st.just(0.5))}
        marker = None if markerless else 0 if inserts_only else draw(st.sampled_from([0, 0, 1, 2, 4, 4, None]))
        rows.append((marker, {name: row[name] for name in columns}))
    return {
        "columns": columns,
        "rows": rows,
        "marker": None if markerless else draw(st.sampled_from(MARKER_TYPES)),
        "place": draw(st.integers(0, len(columns))),
        "statistics": draw(st.integers(0, 4)) > 0,
        "upper": draw(st.integers(0, 6)) == 0,
    }


@st.composite
def table(draw: Any) -> dict[str, Any]:
    kinds = tuple(draw(st.lists(st.sampled_from(list(KEY_TYPES)), min_size=1, max_size=2)))
    return {
        "kinds": kinds,
        "upsert": draw(st.integers(0, 4)) == 0,
        "lives": draw(st.lists(st.lists(change_file(kinds), min_size=1, max_size=5), min_size=1, max_size=2)),
    }


def write(database: Path, name: str, number: int, content: dict[str, Any]) -> None:
    arrays = {
        (c.upper() if content["upper"] and c in ("v", "w") else c): pa.array([row[c] for _, row in content["rows"]], t)
        for c, t in content["columns"].items()
    }
    rows = pa.table(arrays)
    if content["marker"] is not None:
        values = [m if m is None or content["marker"] != pa.string() else str(m) for m, _ in content["rows"]]
        rows = rows.add_column(min(content["place"], rows.num_columns), MARKER, pa.array(values, content["marker"]))
    put(database, name, number, rows, write_statistics=content["statistics"])


def play(
    spark: Any, tables: list[dict[str, Any]], batch_files: int, *, read_by_spark: bool = False, **options: Any
) -> None:
    """Writes the tables file by file with passes in between, and compares each with its model at the end."""
    place = Path(tempfile.mkdtemp(prefix="lakemirror-model-"))
    try:
        (place / "Files/LandingZone").mkdir(parents=True)
        models: dict[str, ModelTable] = {}
        lives = max(len(t["lives"]) for t in tables)
        for life in range(lives):
            for index, one in enumerate(tables):
                if life >= len(one["lives"]):
                    continue
                name = f"t{index}"
                keys = [f"k{i}" for i in range(len(one["kinds"]))]
                shutil.rmtree(folder(place, name), ignore_errors=True)
                declare(place, name, keys, isUpsertDefaultRowMarker=one["upsert"])
                models[name] = ModelTable(keys, one["upsert"])
                for number, content in enumerate(one["lives"][life], start=1):
                    write(place, name, number, content)
                    models[name].apply(content["columns"], content["rows"])
                    if number == 2:  # what is there so far, by an engine of its own; the rest comes later
                        MirroredDatabase(place, spark=spark, batch_files=batch_files, **options).sync()
            result = MirroredDatabase(place, spark=spark, batch_files=batch_files, **options).sync()
            assert not result.failed, result.failed
            for name, model in models.items():
                assert table_rows(place, name, model.columns) == model.bag(), name
                if read_by_spark:
                    assert table_bag(spark, place, name, model.columns) == model.bag(), name
    finally:
        shutil.rmtree(place)


ENGINES = ["local", "spark"]


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=2, **SLOW)
@given(st.lists(table(), min_size=3, max_size=3), st.sampled_from([1, 2, 1000]))
def test_tables_equal_the_model(spark: Any, engine: str, tables: list[dict[str, Any]], batch_files: int) -> None:
    play(spark, tables, batch_files, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=2, **SLOW)
@given(st.lists(table(), min_size=2, max_size=2), st.booleans())
def test_tables_equal_the_model_without_deletion_vectors(
    spark: Any, engine: str, tables: list[dict[str, Any]], feed: bool
) -> None:
    play(spark, tables, 2, deletion_vectors=False, change_data_feed=feed, engine=engine)


@pytest.mark.parametrize(
    ("engine", "kind", "vectors"),
    [
        *(("local", kind, vectors) for kind in (pa.float32(), pa.float64()) for vectors in (True, False)),
        ("spark", pa.float32(), False),
        ("spark", pa.float64(), True),
        pytest.param("spark", pa.float32(), True, marks=pytest.mark.full),
        pytest.param("spark", pa.float64(), False, marks=pytest.mark.full),
    ],
)
def test_both_zeros_and_every_nan_are_one_key(
    spark: Any, tmp_path: Path, vectors: bool, kind: pa.DataType, engine: str
) -> None:
    declare(tmp_path, "t", ["k", "s"])
    put(tmp_path, "t", 1, {"k": pa.array([0.0, -0.0, NAN, 1.5, None], kind), "s": list("abcde"), "v": [1, 1, 1, 1, 1]})
    changed = {"k": pa.array([-0.0, 0.0, -NAN, None], kind), "s": list("abce"), "v": [2, 2, 2, 2]}
    put(tmp_path, "t", 2, {**changed, MARKER: pa.array([2, 4, 4, 2], pa.int32())})
    assert (
        not MirroredDatabase(tmp_path, spark=spark, batch_files=1, deletion_vectors=vectors, engine=engine)
        .sync()
        .failed
    )
    assert table_rows(tmp_path, "t") == {(0.0, "b", 2): 1, ("NaN", "c", 2): 1, (1.5, "d", 1): 1}


@settings(max_examples=1, **SLOW)
@given(st.lists(table(), min_size=3, max_size=3))
def test_tables_equal_the_model_where_files_are_taken_as_they_are(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tables: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr("lakemirror.engines.kernels.add_files._SMALLEST_OF_FEW", 0)
    play(spark, tables, 2)


@pytest.mark.full
@settings(max_examples=60, **SLOW)
@given(st.lists(table(), min_size=4, max_size=4), st.sampled_from([1, 2, 3, 1000]), st.booleans())
@pytest.mark.parametrize("engine", ENGINES)
def test_many_tables_equal_the_model(
    spark: Any, engine: str, tables: list[dict[str, Any]], batch_files: int, vectors: bool
) -> None:
    play(spark, tables, batch_files, read_by_spark=True, deletion_vectors=vectors, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_footer_that_lies_about_its_markers(spark: Any, tmp_path: Path, engine: str) -> None:
    """The file says minimum 0 and maximum 0, and holds deletes: they are applied all the same."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2, 3]})
    file = put(tmp_path, "t", 2, {"id": [1, 2], MARKER: pa.array([2, 0], pa.int32())})
    data = file.read_bytes()
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    two, zero = b"\x04\x02\0\0\0", b"\x04\0\0\0\0"  # a length and an int32, as statistics have them
    file.write_bytes(data[:begin] + data[begin:].replace(two, zero))
    marker = pq.read_metadata(file).row_group(0).column(1)
    assert (marker.path_in_schema, marker.statistics.min, marker.statistics.max) == (MARKER, 0, 0)
    MirroredDatabase(tmp_path, spark=spark, batch_files=1, engine=engine).sync()
    assert table_rows(tmp_path, "t") == {(2,): 2, (3,): 1}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_sequence_on_one_key(spark: Any, tmp_path: Path, engine: str) -> None:
    """All sequences of up to four markers, each on a key of its own, on a key that is there or not, cut anywhere."""
    import itertools

    sequences = [s for n in range(1, 5) for s in itertools.product([0, 1, 2, 4], repeat=n)]
    model = ModelTable(["k"])
    first = {
        "k": [f"{i}" for i in range(len(sequences)) if i % 2],
        "v": pa.array([-1] * (len(sequences) // 2), pa.int32()),
    }
    declare(tmp_path, "t", ["k"])
    put(tmp_path, "t", 1, first)
    model.apply(["k", "v"], [(0, {"k": k, "v": -1}) for k in first["k"]])
    for step in range(4):
        rows = [(s[step], {"k": f"{i}", "v": step}) for i, s in enumerate(sequences) if len(s) > step]
        put(
            tmp_path,
            "t",
            step + 2,
            {
                "k": [r["k"] for _, r in rows],
                "v": pa.array([r["v"] for _, r in rows], pa.int32()),
                MARKER: pa.array([m for m, _ in rows], pa.int32()),
            },
        )
        model.apply(["k", "v"], rows)
        if step == 1:
            MirroredDatabase(tmp_path, spark=spark, engine=engine).sync()
    MirroredDatabase(tmp_path, spark=spark, batch_files=1, engine=engine).sync()
    assert table_rows(tmp_path, "t", ["k", "v"]) == model.bag()


@pytest.mark.parametrize("engine", ENGINES)
def test_change_feed_tells_updates_from_inserts_and_deletes(spark: Any, tmp_path: Path, engine: str) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    MirroredDatabase(tmp_path, spark=spark, change_data_feed=True, engine=engine).sync()
    put(
        tmp_path, "t", 2,
        {"id": [1, 2, 4, 5], "v": ["A", None, "d", "e"], MARKER: pa.array([1, 2, 4, 0], pa.int32())},
    )  # fmt: skip
    MirroredDatabase(tmp_path, spark=spark, change_data_feed=True, engine=engine).sync()
    feed = (
        spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
        .load(str(tmp_path / "Tables/t")).select("id", "v", "_change_type").collect()
    )  # fmt: skip
    assert sorted(map(tuple, feed), key=str) == sorted(
        [
            (1, "a", "update_preimage"),
            (1, "A", "update_postimage"),
            (2, "b", "delete"),
            (4, "d", "insert"),
            (5, "e", "insert"),
        ],
        key=str,
    )
    assert table_rows(tmp_path, "t") == {(1, "A"): 1, (3, "c"): 1, (4, "d"): 1, (5, "e"): 1}


def test_a_batch_without_statistics_reads_the_same(spark: Any, tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2], MARKER: pa.array([0, 0], pa.int8())}, write_statistics=False)
    assert pq.read_metadata(folder(tmp_path, "t") / f"{1:020}.parquet").row_group(0).column(1).statistics is None
    MirroredDatabase(tmp_path, spark=spark).sync()
    assert table_rows(tmp_path, "t") == {(1,): 1, (2,): 1}
