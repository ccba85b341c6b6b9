"""Sends lakemirror's own code with each task, so that executors need not have it installed.

modules that tasks import ─▶ compiled, compressed ─▶ argument of `carrier.carried` ─▶ pickled by value by PySpark

The kernels themselves cannot be pickled by value: modules hold locks and caches, which cannot be pickled, and a class
that is pickled by value is a different class on the executor.
"""

from __future__ import annotations

import dis
import hashlib
import importlib.util
import marshal
import threading
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.abc import InspectLoader
from types import CodeType
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


def bundle() -> tuple[bytes, str]:
    """The modules that tasks import, and their digest."""
    with _bundling:  # the first batches of several tables need it at the same time
        return _bundle()


_bundling = threading.Lock()


@cache
def _bundle() -> tuple[bytes, str]:
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
        code = loader.get_code(name)
        if code is None:
            continue
        modules[name] = (loader.is_package(name), marshal.dumps(code))
        if name != carrier.PACKAGE:  # it imports modules at the first use of their names, which tasks never do
            waiting += _imported(code)
    packed = zlib.compress(marshal.dumps((importlib.util.MAGIC_NUMBER, dict(sorted(modules.items())))))
    return packed, hashlib.sha256(packed).hexdigest()


def _loader(name: str) -> InspectLoader | None:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None
    return spec.loader if spec is not None and isinstance(spec.loader, InspectLoader) else None


def _imported(code: CodeType) -> list[str]:
    """The names of lakemirror's modules that this code imports, and of the names imported from them.

    Reads byte code: `ast.parse` fails if another thread is in it, too (CPython 3.11).
    """
    found: list[str] = []
    if any(name.partition(".")[0] == carrier.PACKAGE for name in code.co_names):
        module = ""
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME":
                module = instruction.argval
                found.append(module)
            elif instruction.opname == "IMPORT_FROM":
                found.append(f"{module}.{instruction.argval}")
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found += _imported(inner)
    return [name for name in found if name.partition(".")[0] == carrier.PACKAGE]
