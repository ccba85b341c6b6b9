"""Broken metadata, text and Parquet files are read or met with a coded error, in little memory (contract section 5)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def fuzz(count: int, seed: int, place: Path) -> None:
    """In a process of its own, whose memory is measured, in kilobytes (`ru_maxrss` would count its parent's too)."""
    program = (
        "import sys; from pathlib import Path; from tests.fuzz import run;"
        f" run({count}, {seed}, Path(sys.argv[1]));"
        " lines = Path('/proc/self/status').read_text().splitlines();"
        " print(next(line.split()[1] for line in lines if line.startswith('VmHWM')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(place)], capture_output=True, text=True, check=False, timeout=1500
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert 0 < int(done.stdout) < 1024 * 1024, f"seed {seed}: {int(done.stdout) // 1024} MiB"


def test_some_broken_files(tmp_path: Path) -> None:
    fuzz(40, 5, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, *range(10, 20)])
def test_two_thousand_broken_files(tmp_path: Path, seed: int) -> None:
    fuzz(200, seed, tmp_path)
