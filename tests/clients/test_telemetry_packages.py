"""Events and traces by the packages themselves, in an environment of their own: a file, and the console."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from pathlib import Path

import pytest
from tests.landing import declare, put, put_broken

import lakemirror

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]
SYNC = """
import sys
from lakemirror import MirroredDatabase
MirroredDatabase(sys.argv[1], engine="local", settle=0).sync()
"""


def test_an_apply_and_an_error_are_events_and_spans(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    words = [
        "openlineage-python",
        "opentelemetry-sdk",
        "numpy",
        "pyarrow>=17",
        "pyroaring>=1",
        "typer<0.26",
        "rich>=13",
    ]
    made = subprocess.run([str(tmp_path / "env/bin/pip"), "install", "-q", *words], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"the packages cannot be installed: {made.stderr[-200:]}")
    shop = tmp_path / "shop"
    declare(shop, "sales.orders", ["id"])
    put(shop, "sales.orders", 1, {"id": [1, 2, 3]})
    put_broken(shop, "bad", 1)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(lakemirror.__file__).parents[1]),
        "OPENLINEAGE__TRANSPORT__TYPE": "file",
        "OPENLINEAGE__TRANSPORT__LOG_FILE_PATH": str(tmp_path / "events"),
        "OPENLINEAGE__TRANSPORT__APPEND": "true",
        "OTEL_TRACES_EXPORTER": "console",
    }
    python = str(tmp_path / "env/bin/python")
    ran = subprocess.run([python, "-c", SYNC, str(shop)], env=environment, capture_output=True, text=True, check=True)
    events = [json.loads(line) for path in tmp_path.glob("events*") for line in path.read_text().splitlines()]
    found = {(each["job"]["name"], each["eventType"]): each for each in events}
    assert set(found) == {(f"shop.{t}", s) for t, s in [
        ("sales.orders", "START"), ("sales.orders", "COMPLETE"), ("bad", "START"), ("bad", "FAIL"),
    ]}  # fmt: skip
    done = found["shop.sales.orders", "COMPLETE"]
    assert done["run"]["runId"] == found["shop.sales.orders", "START"]["run"]["runId"]
    assert done["inputs"][0]["name"] == f"{shop}/Files/LandingZone/sales.schema/orders"
    (output,) = done["outputs"]
    assert (output["namespace"], output["name"]) == ("file", f"{shop}/Tables/sales/orders")
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert "file-unreadable" in found["shop.bad", "FAIL"]["run"]["facets"]["errorMessage"]["message"]

    decoder, text, spans = json.JSONDecoder(), ran.stdout.lstrip(), {}
    while text:
        span, end = decoder.raw_decode(text)
        spans[span["name"]], text = span, text[end:].lstrip()
    applied = spans["Snapshotting sales.orders"]
    assert applied["attributes"]["lakemirror.rows"] == 3
    assert applied["attributes"]["lakemirror.version"] == 0
    assert applied["start_time"] < applied["end_time"]
    assert spans["FailTable bad"]["status"]["status_code"] == "ERROR"
    assert applied["resource"]["attributes"]["service.name"] == "lakemirror"
