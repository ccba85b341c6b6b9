"""One service for each file of tests, with three principals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from running_service import Running, principals_of
from tests.object_stores import s3_server
from tests.seen_in_store import SeenInStore

from lakemirror.service.auth.principals import Issued, Principals
from lakemirror.storage import connections, place

_ON_A_DISK = {
    "test_one_service_for_a_root",  # a lock of the system; in a store it is a lease: tests/stores/test_serve_lease.py
    "test_the_page_pasted_line_by_line",  # its commands name a folder
    "test_metrics",
    "test_the_pages",
    "test_nobody_sees_what_is_not_theirs",  # a torn file: no object's time can be set
    "test_each_change_and_refusal_of_the_storage_plane_is_audited",
    "test_a_copy_has_credentials_of_its_own",  # a folder is copied
    "test_over_the_wire",  # of the plots: what happened is written by the spool of a folder
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is about a disk, in a bucket."""
    left = [each for each in items if each.name.endswith("[bucket]") and each.name.partition("[")[0] in _ON_A_DISK]
    config.hook.pytest_deselected(items=left)
    items[:] = [each for each in items if each not in left]


@pytest.fixture(scope="module", params=["disk", pytest.param("bucket", marks=pytest.mark.full)])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The root that is served: a folder, and a prefix of a bucket that has the service's own files, too."""
    if request.param == "disk":
        yield tmp_path_factory.mktemp("root")
        return
    with s3_server() as server:
        connections.give_options("", server.options)
        yield SeenInStore(place(f"{server.bucket()}/lake"))
        connections.forget_all()


@pytest.fixture(scope="module")
def principals(root: Any) -> Principals:
    return principals_of(root)


@pytest.fixture(scope="module")
def writer(principals: Principals) -> Issued:
    return principals.add("writer", ["sales=contribute"])


@pytest.fixture(scope="module")
def admin(principals: Principals) -> Issued:
    return principals.add("admin", ["*=contribute"])


@pytest.fixture(scope="module")
def reader(principals: Principals) -> Issued:
    return principals.add("reader", ["sales=read"])


@pytest.fixture(scope="module")
def running(root: Any, writer: Issued, admin: Issued, reader: Issued) -> Iterator[Running]:
    service = Running(root)
    yield service
    service.stop()
    assert service.ended


@pytest.fixture(scope="module")
def token(running: Running, writer: Issued) -> str:
    return running.token(writer)
