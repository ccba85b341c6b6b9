"""The first code of a task on an executor: it makes lakemirror's modules importable there, then calls one of them.

This module is pickled by value (`task_code`). So it imports only the standard library, and no module of lakemirror
before `_install`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import marshal
import sys
import types
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

PACKAGE = "lakemirror"


def carried(
    code: bytes, digest: str, function: str, *arguments: Any, store_options: Any = None
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for `mapInArrow` that calls `function` (`module:name`) with the batches and `arguments`.

    `code`: the modules. `digest`: identifies them, because a Python worker may have seen another version's modules.
    `store_options`: a Broadcast of the options of object stores, the name of a file with them, or None.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        _install(code, digest)
        _give_options(store_options)
        module, _, name = function.partition(":")
        yield from getattr(importlib.import_module(module), name)(batches, *arguments)

    return run


class CarriedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules from memory. `modules`: by full name, whether it is a package, and its marshalled code.

    Other modules of lakemirror are imported from the worker's installation, if it has one: a Spark worker process may
    run a task of the engine first, and the data source later.
    """

    def __init__(self, modules: dict[str, tuple[bool, bytes]], digest: str) -> None:
        self.modules = modules
        self.digest = digest

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.modules:
            return None
        is_package = self.modules[fullname][0]
        spec = importlib.util.spec_from_loader(fullname, self, is_package=is_package)
        installed = importlib.machinery.PathFinder.find_spec(fullname, path) if is_package else None
        if spec is not None and installed is not None and installed.submodule_search_locations is not None:
            spec.submodule_search_locations = list(installed.submodule_search_locations)
        return spec

    def exec_module(self, module: types.ModuleType) -> None:
        exec(marshal.loads(self.modules[module.__name__][1]), module.__dict__)


def _give_options(given: Any) -> None:
    """Sets the options of object stores for this task, and forgets those of a task before it."""
    name = f"{PACKAGE}.storage.connections"
    if given is None and name not in sys.modules:
        return
    if isinstance(given, str):
        from pyspark import SparkFiles

        options = json.loads(Path(SparkFiles.get(given)).read_text("utf-8"))
    else:
        options = given.value if given is not None else {}
    importlib.import_module(name).give_only(options)


def _install(code: bytes, digest: str) -> None:
    """Makes imports find the carried modules. Does it once for each Python worker and version."""
    if any(getattr(finder, "digest", None) == digest for finder in sys.meta_path):
        return
    sys.meta_path[:] = [finder for finder in sys.meta_path if not hasattr(finder, "digest")]
    for name in [name for name in sys.modules if name == PACKAGE or name.startswith(PACKAGE + ".")]:
        del sys.modules[name]
    magic, modules = marshal.loads(zlib.decompress(code))
    if magic != importlib.util.MAGIC_NUMBER:
        raise RuntimeError(f"the executors' Python is {sys.version.split()[0]}: it must be the driver's minor version")
    sys.meta_path.insert(0, CarriedModules(modules, digest))
