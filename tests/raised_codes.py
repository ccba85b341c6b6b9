"""Which error codes and findings the package itself raised while the tests ran: all of them, in a complete run.

`make test` names the codes that no test raised; `make test-full` fails where there are any. A run of chosen tests
checks nothing.
`RAISED_CODES=FILE` writes the codes of any run to a file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from lakemirror import errors
from lakemirror.error_codes import CODES
from lakemirror.verify import finding

ELSEWHERE: dict[str, str] = {}
"""Codes that only another process can raise, with the test that meets them there."""

_raised: set[str] = set()


def pytest_configure(config: pytest.Config) -> None:
    """Notes every error and every finding that a module of the package makes; those that tests make do not count."""
    for kind in (errors.LakemirrorError, finding.Finding):
        true = kind.__init__

        def noted(self: Any, code: str, *rest: Any, _true: Any = true, **more: Any) -> None:
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_locals.get("self") is self:  # of a class derived from it
                frame = frame.f_back
            if str(frame.f_globals.get("__name__", "")).startswith(("lakemirror", "flights")):
                _raised.add(code)
            _true(self, code, *rest, **more)

        kind.__init__ = noted  # type: ignore[method-assign]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes over what a process that ran a part of the tests has noted."""
    _raised.update(getattr(node, "workeroutput", {}).get("codes", ()))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fails a complete run in which a code was raised by no test."""
    if hasattr(session.config, "workeroutput"):  # a part of the tests, in a process of its own
        session.config.workeroutput["codes"] = sorted(_raised)
        return
    if place := os.environ.get("RAISED_CODES"):
        Path(place).write_text("\n".join(sorted(_raised)) + "\n", encoding="utf-8")
    config = session.config
    chosen = config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.option.keyword
    if exitstatus or chosen or config.option.collectonly or config.option.markexpr not in ("", "not full"):
        return
    missing = sorted((CODES.keys() | finding.KINDS.keys()) - _raised - ELSEWHERE.keys())
    if missing:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"codes that no test has met: {', '.join(missing)}", red=True)
        if not config.option.markexpr:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
