"""`lakemirror demo` finds its example in a clone, and in an installed wheel, and Spark finds its data source."""

from __future__ import annotations

import re
from importlib.metadata import PackagePath
from importlib.util import find_spec
from pathlib import Path

import pytest

from lakemirror.cli import demo
from lakemirror.errors import SetupError

ROOT = Path(__file__).parents[2]


def test_a_clone_runs_its_own_example() -> None:
    assert demo._examples() == ROOT / "examples"


def test_a_wheel_carries_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place, files) = re.findall(r'^"(share/.*)" = \["(.*)"\]', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[0]
    carried = [path.name for path in ROOT.glob(files)]
    assert {"__init__.py", "performance.py", "source.py"} <= set(carried)
    installed = tmp_path / "lib/python3/site-packages/lakemirror/cli/demo.py"
    listed = [PackagePath(f"../../../{place}/{name}") for name in carried]
    for path in listed:
        path.dist = type("Distribution", (), {"locate_file": lambda self, at: installed.parents[2] / at})()
    monkeypatch.setattr(demo, "__file__", str(installed))
    monkeypatch.setattr(demo.metadata, "files", lambda name: listed)
    assert demo._examples() == tmp_path / Path(place).parent
    monkeypatch.setattr(demo.metadata, "files", lambda name: [])
    with pytest.raises(SetupError) as error:
        demo._examples()
    assert error.value.code == "demo-data-missing"


def test_a_wheel_carries_what_spark_looks_for() -> None:
    """PySpark imports every top-level module `pyspark_…` of the path, and takes its `DefaultSource`."""
    setuptools = pytest.importorskip("setuptools")
    found = setuptools.find_packages(str(ROOT / "src"))
    assert {name for name in found if "." not in name} == {"lakemirror", "pyspark_lakemirror"}
    pyspark_lakemirror = pytest.importorskip("pyspark_lakemirror")
    if find_spec("pyspark.sql.datasource") is not None:
        assert pyspark_lakemirror.DefaultSource.name() == "lakemirror"
