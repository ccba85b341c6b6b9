"""Publishing, checking and looking need neither PySpark nor Delta Spark nor Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lakemirror

HIDDEN = """
import sys

class Hidden:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "delta"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden)
from lakemirror.cli import main
main()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["publish", "shop", "orders", "--from", "orders.csv", "--keys", "id"],
        ["check", "shop"],
        ["sync", "shop"],
        ["status", "shop"],
        ["tables", "shop"],
        ["features", "list", "shop"],
        ["--version"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands(arguments: list[str], folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(lakemirror.__file__).parents[1]), "PATH": "/nonexistent"}
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("without")
    (made / "orders.csv").write_text("id,item\n1,tea\n")
    return made
