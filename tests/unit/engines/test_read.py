"""The read kernel: which rows, which markers, and what it says of a file that is not as it should be."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from change_units import MARKER, bad_row, items, like, rows_of, target, unit_of, written
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.damaged_parquet import DAMAGES
from tests.rounds import rounds

from lakemirror.engines.kernels.convert_types import read_markers
from lakemirror.engines.kernels.decode import MOST_ROWS, MemoryBudget
from lakemirror.engines.kernels.read import read_changes
from lakemirror.engines.kernels.row_reader import Changes
from lakemirror.errors import LakemirrorError, Rejected

ROWS = {"id": [1, 2, 3], "v": ["a", None, "c"]}
TABLE = target(id="bigint", v="string")


def markers_of(found: list[Changes | Rejected]) -> list[int]:
    return [int(each) for part in found if isinstance(part, Changes) for each in part.marker]


def test_rows_markers_and_places(tmp_path: Path) -> None:
    unit = written(tmp_path, {**ROWS, MARKER: pa.array([0, None, 4], pa.int8())}, row_group_size=2)
    first, second = items(unit, TABLE, default_marker=4)
    assert isinstance(first, Changes)
    assert isinstance(second, Changes)
    assert (first.first_row, second.first_row) == (0, 2)
    assert first.rows.schema == pa.schema({"id": pa.int64(), "v": pa.string()})
    assert first.rows.to_pydict() == {"id": [1, 2], "v": ["a", None]}
    assert (first.marker.dtype, first.marker.tolist(), second.marker.tolist()) == (np.int8, [0, 4], [4])


def test_a_unit_of_some_row_groups(tmp_path: Path) -> None:
    whole = written(tmp_path, ROWS, row_group_size=1)
    unit = unit_of(Path(whole.path), row_groups=(1, 2), first_row=1, rows=2)
    assert [each.first_row for each in items(unit, TABLE) if isinstance(each, Changes)] == [1, 2]
    assert rows_of(unit, TABLE)["id"].to_pylist() == [2, 3]


def test_columns_of_many_rows_are_decoded_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []
    opened = pq.ParquetFile

    class Watched:
        def __init__(self, *given: Any, **options: Any) -> None:
            self.file, self.reader = opened(*given, **options), self

        def iter_batches(self, rows: int, **options: Any) -> Any:
            threads.append(options["use_threads"])
            return self.file.reader.iter_batches(rows, **options)

    monkeypatch.setattr(pq, "ParquetFile", Watched)
    unit = written(tmp_path, {"id": range(MOST_ROWS + 1), "v": ["a"] * (MOST_ROWS + 1)}, row_group_size=MOST_ROWS)
    assert rows_of(unit, TABLE)["id"].to_pylist() == list(range(MOST_ROWS + 1))
    assert threads == [True, False]


def test_columns_go_by_name_without_case(tmp_path: Path) -> None:
    unit = written(tmp_path, {"V": ["a"], "other": [1], "ID": pa.array([7], pa.int32())})
    found = rows_of(unit, target(id="bigint", late="double", v="string"))
    assert found.column_names == ["id", "late", "v"]
    assert found.to_pylist() == [{"id": 7, "late": None, "v": "a"}]


def test_names_with_points_are_names(tmp_path: Path) -> None:
    unit = written(tmp_path, {"a": [{"b": 1}], "a.b": [2], "a.b.c": [3]})
    assert rows_of(unit, like(unit)).to_pylist() == [{"a": '{"b":1}', "a.b": 2, "a.b.c": 3}]
    assert rows_of(unit, like(unit), columns=["a.b"]).to_pylist() == [{"a.b": 2}]


def test_constants_of_partition_folders(tmp_path: Path) -> None:
    unit = unit_of(Path(written(tmp_path, ROWS).path), constants=(("Region", "eu"), ("none", None)))
    table = target(("region",), id="bigint", region="string", none="string")
    assert rows_of(unit, table).to_pylist()[0] == {"id": 1, "region": "eu", "none": None}


def test_other_columns_are_not_read(tmp_path: Path) -> None:
    unit = written(
        tmp_path, {**ROWS, "big": ["x" * 100] * 3, MARKER: [1, 1, 1]}, compression="none", use_dictionary=False
    )
    data = Path(unit.path).read_bytes()
    Path(unit.path).write_bytes(data.replace(b"d\0\0\0" + b"x" * 100, b"\xff" * 104))
    table = target(id="bigint", v="string", big="string")
    assert rows_of(unit, table, columns=["ID"]).to_pydict() == {"id": [1, 2, 3]}
    assert bad_row(unit, table).code == "file-unreadable"


def test_a_type_that_no_table_has_is_never_null(tmp_path: Path) -> None:
    unit = written(tmp_path, {**ROWS, "half": pa.array([1.0, 2.0, 3.0], pa.float16()), MARKER: [1, 1, 1]})
    found = bad_row(unit, target(id="bigint", half="string"))
    assert (found.code, found.column) == ("type-unsupported", "half")


@pytest.mark.parametrize(
    ("values", "default", "wanted"),
    [
        (pa.array(["0", " 1 ", "+2", "04", None]), 0, [0, 1, 2, 4, 0]),
        (pa.array([4, None], pa.uint64()), 4, [4, 4]),
        (pa.array(["1", "2", "1"]).dictionary_encode(), 0, [1, 2, 1]),
        (pa.array([1, None], pa.int8()).dictionary_encode(), 0, [1, 0]),
        (pa.array(["2"], pa.large_string()), 0, [2]),
        (pa.array(["2"], pa.string_view()), 0, [2]),
        (pa.nulls(2), 4, [4, 4]),
        (None, 4, [4, 4]),
    ],
)
def test_markers(tmp_path: Path, values: pa.Array | None, default: int, wanted: list[int]) -> None:
    rows = {"id": np.arange(len(wanted))} | ({} if values is None else {MARKER: values})
    assert markers_of(items(written(tmp_path, rows), target(id="bigint"), default_marker=default)) == wanted


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["0", "x>y\n"], "'x?y?'"), (["0", ""], "''"), (["0", "1.0"], "'1.0'"), (["0", "1_0"], "'1_0'"),
        ([0, 3], "'3'"), ([0, -1], "'-1'"), (pa.array([0, 2**64 - 1], pa.uint64()), "'18446744073709551615'"),
        (["0", "9" * 500], "9" * 100 + "'"), (["0", "٤"], "'?'"),
    ],
)  # fmt: skip
def test_a_marker_that_is_none(tmp_path: Path, values: Any, shown: str) -> None:
    unit = written(tmp_path, {"id": [1, 2], MARKER: values})
    for append_only in (False, True):
        found = bad_row(unit, target(id="bigint"), append_only=append_only)
        assert (found.code, found.file, found.row, found.column) == ("row-marker-invalid", unit.name, 2, MARKER)
        assert shown in found.message


def test_what_a_marker_needs(tmp_path: Path) -> None:
    unit = written(tmp_path, {**ROWS, MARKER: [0, 0, 4]}, row_group_size=2)
    without = bad_row(unit, target((), id="bigint"))
    assert (without.code, without.row) == ("key-columns-missing", 3)
    absent = bad_row(unit, target(("id", "k"), id="bigint", k="string"))
    assert (absent.code, absent.row, absent.column) == ("key-column-absent", 3, "k")
    promised = bad_row(unit, TABLE, append_only=True)
    assert (promised.try_as, promised.row) == ("mixed", 3)
    default = bad_row(written(tmp_path, ROWS), target((), id="bigint"), default_marker=4)
    assert (default.code, default.row) == ("key-columns-missing", 1)
    assert markers_of(items(written(tmp_path, {"v": ["a"]}), TABLE)) == [0], "an insert needs no key"


def test_a_marker_column_of_another_type(tmp_path: Path) -> None:
    found = bad_row(written(tmp_path, {"id": [1], MARKER: [1.0]}), target(id="bigint"))
    assert (found.code, found.row) == ("row-marker-invalid", None)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    for names in (["id", MARKER, MARKER], ["id", "V", "v"]):
        rows = pa.Table.from_arrays([pa.array([1])] * 3, names)
        found = bad_row(written(tmp_path, rows), target(id="bigint", v="bigint"))
        assert (found.code, found.column) == ("columns-ambiguous", names[-1])


def test_the_first_bad_row_wins(tmp_path: Path) -> None:
    text = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(np.arange(4, dtype=np.int32)), pa.py_buffer(b"a\xffb")]
    )
    for markers, wanted in (
        ([0, 0, 3], ("value-invalid", 2)),
        ([0, 3, 3], ("row-marker-invalid", 2)),
        ([3, 0, 0], ("row-marker-invalid", 1)),
    ):
        found = bad_row(written(tmp_path, {"id": [1, 2, 3], "v": text, MARKER: markers}), TABLE)
        assert (found.code, found.row) == wanted


# footers and pages that say other things


@pytest.mark.parametrize("name", [name for name, damage in DAMAGES.items() if damage.seen == "pages"])
def test_pages_that_are_not_what_the_footer_says(tmp_path: Path, name: str) -> None:
    path = tmp_path / "1.parquet"
    path.write_bytes(DAMAGES[name].data)
    found = bad_row(unit_of(path), target(id="bigint", v="string"))
    assert (found.code, found.row) == (DAMAGES[name].code, None)
    assert DAMAGES[name].says in found.message


def test_a_plan_that_counts_otherwise_than_the_file(tmp_path: Path) -> None:
    unit = written(tmp_path, ROWS)
    assert bad_row(unit_of(Path(unit.path), rows=4), TABLE).code == "file-unreadable"


def test_a_damaged_page(tmp_path: Path) -> None:
    """It is an error or it is rows: never fewer rows without a word, never anything but an error of ours."""
    rows = {"id": list(range(1000)), "v": ["c" * 5] * 1000}
    whole = Path(written(tmp_path, rows, use_dictionary=False, compression="none").path).read_bytes()
    for at in range(0, 400, 7):
        path = tmp_path / f"{at}.parquet"
        path.write_bytes(whole[: 4 + at] + b"\xff" * 30 + whole[34 + at :])
        found = items(unit_of(path), TABLE)
        if isinstance(found[-1], Rejected):
            assert found[-1].code in ("file-unreadable", "file-too-large", "value-invalid"), at
        else:
            assert len(markers_of(found)) == 1000, at


def test_a_file_that_is_gone_or_another(tmp_path: Path) -> None:
    unit = written(tmp_path, ROWS)
    written(tmp_path, {"id": ["1"]})
    with pytest.raises(LakemirrorError, match="was replaced by another file") as other:
        items(unit, TABLE)
    Path(unit.path).unlink()
    with pytest.raises(LakemirrorError, match="is gone") as gone:
        items(unit, TABLE)
    assert {other.value.code, gone.value.code} == {"concurrent-commit"}
    Path(unit.path).write_bytes(b"PAR1 not really")
    assert bad_row(unit, TABLE).code == "file-unreadable"


def test_no_rows(tmp_path: Path) -> None:
    assert items(written(tmp_path, pa.table(ROWS).slice(0, 0)), TABLE) == []


# memory


def bomb(path: Path, *, lists: bool = False) -> None:
    """65,536 rows of one text of 98 KB: 6 GB in a file of 400 KB."""
    letters = np.random.default_rng(1).integers(97, 123, 98_000, np.uint8).tobytes().decode()
    values: pa.Array = pa.DictionaryArray.from_arrays(np.zeros(65_536, np.int32), [letters])
    if lists:
        values = pa.ListArray.from_arrays(np.array([0, 65_536], np.int32), values)
    pq.write_table(pa.table({"id": np.arange(len(values)), "v": values}), path)


BOMB = """
import resource, sys
from pathlib import Path
from change_units import like, unit_of
from lakemirror.engines.kernels.read import read_changes
from lakemirror.engines.kernels.decode import MOST_ROWS, MemoryBudget
from lakemirror.engines.units import Shared
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
unit = unit_of(Path(sys.argv[1]))
rows = sum(each.rows.num_rows for each in read_changes(unit, Shared(like(unit), MemoryBudget(int(sys.argv[2])))))
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10)
"""


def test_a_small_file_that_decodes_to_gigabytes_stays_within_the_budget(tmp_path: Path) -> None:
    path, budget = tmp_path / "00000000000000000001.parquet", 64 << 20
    bomb(path)
    assert path.stat().st_size < 1 << 20
    run = subprocess.run(
        [sys.executable, "-c", BOMB, str(path), str(budget)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )  # fmt: skip
    rows, taken = map(int, run.stdout.split())
    assert rows == 65_536
    assert taken < 2 * budget


def test_one_row_that_needs_more_than_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000001.parquet"
    bomb(path, lists=True)
    found = bad_row(unit_of(path), like(unit_of(path)), budget=MemoryBudget(64 << 20))
    assert found.code == "file-too-large"
    assert "the setting `memory` allows 67108864" in found.message
    pq.write_table(pa.table({"v": ["0" * (80 << 20)]}), path, compression="zstd", use_dictionary=False)
    assert bad_row(unit_of(path), like(unit_of(path)), budget=MemoryBudget(64 << 20)).code == "file-too-large"


@pytest.mark.parametrize("encoding", ["dictionary", "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("lists", [False, True])
def test_parts_hold_the_same_rows(tmp_path: Path, encoding: str, lists: bool) -> None:
    texts = [f"{place % 7}" * (place % 500) for place in range(3000)]
    values: Any = [[each, None] for each in texts] if lists else texts
    options: dict[str, Any] = {"use_dictionary": encoding == "dictionary"}
    if encoding != "dictionary":
        options["column_encoding"] = {"v.list.element" if lists else "v": encoding, "id": "PLAIN"}
    unit = written(tmp_path, {"id": np.arange(3000), "v": values}, data_page_size=10_000, **options)
    budget = MemoryBudget(1 << 20)
    found = items(unit, TABLE, budget=budget)
    assert len(found) > 1
    rows = pa.Table.from_batches([each.rows for each in found if isinstance(each, Changes)])
    assert rows.equals(rows_of(unit, TABLE).combine_chunks())
    assert [each.first_row for each in found] == np.cumsum([0, *(each.rows.num_rows for each in found)])[:-1].tolist()  # type: ignore[union-attr]
    assert budget.take(1 << 20), "everything is given back"


def test_what_a_task_is_sent(tmp_path: Path) -> None:
    work = pickle.dumps((read_changes, written(tmp_path, ROWS), TABLE))
    read, unit, table = pickle.loads(work)
    assert rows_of(unit, table).to_pydict() == ROWS
    assert read is read_changes


def test_nothing_of_spark_is_imported() -> None:
    script = "import sys, lakemirror.engines.kernels.read; sys.exit(any(m.startswith('pyspark') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# against plain Python


CHANGE = st.tuples(st.sampled_from([0, 0, 1, 2, 4, None, 3]), st.integers(0, 5), st.text(max_size=3) | st.none())


@settings(max_examples=rounds(40, 150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(CHANGE, max_size=30),
    keys=st.booleans(),
    append_only=st.booleans(),
    default=st.sampled_from([0, 4]),
    group=st.integers(1, 10),
    text=st.booleans(),
)
def test_changes_are_what_plain_python_says(
    tmp_path: Path, rows: list[Any], keys: bool, append_only: bool, default: int, group: int, text: bool
) -> None:
    markers = [None if row[0] is None else str(row[0]) if text else row[0] for row in rows]
    columns = {
        "id": pa.array([row[1] for row in rows], pa.int32()),
        "v": pa.array([row[2] for row in rows], pa.string()),
        MARKER: pa.array(markers, pa.string() if text else pa.int16()),
    }
    unit = written(tmp_path, columns, row_group_size=group)
    found = items(
        unit, target(("id",) if keys else (), id="bigint", v="string"), append_only=append_only, default_marker=default
    )
    wanted: list[Any] = []
    bad: tuple[str, int] | None = None
    for place, (marker, id_, v) in enumerate(rows):
        marker = default if marker is None else marker
        if marker == 3:
            bad = ("row-marker-invalid", place + 1)
        elif marker and (append_only or not keys):
            bad = ("mixed" if append_only else "key-columns-missing", place + 1)
        if bad:
            break
        wanted.append((marker, id_, v))
    got = [
        (int(marker), *row.values())
        for part in found
        if isinstance(part, Changes)
        for marker, row in zip(part.marker, part.rows.to_pylist(), strict=True)
    ]
    last = found[-1] if found else None
    assert ((last.try_as or last.code, last.row) if isinstance(last, Rejected) else None) == bad
    assert got == wanted[: len(got)]
    assert bad or len(got) == len(wanted)


def test_markers_without_rows() -> None:
    marker, wrong = read_markers(pa.array([], pa.string()), 0, 0)
    assert (len(marker), wrong) == (0, None)


@pytest.mark.parametrize("text", ["1\0", "\x011", "1\x1c", "\u00a01", "1.0", ""])
def test_text_that_is_no_marker(text: str) -> None:
    assert read_markers(pa.array(["4", text]), 2, 0)[1] is not None
    assert read_markers(pa.array([" 1\t", "+04\r"]), 2, 0)[1] is None
