"""What the Spark engine must do as the local one does: run in a process of its own with any PySpark, or in a test.

python tests/spark/engine_scenario.py FOLDER [sc://HOST:PORT]      prints the differences; nothing if there are none
"""

from __future__ import annotations

import datetime
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa
from tests.mirror import Mirror, target_of, unit

from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.row_work import ChangeUnit, RewriteWork, RowWork, TargetColumn
from lakemirror.engines.spark import SparkEngine
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.row_markers import ROW_MARKER, UNCHANGED

COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(), "k": pa.string(), "d": pa.float64(), "day": pa.date32(), "m": pa.decimal128(12, 2),
    "at": pa.timestamp("us", "UTC"), "l": pa.list_(pa.int32()), "part": pa.string(),
}  # fmt: skip


def differences(session: Any, folder: Path, which: str = "all") -> list[str]:
    """Every case in which the Spark engine does other than the local one; none if all is well.

    `which`: "some" leaves out those that ask nothing else of the way to Spark than the others, and take longest, also
    of the bad rows; with "fewer" each way to find the keys has other shapes of tables, not all of them.
    """
    few, here = SparkEngine(session), SparkEngine(session, few_bytes=0)
    buckets = SparkEngine(session, few_bytes=0, driver_keys=0)
    two, one, partial_rows, bad_rows = _tables, _tables, _partial_rows, _bad_rows
    if which == "fewer":
        two, one = partial(_tables, shapes=("feed", "rewritten")), partial(_tables, shapes=("vectors",))
        partial_rows = partial(_partial_rows, shapes=(1,))
    if which == "some":
        bad_rows = partial(_bad_rows, only=("row-marker-invalid", "file-unreadable", "constraint-violated"))
    cases: list[tuple[str, SparkEngine, Callable[[SparkEngine, Path], Iterator[str]]]] = [
        ("few changes", few, _tables), ("keys in the driver", here, two), ("keys by buckets", buckets, one),
        ("few changes", few, _bad_rows), ("any", here, bad_rows),
        ("any", here, _too_large), ("any", here, _compaction), ("any", here, _gone),
        ("keys by buckets", buckets, _one_bad_row), ("any", here, _constraints),
        ("keys in the driver", here, _untyped_key), ("keys by buckets", buckets, _untyped_key),
        ("few changes", few, _partial_rows), ("keys by buckets", buckets, partial_rows),
    ]  # fmt: skip
    found = []
    for number, (way, engine, case) in enumerate(cases):
        if which == "some" and case in (_tables, _partial_rows):
            continue
        place = folder / str(number)
        place.mkdir()
        found += [f"{way}: {told}" for told in case(engine, place)]
    return found


def _tables(
    engine: SparkEngine, folder: Path, shapes: tuple[str, ...] = ("vectors", "feed", "rewritten")
) -> Iterator[str]:
    all_: dict[str, dict[str, Any]] = {
        "vectors": {},
        "feed": {"feed": True, "partition_columns": ("part",)},
        "rewritten": {"vectors": False, "feed": True},
    }
    for seed, (shape, options) in enumerate(all_.items()):
        if shape not in shapes:
            continue
        keys = ("id",) if shape == "vectors" else ("id", "k", "d")
        place = folder / shape
        place.mkdir()
        made = {name: Mirror(place / name, _target(place / name, keys, options)) for name in ("spark", "local")}
        rng = random.Random(seed)
        number = 0
        for _ in range(2):
            units = []
            for _ in range(rng.randint(1, 3)):
                number += 1
                units.append(unit(place, number, _changes(rng, rng.randint(1, 60)), row_group_size=17))
            results = {
                name: made[name].apply(each, units, 4) for name, each in (("spark", engine), ("local", LocalEngine()))
            }
            if made["spark"].bag() != made["local"].bag():
                yield f"{shape}: other rows after file {number}"
            if bool(results["spark"].changes) != bool(results["local"].changes):
                yield f"{shape}: a change feed from one engine only, file {number}"
    place = folder / "inserts"
    place.mkdir()
    mirror = Mirror(place / "t", target_of(place / "t", COLUMNS, ("id",)))
    units = [unit(place, n, _changes(random.Random(n), 40).drop_columns([ROW_MARKER])) for n in range(1, 5)]
    mirror.apply(engine, units, 0, append_only=True)
    if sum(mirror.bag().values()) != 160:
        yield "inserts: rows are lost"


