"""lakemirror's own code as data that goes with each task, so that executors need not have it installed.

modules of this installation ─▶ compiled, compressed ─▶ argument of `carrier.carried` ─▶ pickled by value by PySpark

Why not pickle the kernels themselves by value: modules hold locks and caches, which cannot be pickled, and a class
that is pickled by value is another class on the other side.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import lakemirror
from lakemirror.engines.spark import carrier

PACKAGES = ("storage", "delta", "landing_zone", "engines", "replication")
"""Packages that tasks may import, with the modules directly below `lakemirror`; all of them below `replication`."""

NOT_CARRIED = {f"lakemirror.engines.spark{name}" for name in ("", ".engine", ".jobs", ".constraints", ".task_code")}
"""What only a driver runs."""


def task(function: str, *arguments: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for `mapInArrow` that calls `function` (`module:name`) on an executor, with the batches first.

    `arguments` are pickled with it: bytes and plain values.
    """
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(carrier)  # type: ignore[no-untyped-call]
    code, digest = bundle()
    return carrier.carried(code, digest, function, *arguments)


@cache
def bundle() -> tuple[bytes, str]:
    """The code that tasks may import, and its digest."""
    root = Path(lakemirror.__file__).parent
    modules: dict[str, tuple[bool, bytes]] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(("lakemirror", *(parts[:-1] if is_package else parts)))
        below_root = len(parts) == 1
        if (below_root or parts[0] in PACKAGES) and name not in NOT_CARRIED:
            modules[name] = (is_package, marshal.dumps(_code(name)))
    # the engine's package exports what needs pyspark's driver; on an executor it is a package and nothing else
    modules["lakemirror.engines.spark"] = (True, marshal.dumps(compile("", "lakemirror/engines/spark", "exec")))
    code = zlib.compress(marshal.dumps((importlib.util.MAGIC_NUMBER, modules)))
    return code, hashlib.sha256(code).hexdigest()


def _code(name: str) -> CodeType:
    spec = importlib.util.find_spec(name)
    get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
    found = get_code(name) if get_code is not None else None
    if not isinstance(found, CodeType):
        raise RuntimeError(f"{name} has no code that can be carried to executors")
    return found
