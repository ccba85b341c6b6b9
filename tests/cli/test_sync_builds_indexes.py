"""`lakemirror sync`, a process for each pass, builds the key index of tables whose keys are in no order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 70_000  # a file with fewer rows gets no index


def test_the_pass_that_lacks_an_index_builds_it(tmp_path: Path) -> None:
    orders = tmp_path / "shop/Files/LandingZone/orders"
    orders.mkdir(parents=True)
    (orders / "_metadata.json").write_text(json.dumps({"keyColumns": ["id"]}))
    ids = [str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))) for number in range(ROWS)]
    pq.write_table(pa.table({"id": ids, "n": range(ROWS)}), orders / f"{1:020}.parquet")
    sync(tmp_path)
    assert indexes(tmp_path) == [], "nothing was looked up"
    changes = pa.table({"id": ids[:3], "n": [0, 0, 0], "__rowMarker__": pa.array([1, 1, 2], pa.int32())})
    for number in range(2, 7):  # the time for it is limited: a pass that is short of it leaves the work to the next
        pq.write_table(changes, orders / f"{number:020}.parquet")
        sync(tmp_path)
        if indexes(tmp_path):
            break
    assert len(indexes(tmp_path)) == 1


def sync(place: Path) -> None:
    environment = {**os.environ, "LAKEMIRROR_CACHE_DIR": str(place / "cache")}
    code = "from lakemirror.cli import main; main()"
    subprocess.run([sys.executable, "-c", code, "sync", str(place / "shop")], env=environment, check=True, timeout=120)


def indexes(place: Path) -> list[Path]:
    return list(place.glob("cache/keys/*/*.keys"))
