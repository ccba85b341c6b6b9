"""The package's own code as the guards of code and texts read it: each file is parsed once for all of them.

Tests that read it run in one process of a run (`tests/one_spark.py`), so that the others need not parse it too.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a file, which nobody changes."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All that is in the tree of a file, in the order of `ast.walk`."""
    return tuple(ast.walk(parsed(path)))
