"""A fork of the preloaded process is what a Python that is started would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import preloaded

TELLS = """
import json, os, signal, sys, threading
print(json.dumps({
    "words": sys.argv, "folder": os.getcwd(), "variables": os.environ.get("ONE"), "input": sys.stdin.read(),
    "first": sys.path[0], "threads": threading.active_count(), "main": sys.modules["__main__"].__name__,
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler, "files": sorted(os.listdir("/proc/self/fd"))[:3],
    "session": os.getsid(0) == os.getpid(), "encoding": sys.stdout.encoding,
}))
print("ä", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""  # noqa: E501
Run = Callable[..., "subprocess.CompletedProcess[Any]"]


def told(run: Run, folder: Path, *kind: str) -> tuple[int, Any, str]:
    done = run(
        [sys.executable, *kind, "7"], input="given", capture_output=True, text=True, cwd=folder, timeout=60,
        env={**os.environ, "ONE": "1"}, start_new_session=True,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("kind", ["-c", "-m", "script"])
def test_it_begins_and_ends_as_a_new_one(tmp_path: Path, kind: str) -> None:
    (tmp_path / "tells.py").write_text(TELLS)
    words = {"-c": ["-c", TELLS], "-m": ["-m", "tells"], "script": [str(tmp_path / "tells.py")]}[kind]
    assert told(preloaded.run, tmp_path, *words) == told(subprocess.run, tmp_path, *words)


def test_signals_end_it_and_whoever_waits_is_told() -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        with preloaded.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
            assert process.poll() is None
            process.send_signal(number)
            assert process.wait(30) == -number
    with pytest.raises(subprocess.TimeoutExpired):
        preloaded.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.1)
    with pytest.raises(subprocess.CalledProcessError):
        preloaded.run([sys.executable, "-c", "import sys; sys.exit(2)"], check=True)


def test_one_process_knows_nothing_of_another() -> None:
    change = "import os, json; json.changed = True; os.environ['CHANGED'] = '1'"
    preloaded.run([sys.executable, "-c", change], check=True)
    look = "import os, json; print(hasattr(json, 'changed'), 'CHANGED' in os.environ)"
    assert preloaded.run([sys.executable, "-c", look], capture_output=True, text=True).stdout == "False False\n"


def test_a_program_for_shells(tmp_path: Path) -> None:
    preloaded.program(tmp_path / "say", "-c", "import sys; print(sys.argv[1], sys.stdin.read()); sys.exit(3)")
    done = subprocess.run(["sh", "-c", f"echo hello | {tmp_path}/say 'a b'"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "a b hello\n\n")
    preloaded.program(tmp_path / "dies", "-c", "import os; os.kill(os.getpid(), 9)")
    assert subprocess.run([tmp_path / "dies"]).returncode == -signal.SIGKILL