def _bad_rows(engine: SparkEngine, folder: Path, only: tuple[str, ...] = ()) -> Iterator[str]:
    """`only`: of these codes; none: of all."""
    good = unit(folder, 1, pa.table({"id": [1, 2], "v": ["a", "b"], ROW_MARKER: [4, 4]}))

    def bad(name: str, rows: dict[str, Any]) -> tuple[ChangeUnit, ...]:
        (folder / name).mkdir()
        return good, unit(folder / name, 2, pa.table(rows)), replace(good, number=3)

    broken = bad("broken", {"id": list(range(5000)), "v": ["x" * 20] * 5000, ROW_MARKER: [4] * 5000})
    path = Path(broken[1].path)
    content = bytearray(path.read_bytes())
    content[200:4000] = os.urandom(3800)
    path.write_bytes(content)
    target = target_of(folder / "t", {"id": pa.int64(), "v": pa.string()}, ("id",))
    strict = replace(target, columns=(target.columns[0], replace(target.columns[1], nullable=False)))
    keyless, invalid = replace(target, key_columns=()), pa.array([[float("nan")]], pa.list_(pa.float64()))
    cases: dict[str, tuple[tuple[ChangeUnit, ...], Any, bool]] = {
        "row-marker-invalid": (bad("m", {"id": [3, 4], "v": ["c", "d"], ROW_MARKER: [4, 7]}), target, False),
        "key-columns-missing": (bad("n", {"id": [3], "v": ["c"], ROW_MARKER: [2]}), keyless, False),
        "key-column-absent": (bad("a", {"v": ["c", "d"], ROW_MARKER: [0, 1]}), target, False),
        "not what statistics say": (bad("s", {"id": [3, 4], "v": ["c", "d"], ROW_MARKER: [0, 1]}), target, True),
        "type-changed": (bad("c", {"id": [3], "v": pa.array([b"1"]), ROW_MARKER: [4]}), target, False),
        "type-unsupported": (bad("u", {"id": [3], "v": pa.array([1.0], pa.float16()), ROW_MARKER: [4]}), target, False),
        "value-invalid": (bad("v", {"id": [3], "v": invalid, ROW_MARKER: [4]}), target, False),
        "columns-ambiguous": (bad("b", {"id": [3], "ID": [3], ROW_MARKER: [4]}), target, False),
        "file-unreadable": (broken, target, False),
        "constraint-violated": (bad("o", {"id": [3, 4], "v": ["c", None], ROW_MARKER: [4, 1]}), strict, False),
    }  # fmt: skip
    for code, (units, table, append_only) in cases.items():
        if only and code not in only:
            continue
        told = {}
        for name, each in (("spark", engine), ("local", LocalEngine())):
            place = folder / f"{code}-{name}"
            mirror = Mirror(place, replace(table, path=str(place)))
            told[name] = mirror.apply(
                each, [units[1]] if append_only else list(units), 0, append_only=append_only
            ).error
            if told[name] is not None and list(place.rglob("*.parquet")):
                yield f"{code}: {name} leaves files behind"
        if told["spark"] != told["local"]:
            yield f"{code}: {told['spark']} is not {told['local']}"
        if told["local"] is None and code != "value-invalid":
            yield f"{code}: no error at all"


def _too_large(engine: SparkEngine, folder: Path) -> Iterator[str]:
    """One value that exceeds the budget of both engines."""
    target = target_of(folder / "t", {"id": pa.int64(), "v": pa.string()}, ("id",))
    large = unit(folder, 1, pa.table({"id": [1], "v": ["0" * (3 << 20)], ROW_MARKER: [4]}))
    told = [
        Mirror(folder / "t", target).apply(each, [large], 0).error
        for each in (SparkEngine(engine.session, memory=1 << 20), LocalEngine(1 << 20))
    ]
    if told[0] != told[1] or told[1] is None or told[1].code != "file-too-large":
        yield f"a value that is too large: {told}"


