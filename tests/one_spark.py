"""Which of the processes of `make test` runs which tests: one runs all that share the Spark session, from the start."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[1]
OWN_SPARK = ("tests/spark/", "tests/acceptance/conformance/")
"""Folders whose tests start a JVM, whatever their fixtures are."""
SHARED = re.compile(r"\bspark: (Any|SparkSession)\b|\bworld: World\b")
"""What a file says whose tests use the session of the run, directly or by the conformance suite's world."""


READS_SOURCE = re.compile(r"from tests\.(source|advice) import")
"""What a file says whose tests read the package's own code, which is parsed once for all of them."""


@cache
def scope_of(file: str) -> str:
    """Tests of one scope run in one process: all that need Spark, all that read the code, or else those of a file."""
    text = (ROOT / file).read_text("utf-8")
    return "spark" if SHARED.search(text) else "source" if READS_SOURCE.search(text) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Sends scopes to processes in the order of collection, not the ones of many tests first: by name, the folders
    whose tests start processes and servers come before `tests/unit`, whose small files fill the processes at the end.
    The first of all is the conformance suite, and with it whatever uses Spark."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False

    class OneSpark(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid.partition("::")[0])

        def remove_node(self, node: Any) -> str | None:
            """A test in which a process ended is not run again: it would end the next one."""
            crashed = super().remove_node(node)
            if crashed is not None:
                self.workqueue[self._split_scope(crashed)][crashed] = True
            return crashed

    return OneSpark(config, log)
