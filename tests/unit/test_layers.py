"""The layout's laws: who may import whom, and who may commit."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from tests.source import nodes

import lakemirror

PACKAGE = Path(lakemirror.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))


@cache
def imports(path: Path) -> set[str]:
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("storage", ("delta", "landing_zone", "engines", "maintenance", "mirror", "features", "publisher")),
        ("delta", ("landing_zone", "engines", "maintenance", "mirror", "features", "publisher")),
        ("parquet", ("delta", "landing_zone", "keys", "engines", "maintenance", "mirror", "features", "api", "cli")),
        ("keys", ("maintenance", "mirror", "features", "publisher", "api", "cli")),
        ("landing_zone", ("delta", "engines", "maintenance", "mirror", "features", "api", "cli")),
        ("engines", ("maintenance", "mirror", "features", "publisher", "api", "cli")),
        ("features", ("mirror", "maintenance", "landing_zone", "api", "cli")),
        ("mirror", ("publisher", "api", "cli", "service")),
        ("publisher", ("mirror", "engines", "spark_session", "api")),
        ("settings", ("delta", "engines", "maintenance", "mirror", "publisher", "status", "api", "cli")),
        ("status", ("delta", "engines", "maintenance", "mirror", "publisher", "api", "cli")),
        ("readers", ("publisher", "service", "cli")),
        ("lint", ("engines", "maintenance", "publisher", "api", "cli")),
        ("service", ("cli", "publisher")),
        ("verify", ("engines", "maintenance", "features", "spark_session", "api", "cli")),
    ],
)
def test_nothing_below_imports_what_stands_above(folder: str, forbidden: tuple[str, ...]) -> None:
    modules = list((PACKAGE / folder).rglob("*.py"))
    assert modules
    assert all((PACKAGE / each).is_dir() or (PACKAGE / f"{each}.py").is_file() for each in forbidden)
    for path in modules:
        wrong = [name for name in imports(path) if name.startswith(tuple(f"lakemirror.{each}" for each in forbidden))]
        assert not wrong, (path.name, wrong)


def test_nothing_but_the_command_line_imports_the_service() -> None:
    users = {
        path.relative_to(PACKAGE).parts[0]
        for path in MODULES
        if any(name.startswith("lakemirror.service") for name in imports(path))
    }
    assert users <= {"service", "cli"}


def test_only_delta_commit_makes_a_version() -> None:
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        if "lakemirror.storage.durable.put_new" in imports(path)
    }
    assert users == {"delta/commit.py", "delta/checksum.py"}


def test_spark_s_inner_side_is_used_in_one_place() -> None:
    """Everything else is PySpark's public API, so that any PySpark will do, classic or Connect."""
    users = {
        path.relative_to(PACKAGE).parts[0]
        for path in MODULES
        if re.search(r"\b_jvm|py4j", path.read_text(encoding="utf-8"))
    }
    assert users <= {"spark_session"}


def test_no_module_says_nothing() -> None:
    empty = {"utils", "util", "helpers", "helper", "common", "core", "base", "manager", "misc"}
    assert not [p for p in MODULES if p.stem in empty or p.parent.name in empty]


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("lakemirror", "LakemirrorError MirroredDatabase SetupError SyncResult TableError TableResult"),
        ("lakemirror.publisher", "Buffer Landing LandingTable Published"),
        ("lakemirror.spark", "mirror"),
        ("lakemirror.features", "Dropped Plan Step Wish drop make_plan"),
    ],
)
def test_the_public_names(module: str, names: str) -> None:
    public = importlib.import_module(module)
    assert public.__all__ == names.split()
    for name in public.__all__:
        assert getattr(public, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = public.nothing


def test_what_needs_no_spark_imports_none() -> None:
    script = """
import importlib, sys
for module in ("lakemirror.publisher", "lakemirror.api", "lakemirror.cli"):
    importlib.import_module(module)
    assert not [each for each in sys.modules if each.startswith(("pyspark", "py4j"))], module
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


_KINDS = {"StorePath", "ObjectStorage", "ObjectStore", "ObjectFile", "ObjectWriter", "is_store_address"}
_OF_KINDS = {"publisher/landing.py", "publisher/folders/store_folder.py"}
"""A publisher takes a number by a lock and a link, or by a conditional copy: `TableFolder` is the interface of both."""

_OF_OTHER_PATHS = {"publisher/folders/endpoint.py", "cli/publish.py"}
"""The body of a request, bytes or a path; a database, a path or the address of a service."""


def test_nothing_above_storage_asks_what_kind_of_storage_it_is() -> None:
    """It calls a verb that does the right thing in each kind, or asks for a capability (`storage.Capabilities`)."""
    for path in MODULES:
        file = path.relative_to(PACKAGE).as_posix()
        if file.startswith("storage/"):
            continue
        imported = {name.rpartition(".")[2] for name in imports(path) if name.startswith("lakemirror.storage")}
        asked = kinds_asked_for(nodes(path))
        assert file in _OF_KINDS or not imported & _KINDS, (file, imported & _KINDS)
        assert file in _OF_OTHER_PATHS or not asked & (_KINDS | {"Path", "LocalStorage"}), (file, asked)


def test_questions_for_a_kind_are_found() -> None:
    def asked(code: str) -> set[str]:
        return kinds_asked_for(ast.walk(ast.parse(code)))

    assert asked("isinstance(x, Path | place.StorePath)") >= {"Path", "StorePath"}
    assert asked("if type(x) is Path: pass\nmatch x:\n    case StorePath(): pass") == {"Path", "StorePath"}
    assert not asked("x = Path(y); is_path(x)")


def kinds_asked_for(code: Iterable[ast.AST]) -> set[str]:
    """The names of the classes that code asks for: `isinstance`, `type(…) is`, `match`."""
    asked = list[ast.AST]()
    for node in code:
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            asked.append(node.args[1])
        elif isinstance(node, ast.Compare) and ast.unparse(node.left).startswith("type("):
            asked += node.comparators
        elif isinstance(node, ast.MatchClass):
            asked.append(node.cls)
    return {re.sub(r".*\.", "", ast.unparse(n)) for each in asked for n in ast.walk(each) if isinstance(n, ast.expr)}
