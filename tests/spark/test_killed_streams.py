"""Streams that read change files, or a mirrored table, are killed within a batch, with Spark: nothing is lost or comes
twice.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import SMALL
from tests.databases import Database
from tests.spark.test_spark_engine import ROOT, clean

from lakemirror.publisher import Landing
from lakemirror.spark_session import java

READS = {
    "change files": """reader.format("lakemirror").load(shop + "/orders")""",
    "mirrored table": """reader.format("delta").option("readChangeFeed", "true").load(shop + "/Tables/orders")""",
}

RUN = """
import os, signal, sys
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import session

folder, dies = sys.argv[1], int(sys.argv[2])
shop = folder + "/shop"
spark = session.start(Settings(driver_memory={memory!r}).with_environment(), delta=True, short=True)

def keep(frame, batch):
    frame.write.mode("append").json(f"{{folder}}/seen/{{batch}}")
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)

reader = spark.readStream
stream = {read}
query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", folder + "/checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
session.stop(spark)
"""


@pytest.mark.full
@pytest.mark.parametrize("kind", list(READS))
def test_a_stream_that_reads_is_killed_within_a_batch(kind: str, tmp_path: Path) -> None:
    """The batch that is repeated has the rows that it had, though more came meanwhile; they come in the next one."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/mirroring.json").write_text('{"lakemirror": {"change_data_feed": true}}')
    shop = Database(str(tmp_path / "shop"), {})
    orders = Landing(shop.address).table("orders", keys=["id"])
    script = RUN.format(memory=SMALL.driver_memory, read=READS[kind])

    def run(*, dies: bool) -> None:
        variables = {**clean(), "PYTHONPATH": str(ROOT / "src"), "JAVA_HOME": str(java.find().home)}
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path), str(int(dies))], env=variables, cwd=tmp_path,
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == (-signal.SIGKILL if dies else 0), done.stderr[-3000:]

    for late in (7, 8):
        orders.upsert([{"id": key, "item": f"{late}-{key}"} for key in range(3)])
        orders.delete([{"id": 2}])
        shop.sync()
        run(dies=True)
        orders.upsert([{"id": late, "item": "late"}])
        shop.sync()
        run(dies=False)
    run(dies=False)  # a source in Python may end a run behind the batch that it repeats
    changes, runs = seen(tmp_path)
    assert runs.count(2) == 2 and runs.count(1) == len(runs) - 2, "what was killed comes again, as it was"
    if kind == "change files":
        ordered = sorted(changes, key=lambda row: (row["__file__"], row["__row__"]))
        wanted = [(key, marker) for late in (7, 8) for key, marker in ((0, 4), (1, 4), (2, 4), (2, 2), (late, 4))]
        assert [(row["id"], row["__rowMarker__"]) for row in ordered] == wanted
        return
    rows: dict[int, str] = {}
    for row in sorted(changes, key=lambda row: (row["_commit_version"], "pre" not in row["_change_type"])):
        if row["_change_type"] in ("insert", "update_postimage"):
            assert (row["id"] in rows) == (row["_change_type"] != "insert"), row
            rows[row["id"]] = row["item"]
        else:
            assert rows.get(row["id"]) == row["item"], row
            if row["_change_type"] == "delete":
                del rows[row["id"]]
    assert sorted(rows.items()) == sorted(shop.bag("orders", ["id", "item"]).elements())


def seen(folder: Path) -> tuple[list[Any], list[int]]:
    """The rows of all batches, and how many runs had each batch: each of them with all its rows."""
    rows, runs = [], []
    for batch in (folder / "seen").iterdir():
        counts = Counter(line for file in batch.glob("*.json") for line in file.read_text().splitlines())
        if counts:
            (times,) = set(counts.values())
            rows += [json.loads(line) for line in counts]
            runs.append(times)
    return rows, runs
