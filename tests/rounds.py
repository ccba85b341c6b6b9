"""How many rounds a test of random cases has: fewer by `make test`, which has little time, than in any other run."""

from __future__ import annotations

import pytest

_run: dict[str, bool] = {}


def pytest_sessionstart(session: pytest.Session) -> None:
    """Notes which run this is, before any test is read."""
    _run["quick"] = session.config.option.markexpr == "not full"


def rounds(quick: int, full: int) -> int:
    """`quick` in a run of `-m "not full"`, else `full`."""
    return quick if _run.get("quick") else full
