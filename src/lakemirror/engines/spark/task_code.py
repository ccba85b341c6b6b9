"""Sends lakemirror's own code with each task, so that executors need not have it installed.

modules that tasks import ─▶ compiled, compressed ─▶ argument of `carrier.carried` ─▶ pickled by value by PySpark

The kernels themselves cannot be pickled by value: modules hold locks and caches, which cannot be pickled, and a class
that is pickled by value is a different class on the executor.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import marshal
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.abc import InspectLoader
from typing import Any

from lakemirror.engines.spark import carrier

TASKS = "lakemirror.engines.spark.tasks"


def task(function: str, *arguments: Any, store_options: Any = None) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for `mapInArrow` that calls `function` of `tasks` on an executor, with the batches and `arguments`.

    `arguments`: bytes and plain values, which are pickled with it. `store_options`: where it finds the options of
    object stores (`StoreOptions.reference`).
    """
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(carrier)  # type: ignore[no-untyped-call]
    code, digest = bundle()
    return carrier.carried(code, digest, f"{TASKS}:{function}", *arguments, store_options=store_options)


@cache
def bundle() -> tuple[bytes, str]:
    """The modules that tasks import, and their digest."""
    modules: dict[str, tuple[bool, bytes]] = {}
    waiting = [TASKS]
    while waiting:
        name = waiting.pop()
        package = name.rpartition(".")[0]
        if package and package not in modules:
            waiting.append(package)
        if name == "lakemirror.engines.spark":  # it imports code that only a driver runs
            modules[name] = (True, marshal.dumps(compile("", name, "exec")))
        if name in modules:
            continue
        loader = _loader(name)
        if loader is None:
            continue  # not a module, but a name in one
        modules[name] = (loader.is_package(name), marshal.dumps(loader.get_code(name)))
        tree = ast.parse(loader.get_source(name) or "")
        # `lakemirror/__init__.py` imports the rest at the first use of a name, which tasks never do
        waiting += _imported(tree.body if name == carrier.PACKAGE else ast.walk(tree))
    code = zlib.compress(marshal.dumps((importlib.util.MAGIC_NUMBER, dict(sorted(modules.items())))))
    return code, hashlib.sha256(code).hexdigest()


def _loader(name: str) -> InspectLoader | None:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    return spec.loader if spec is not None and isinstance(spec.loader, InspectLoader) else None


def _imported(nodes: Iterable[ast.AST]) -> list[str]:
    """The names of lakemirror's modules that these statements import, and of the names imported from them."""
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in found if name.partition(".")[0] == carrier.PACKAGE]
