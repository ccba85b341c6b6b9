"""A database of the tests' PostgreSQL, and the two doors to a landing zone: a local folder, a service's endpoint."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import Postgres

from lakemirror.publisher.folders.endpoint_folder import EndpointFolder

sys.path.insert(0, str(Path(__file__).parent))

from doors import Doors, folder_of


@pytest.fixture(scope="session")
def postgres(postgres_server: Postgres) -> str:
    """The URL of a database of a PostgreSQL on loopback."""
    pytest.importorskip("adbc_driver_postgresql")
    return postgres_server.url()


@pytest.fixture(scope="session")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    found = Doors(tmp_path_factory.mktemp("endpoint"))
    yield found
    found.server.close()


@pytest.fixture(scope="module", params=["local", "endpoint"])
def door(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a module's tests twice: `Landing(folder)` is the folder, then the same folder behind an endpoint."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "endpoint":
            found: Doors = request.getfixturevalue("doors")
            patch.setattr(request.module, "Landing", found.landing)

            def local(self: EndpointFolder) -> Path:
                return folder_of(self._endpoint.database) / self._folder

            patch.setattr(EndpointFolder, "path", property(local))
        yield request.param


LONG = ("test_a_number_of_another_run_is_never_taken", "test_stopped_anywhere")  # of test_publisher_batches


def pytest_itemcollected(item: pytest.Item) -> None:
    """Of what takes long, `make test` runs the local door alone."""
    if "endpoint" in item.name and item.path.parent == Path(__file__).parent:
        long = ("snapshot", "crash", "sql", "sql_types", "types", "files", "text")
        generated = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
        is_long = item.path.stem.removeprefix("test_publisher_") in long or item.name.startswith(LONG)
        if is_long or generated or "race" in item.name:
            item.add_marker(pytest.mark.full)
