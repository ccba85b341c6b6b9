"""Spark's tasks read change files and write data files in a bucket themselves, with options from their environment."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.databases import Database
from tests.landing import MARKER
from tests.object_stores import SECRET, moto

from lakemirror.storage import connections


@pytest.mark.full
def test_the_spark_engine_works_in_a_bucket() -> None:
    pytest.importorskip("moto")
    with moto() as server:
        database = Database(f"{server.bucket()}/shop", server.options)
        database.declare("orders", ["id"])
        database.put("orders", 1, {"id": list(range(2000)), "v": ["a"] * 2000})
        for number in (2, 3):
            database.put("orders", number, {"id": [number, 1500], "v": ["b", None], MARKER: [1, 2]})
        done = subprocess.run(
            [sys.executable, "-m", "lakemirror.cli", "sync", database.address, "--engine", "spark",
             "--master", "local[2]"],
            env={**os.environ, **database.options, "LAKEMIRROR_BATCH_FILES": "1",
                 "LAKEMIRROR_SPARK_FROM_BYTES": "1", "PYSPARK_PYTHON": sys.executable},
            capture_output=True, text=True, timeout=1800,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert SECRET not in done.stdout + done.stderr
        bag = database.bag("orders")
        assert sum(bag.values()) == 1999
        assert bag[(2, "b")] == bag[(3, "b")] == 1
    connections.forget_all()
