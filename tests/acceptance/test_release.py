"""What `make dist` makes can be installed into an empty environment and mirrors a table."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import lakemirror

ROOT = Path(__file__).parents[2]


@pytest.mark.full
@pytest.mark.timeout(900)  # installs into two new environments
def test_wheel_and_source_distribution_work_in_empty_environments(tmp_path: Path) -> None:
    for name in ("src", "scripts", "examples", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    made = subprocess.run(["sh", "scripts/dist.sh"], cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "the wheel without extras: works" in made.stderr and "the source distribution: works" in made.stderr
    names = sorted(path.name for path in (tmp_path / "dist").iterdir())
    assert [name.startswith(f"lakemirror-{lakemirror.__version__}") for name in names] == [True, True]


def test_the_version_is_said_in_one_place() -> None:
    said = re.compile(rf'version\W+"?{re.escape(lakemirror.__version__)}"')
    assert not said.search((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
