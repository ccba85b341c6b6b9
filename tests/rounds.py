"""How many rounds a test of random cases has, and how many cases a matrix: fewer by `make test`, which has little time,
than in any other run."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isfunction
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers  # not public: where it changes, only time is lost

SLOW: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.explicit, Phase.generate],
    "print_blob": True,
}
"""Settings of a random test whose single case takes seconds: none is made smaller after a failure."""

_run: dict[str, bool] = {}
T = TypeVar("T")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Notes which run this is, before any test is read."""
    _run["quick"] = session.config.option.markexpr == "not full"
    settings.register_profile("quick", deadline=None, max_examples=30)  # a test may ask for its own count by `rounds`
    settings.register_profile("full", deadline=None)  # no test is about time: the machine may do much else
    settings.load_profile("quick" if _run["quick"] else "full")
    if _run["quick"]:
        # Hypothesis would read every module, in every process, for values that some of its examples then have
        providers._get_local_constants = lambda: providers._local_constants


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(obj: object) -> list[pytest.Item] | None:
    """Leaves out a slow matrix before its cases are made: there are thousands, and each process makes them all."""
    if _run.get("quick") and isfunction(obj):
        return [] if any(mark.name == "full" for mark in getattr(obj, "pytestmark", ())) else None
    return None


def rounds(quick: int, full: int) -> int:
    """`quick` in a run of `-m "not full"`, else `full`."""
    return quick if _run.get("quick") else full


def every_second(cases: Sequence[T], first: int = 0) -> Sequence[T]:
    """The cases with numbers `first`, `first` + 2, … in a run of `-m "not full"`, else all."""
    return cases[first::2] if _run.get("quick") else cases
