"""`lakemirror run --register` with a real metastore, which the command then reads after a restart."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakemirror.publisher import Landing


def _run(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "lakemirror.cli", *words]
    with (folder.parent / "said").open("ab") as said:
        return subprocess.Popen(command, stdout=said, stderr=said, cwd=folder.parent)


def _hive(place: Path) -> list[str]:
    options = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": place / "warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={place / 'metastore'};create=true",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={place}",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    return [word for key, value in options.items() for word in ("--spark", f"{key}={value}")]


@pytest.mark.full
def test_a_metastore_follows_a_run_and_a_command(tmp_path: Path) -> None:
    folder, said = tmp_path / "shop", tmp_path / "said"
    Landing(folder).table("orders", ["id"]).insert([{"id": 1}])
    (folder / "mirroring.json").write_text('{"lakemirror": {"drop_after": 0}}')
    hive = [*_hive(tmp_path), "--master", "local[2]"]

    def until(pattern: str) -> None:
        for _ in range(900):
            if said.exists() and re.search(pattern, said.read_text()):
                return
            time.sleep(0.1)
        raise AssertionError(said.read_text())

    running = _run(folder, "run", str(folder), "--engine", "local", "--register", "--schema", "reg", *hive)
    try:
        until("spark_catalog.reg.orders: created")
        Landing(folder).table("late", ["id"], "named").insert([{"id": 1}])
        until("spark_catalog.named.late: created")
        shutil.rmtree(folder / "Files/LandingZone/orders")
        until("spark_catalog.reg.orders: dropped")
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0, said.read_text()
    assert "forgets" not in said.read_text() and "Traceback" not in said.read_text()
    again = subprocess.run(
        [sys.executable, "-m", "lakemirror.cli", "register", str(folder), "--schema", "reg", *hive],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, env=os.environ, check=False,
    )  # fmt: skip
    assert (again.returncode, again.stdout.splitlines()) == (0, ["spark_catalog.named.late  unchanged"]), again.stderr