def _one_bad_row(engine: SparkEngine, folder: Path) -> Iterator[str]:
    """The first of two in the order of files, though keys alone show only the second."""
    invalid = pa.array([[1.0], [float("nan")]], pa.list_(pa.float64()))
    first = unit(folder, 1, pa.table({"id": [1, 2], "v": invalid, ROW_MARKER: [4, 4]}))
    second = unit(folder, 2, pa.table({"id": [3, 4], "v": pa.array([[1.0], [2.0]]), ROW_MARKER: [4, 7]}))
    target = target_of(folder / "t", {"id": pa.int64(), "v": pa.string()}, ("id",))
    told = [
        Mirror(folder / "t", target).apply(each, [first, second], 0).error
        for each in (engine, SparkEngine(engine.session), LocalEngine())
    ]
    if told[0] != told[2] or told[1] != told[2] or told[2] is None:
        yield f"the first bad row: {told}"


def _compaction(engine: SparkEngine, folder: Path) -> Iterator[str]:
    mirror = Mirror(folder / "t", target_of(folder / "t", {"id": pa.int64()}, ("id",)))
    for n in range(4):
        mirror.apply(LocalEngine(), [unit(folder, n + 1, pa.table({"id": [2 * n, 2 * n + 1]}))], 0)
    mirror.apply(LocalEngine(), [unit(folder, 9, pa.table({"id": [0, 5], ROW_MARKER: [2, 2]}))], 0)
    before = mirror.bag()
    adds = engine.rewrite(RewriteWork(mirror.target, tuple(mirror.files.values()), 2))
    mirror.files = {add["path"]: add for add in adds}
    if mirror.bag() != before or len(adds) != 2 or any(add["dataChange"] for add in adds):
        yield f"compaction: {len(adds)} files with {mirror.bag()}"


def _gone(engine: SparkEngine, folder: Path) -> Iterator[str]:
    target = target_of(folder / "t", {"id": pa.int64()}, ("id",))
    absent = unit(folder, 1, pa.table({"id": [1], ROW_MARKER: [4]}))
    Path(absent.path).unlink()
    try:
        engine.run(RowWork(target, (absent,), False, 0))
    except LakemirrorError as error:
        if error.code != "concurrent-commit":
            yield f"a file that is gone: {error}"
    else:
        yield "a file that is gone: no error"


def _constraints(engine: SparkEngine, folder: Path) -> Iterator[str]:
    target = target_of(folder / "c", {"id": pa.int64(), "odd `name": pa.string()}, ("id",))
    target = replace(target, constraints=(("positive", "id > 0"), ("short", "length(`odd ``name`) < 3")))
    mirror = Mirror(folder / "c", target)
    good = unit(folder, 1, pa.table({"id": [1, -2, 3], "odd `name": ["a", "b", "cc"], ROW_MARKER: [4, 2, 4]}))
    if mirror.apply(engine, [good], 0).error is not None or sum(mirror.bag().values()) != 2:
        yield "constraints: a batch that keeps them is refused"
    bad = unit(folder, 2, pa.table({"id": [3, 3, 4], "odd `name": ["ccc", "x", None], ROW_MARKER: [4, 4, 4]}))
    error = mirror.apply(engine, [bad], 0).error
    told = error and (error.code, error.row, error.column, "short" in error.message)
    if told != ("constraint-violated", 3, "odd `name", True):
        yield f"constraints: {error}"
    required = replace(target, columns=(*target.columns[:1], replace(target.columns[1], nullable=False)))
    bad = unit(folder, 3, pa.table({"id": [5, 6], "odd `name": [None, "ccc"], ROW_MARKER: [4, 4]}))
    first = Mirror(folder / "c", required).apply(engine, [bad], 0).error
    if first is None or (first.row, "NOT NULL" in first.message) != (1, True):
        yield f"constraints: the first row of all is not named: {first}"


def _untyped_key(engine: SparkEngine, folder: Path) -> Iterator[str]:
    """A key column that is not stored: NULL in every row."""
    target = target_of(folder / "u", {"id": pa.int64(), "v": pa.int64()}, ("id", "b"))
    target = replace(target, columns=(*target.columns, TargetColumn("b", "__none__b", "int", stored=False)))
    mirror = Mirror(folder / "u", target)
    for number in (1, 2):
        rows = {"id": [1, 2, 1], "b": pa.nulls(3), "v": [1, number, 3], ROW_MARKER: [4, 4, 4]}
        if (error := mirror.apply(engine, [unit(folder, number, pa.table(rows))], 0).error) is not None:
            yield f"a key without a type: {error}"
    if sorted(row[:2] for row in mirror.bag().elements()) != [(1, 3), (2, 2)]:
        yield f"a key without a type: {mirror.bag()}"


