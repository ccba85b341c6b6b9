"""`lakemirror run --listen`: health and metrics of one engine, with the names that the service has."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests import preloaded
from tests.landing import declare, put

from lakemirror.api import MirroredDatabase
from lakemirror.cli.run_listener import listen


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_and_metrics_while_it_runs(tmp_path: Path) -> None:
    database = tmp_path / "shop"
    declare(database, "sales.orders", ["id"])
    put(database, "sales.orders", 1, {"id": [1, 2], "__rowMarker__": [0, 0]})
    command = [sys.executable, "-m", "lakemirror.cli", "run", str(database), "--engine", "local"]
    command += ["--listen", "127.0.0.1:0", "--log-format", "json"]
    run = preloaded.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        assert run.stderr is not None
        events = (json.loads(line) for line in run.stderr)
        url = "http://" + next(event["address"] for event in events if event["event"] == "listening")
        next(event for event in events if event["event"] == "applied")
        assert get(f"{url}/livez")[0] == 200
        assert get(f"{url}/readyz") == (200, '{"ready": true}')
        assert get(f"{url}/etc/passwd")[0] == 404
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = {
                (sample.name, sample.labels.get("schema"), sample.labels.get("table")): sample.value
                for family in text_string_to_metric_families(get(f"{url}/metrics")[1])
                for sample in family.samples
            }
            if found.get(("lakemirror_table_rows_total", "sales", "orders")) == 2:
                break
            time.sleep(0.05)
        assert found["lakemirror_table_rows_total", "sales", "orders"] == 2
        assert found["lakemirror_table_pending_files", "sales", "orders"] == 0
        assert ("lakemirror_databases", None, None) in found and ("lakemirror_build_info", None, None) in found
    finally:
        run.send_signal(signal.SIGTERM)
        assert run.wait(30) == 0


@pytest.mark.parametrize("address", ["9464", "nowhere:x", "127.0.0.1:99999", "256.1.1.1:1", "localhost:²"])
def test_an_address_that_cannot_be_had_ends_the_command(address: str, tmp_path: Path) -> None:
    declare(tmp_path, "orders", ["id"])
    command = [sys.executable, "-m", "lakemirror.cli", "run", str(tmp_path), "--listen", address]
    ran = preloaded.run(command, capture_output=True, text=True)
    assert ran.returncode == 1 and "listen-failed" in ran.stderr and "Traceback" not in ran.stderr


def test_an_address_may_be_one_of_ipv6(tmp_path: Path) -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    declare(tmp_path, "orders", ["id"])
    port = listen("[::1]:0", MirroredDatabase(tmp_path), "orders").rpartition(":")[2]
    with urllib.request.urlopen(f"http://[::1]:{port}/livez", timeout=10) as answer:
        assert answer.read() == b'{"alive": true}'
