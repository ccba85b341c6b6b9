"""Publishing, mirroring, checking and looking need neither PySpark nor Delta Spark nor Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import preloaded

import lakemirror

HIDDEN = """
import sys

SPARK = ("pyspark", "py4j", "delta")

class Hidden:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in SPARK:
            raise ModuleNotFoundError(name)

assert not set(SPARK) & set(sys.modules), "imported by what every command imports"
sys.meta_path.insert(0, Hidden)
from lakemirror.cli import main
main()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["publish", "shop", "orders", "--from", "orders.csv", "--keys", "id", "--create"],
        ["check", "shop"],
        ["sync", "shop"],
        ["status", "shop"],
        ["tables", "shop"],
        ["verify", "shop", "--against-files"],
        ["doctor", "shop"],
        ["features", "list", "shop"],
        ["--version"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands(arguments: list[str], folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(lakemirror.__file__).parents[1]), "PATH": "/nonexistent"}
    done = preloaded.run(
        [sys.executable, "-c", HIDDEN, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_what_needs_spark_says_how_to_install_it(folder: Path) -> None:
    (folder / "spark").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(lakemirror.__file__).parents[1]), "PATH": "/nonexistent"}

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return preloaded.run(
            [sys.executable, "-c", HIDDEN, *words],
            cwd=folder / "spark",
            env=environment,
            capture_output=True,
            text=True,
        )

    command("publish", "shop", "orders", "--from", "../orders.csv", "--keys", "id", "--create")
    done = command("sync", "shop", "--engine", "spark")
    assert done.returncode == 1
    assert "pyspark-missing" in done.stdout
    assert "pip install 'lakemirror[spark]'" in done.stdout
    assert "Traceback" not in done.stderr
    assert command("sync", "shop").returncode == 0


def test_the_base_install_asks_for_no_spark() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    base = project.partition("\ndependencies = [")[2].partition("\n]")[0]
    assert "pyarrow" in base
    assert "spark" not in base


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("without")
    (made / "orders.csv").write_text("id,item\n1,tea\n")
    return made