def _partial_rows(engine: SparkEngine, folder: Path, shapes: tuple[int, ...] = (0, 1)) -> Iterator[str]:
    """Rows with values of earlier changes and of the table; a CHECK constraint holds for the complete row."""
    names = [name for name in COLUMNS if name != "id"]
    for seed in shapes:
        options: dict[str, Any] = [{}, {"feed": True, "partition_columns": ("part",)}][seed]
        place = folder / str(seed)
        place.mkdir()
        made = {name: Mirror(place / name, _target(place / name, ("id",), options)) for name in ("spark", "local")}
        checked = (("l_is_text", "l IS NOT NULL"),)
        rng = random.Random(seed)
        for number in range(1, 4):
            rows = _changes(rng, 60)
            marker = pa.array([rng.choice([1, 2, 4]) for _ in range(60)], pa.int32())
            left_out = [None if each == 2 else rng.sample(names, rng.randint(0, 3)) for each in marker.to_pylist()]
            rows = rows.set_column(rows.num_columns - 1, ROW_MARKER, marker)
            rows = rows.append_column(UNCHANGED, pa.array(left_out, pa.list_(pa.string())))
            units = [unit(place, number, rows, row_group_size=17)]
            results = {
                name: made[name].apply(each, units, 4, missing="null")
                for name, each in (("spark", engine), ("local", LocalEngine()))
            }
            if results["spark"].error is not None or made["spark"].bag() != made["local"].bag():
                yield f"partial rows: other rows after file {number}: {results['spark'].error}"
            if results["spark"].missing != results["local"].missing:
                yield f"partial rows: {results['spark'].missing} and {results['local'].missing} rows without a row"
        mirror = made["spark"]
        mirror.target = replace(mirror.target, constraints=checked)
        for number, key in ((5, 1_000), (6, 1_001)):
            fresh = pa.table({"id": [key], "l": ["x" if key == 1_000 else None], "part": ["x"], ROW_MARKER: [4]})
            fresh = fresh.set_column(1, "l", fresh["l"].cast(pa.string()))
            partial = pa.table({"id": [key], ROW_MARKER: [4], UNCHANGED: [["l", "part"]]})
            target, mirror.target = mirror.target, replace(mirror.target, constraints=())
            mirror.apply(engine, [unit(place, number, fresh)], 4)
            mirror.target = target
            error = mirror.apply(engine, [unit(place, number + 10, partial)], 4).error
            if (error.code if error else "") != ("" if key == 1_000 else "constraint-violated"):
                yield f"a constraint on the complete row: {error}"


def _target(folder: Path, keys: tuple[str, ...], options: dict[str, Any]) -> Any:
    columns = {name: pa.string() if name == "l" else kind for name, kind in COLUMNS.items()}
    return target_of(folder, columns, keys, **options)


def _changes(rng: random.Random, count: int) -> pa.Table:
    def column(values: Callable[[], Any]) -> list[Any]:
        return [values() for _ in range(count)]

    rows = {
        "id": column(lambda: rng.choice([None, *range(20)])),
        "k": column(lambda: rng.choice([None, "a", "ä", ""])),
        "d": column(lambda: rng.choice([0.0, -0.0, float("nan"), 1.5])),
        "day": column(lambda: datetime.date(2020, 1, rng.randint(1, 28))),
        "m": column(lambda: Decimal(rng.randint(-999, 999)) / 100),
        "at": column(lambda: datetime.datetime(2020, 1, 1, rng.randint(0, 23), tzinfo=datetime.timezone.utc)),
        "l": column(lambda: [rng.randint(0, 9), None]),
        "part": column(lambda: rng.choice([None, "x", "y z"])),
    }
    made = pa.table({name: pa.array(values, COLUMNS[name]) for name, values in rows.items()})
    return made.append_column(ROW_MARKER, pa.array(column(lambda: rng.choice([0, 0, 1, 2, 4, 4])), pa.int32()))


def _main(folder: str, remote: str = "", which: str = "all") -> int:
    from pyspark.sql import SparkSession

    if remote:
        session = SparkSession.builder.remote(remote).getOrCreate()
    else:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        options = {
            "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }  # fmt: skip
        builder = SparkSession.builder.master("local[2]")
        for name, value in options.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    found = differences(session, Path(folder), which)
    print(json.dumps(found))
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
