"""The same changes give the same table whatever the format, the way files are found, and the folders they lie in."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.landing import MARKER, declare, folder
from tests.model import ModelTable
from tests.rounds import SLOW
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase

FORMATS = ("parquet", "csv", "mixed quotes", "gz")
STRATEGIES = ("sequence", "time", "sequence then time")
COLUMNS = {"id": pa.int64(), "k": pa.string(), "v": pa.int32(), "w": pa.string()}
DATA_TYPES = {"id": "Int64", "k": "String", "v": "Int32", "w": "String"}
DECLARED = [{"Name": name, "DataType": kind} for name, kind in DATA_TYPES.items()]
ROW = st.fixed_dictionaries({
    "id": st.integers(1, 3), "k": st.sampled_from(["a", "b", "", None]),
    "v": st.integers(0, 9), "w": st.sampled_from(["p,q", 'say "x"', "two\r\nlines", "", None]),
})  # fmt: skip
CHANGE = st.tuples(st.sampled_from([0, 0, 1, 2, 4, 4, None]), ROW)
FILE = st.fixed_dictionaries({
    "rows": st.lists(CHANGE, max_size=7),
    "columns": st.sampled_from([("id", "k", "v", "w"), ("w", "k", "id"), ("k", "id", "v")]),
    "marked": st.sampled_from([True, True, False]),
    "part": st.sampled_from(["p=1", "p=2/q=x%20y"]),
})  # fmt: skip


@st.composite
def table(draw: Any) -> dict[str, Any]:
    return {
        "files": draw(st.lists(FILE, min_size=1, max_size=5)),
        "upsert": draw(st.booleans()),
        "format": draw(st.sampled_from(FORMATS)),
        "strategy": draw(st.sampled_from(STRATEGIES)),
        "partitioned": draw(st.booleans()),
        "pause": draw(st.integers(0, 4)),
    }


class Writer:
    """Writes one table's files in its format, under names of its strategy, in its partitions; keeps the model."""

    def __init__(self, database: Path, name: str, table: dict[str, Any]) -> None:
        self.database, self.name, self.table = database, name, table
        self.parts = ["p", "q"] if table["partitioned"] else []
        self.model = ModelTable(["id", "k", *self.parts[:1]], table["upsert"])
        self.numbers: dict[str, int] = {}
        self.declare()

    @property
    def switches(self) -> bool:
        return self.table["strategy"] == "sequence then time" and not self.table["partitioned"]

    def declare(self, *, by_time: bool | None = None) -> None:
        by_time = self.table["strategy"] == "time" if by_time is None else by_time
        text = (
            {}
            if self.table["format"] == "parquet"
            else {"fileFormat": "CSV", "SchemaDefinition": {"Columns": DECLARED}}
        )
        declare(
            self.database, self.name, list(self.model.keys), isUpsertDefaultRowMarker=self.table["upsert"],
            isPartitionEnabled=self.table["partitioned"],
            fileDetectionStrategy="LastUpdateTimeFileDetection" if by_time else "SequentialFileName", **text,
        )  # fmt: skip

    def write(self, place: int, content: dict[str, Any], *, by_time: bool) -> None:
        part = content["part"] if self.table["partitioned"] else ""
        extension = {"parquet": "parquet", "gz": "csv.gz"}.get(self.table["format"], "csv")
        self.numbers[part] = self.numbers.get(part, 0) + 1
        name = f"{9 - place}-{place}.{extension}" if by_time else f"{self.numbers[part]:020}.{extension}"
        target = folder(self.database, self.name) / part / name
        target.parent.mkdir(parents=True, exist_ok=True)
        columns = [*content["columns"], *([MARKER] if content["marked"] else [])]
        lines = [[row.get(c) if c != MARKER else marker for c in columns] for marker, row in content["rows"]]
        target.write_bytes(self._bytes(columns, lines))
        os.utime(target, (1000 + place, 1000 + place))
        given_by_path = {"p": part[2:3], "q": "x y" if "q=" in part else None} if part else {}
        changes = [
            (marker if content["marked"] else None, {c: row[c] for c in content["columns"]} | given_by_path)
            for marker, row in content["rows"]
        ]
        named = [*content["columns"], *(["p"] if part else []), *(["q"] if "q=" in part else [])]
        self.model.apply(named, changes)

    def _bytes(self, columns: list[str], lines: list[list[Any]]) -> bytes:
        if self.table["format"] == "parquet":
            types = {**COLUMNS, MARKER: pa.int32()}
            arrays = {c: pa.array([line[i] for line in lines], types[c]) for i, c in enumerate(columns)}
            sink = io.BytesIO()
            pq.write_table(pa.table(arrays), sink)
            return sink.getvalue()
        sink_text = io.StringIO(newline="")
        everything = self.table["format"] == "mixed quotes"
        sink_text.write(",".join(columns) + "\r\n")
        for line in lines:
            fields = []
            for value in line:
                text = "" if value is None else str(value)
                quoted = value == "" or (value is not None and (everything or any(c in text for c in ',"\r\n')))
                fields.append('"' + text.replace('"', '\\"' if everything else '""') + '"' if quoted else text)
            sink_text.write(",".join(fields) + "\r\n")
        data = sink_text.getvalue().encode()
        if self.table["format"] == "gz":
            return gzip.compress(data)
        return data


def play(tables: list[dict[str, Any]], batch_files: int) -> None:
    place = Path(tempfile.mkdtemp(prefix="lakemirror-formats-"))
    try:
        writers = [Writer(place, f"t{index}", each) for index, each in enumerate(tables)]
        for step in range(max(len(each["files"]) for each in tables)):
            for writer in writers:
                strategy, files, pause = (writer.table[name] for name in ("strategy", "files", "pause"))
                if step < len(files):
                    switched = writer.switches and step > pause
                    writer.write(step, files[step], by_time=strategy == "time" or switched)
            if any(writer.table["pause"] == step for writer in writers):
                assert not MirroredDatabase(place, batch_files=batch_files).sync().failed
                for writer in writers:
                    if writer.switches and writer.table["pause"] == step:
                        writer.declare(by_time=True)
        result = MirroredDatabase(place, batch_files=batch_files).sync()
        assert not result.failed, result.failed
        for writer in writers:
            columns = writer.model.columns
            assert table_rows(place, writer.name, columns) == writer.model.bag(), writer.table
        assert not MirroredDatabase(place).sync().tables
    finally:
        shutil.rmtree(place)


@settings(max_examples=2, **SLOW)
@given(st.lists(table(), min_size=3, max_size=3), st.sampled_from([1, 2, 1000]))
def test_tables_equal_the_model_in_any_format(tables: list[dict[str, Any]], batch_files: int) -> None:
    play(tables, batch_files)


@pytest.mark.full
@settings(max_examples=60, **SLOW)
@given(st.lists(table(), min_size=4, max_size=4), st.sampled_from([1, 2, 1000]))
def test_many_tables_equal_the_model_in_any_format(tables: list[dict[str, Any]], batch_files: int) -> None:
    play(tables, batch_files)
