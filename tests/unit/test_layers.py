"""The layout's laws: who may import whom, and who may commit."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lakemirror

PACKAGE = Path(lakemirror.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("landing_zone", ("lakemirror.replication", "lakemirror.control_plane", "lakemirror.table_features")),
        ("table_features", ("lakemirror.replication", "lakemirror.control_plane")),
        ("replication", ("lakemirror.control_plane", "lakemirror.table_features")),
        ("publisher", ("lakemirror.replication", "pyspark", "typer", "rich", "lakemirror.spark")),
    ],
)
def test_who_imports_whom(folder: str, forbidden: tuple[str, ...]) -> None:
    modules = list((PACKAGE / folder).rglob("*.py"))
    assert modules
    for path in modules:
        wrong = [name for name in imports(path) if name.startswith(forbidden)]
        assert not wrong, (path.name, wrong)


@pytest.mark.parametrize(
    ("module", "user"),
    [
        ("lakemirror.replication.delta_transaction", "mirrored_table.py"),
        ("lakemirror.delta_commit", "direct_commit.py"),
    ],
)
def test_one_module_each_commits_with_spark_and_without(module: str, user: str) -> None:
    assert [p.name for p in (PACKAGE / "replication").glob("*.py") if module in imports(p)] == [user]


def test_no_module_says_nothing() -> None:
    empty = {"utils", "util", "helpers", "helper", "common", "core", "base", "manager", "misc"}
    assert not [p for p in MODULES if p.stem in empty or p.parent.name in empty]


def test_the_public_names() -> None:
    assert lakemirror.__all__ == sorted(lakemirror.__all__)
    for name in lakemirror.__all__:
        assert getattr(lakemirror, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = lakemirror.nothing


@pytest.mark.parametrize("module", ["lakemirror.publisher", "lakemirror.mirrored_database", "lakemirror.cli"])
def test_what_needs_no_spark_imports_none(module: str) -> None:
    script = f"import sys, {module}; sys.exit(any(m.startswith(('pyspark', 'py4j')) for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
