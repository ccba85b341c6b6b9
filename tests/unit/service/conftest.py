"""One service for each file of tests, with three principals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_service import Running

from lakemirror.service.auth.principals import Issued, Principals


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def writer(root: Path) -> Issued:
    return Principals(root).add("writer", ["sales=contribute"])


@pytest.fixture(scope="module")
def admin(root: Path) -> Issued:
    return Principals(root).add("admin", ["*=contribute"])


@pytest.fixture(scope="module")
def reader(root: Path) -> Issued:
    return Principals(root).add("reader", ["sales=read"])


@pytest.fixture(scope="module")
def running(root: Path, writer: Issued, admin: Issued, reader: Issued) -> Iterator[Running]:
    service = Running(root)
    yield service
    service.stop()
    assert service.ended


@pytest.fixture(scope="module")
def token(running: Running, writer: Issued) -> str:
    return running.token(writer)
