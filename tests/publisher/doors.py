"""Landing zones behind a storage endpoint that runs in the tests' process: any local folder gets an address."""

from __future__ import annotations

import base64
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

from lakemirror.publisher import Landing
from lakemirror.service.interface import DatabaseEntry

sys.path.insert(0, str(Path(__file__).parents[1] / "service_endpoint"))

from endpoint_double import EndpointServer


class Loader:
    """Gives the token of the principal `loader`, as a credential of `azure.identity` does."""

    def get_token(self, *_: str, **__: object) -> SimpleNamespace:
        return SimpleNamespace(token="loader", expires_on=4_000_000_000)


class Doors:
    """One endpoint for many databases: the name of each is its folder's path, in Base64."""

    def __init__(self, root: Path) -> None:
        self.server = EndpointServer(root)
        self.server.registry.database = _database  # type: ignore[method-assign,assignment]

    def landing(self, db: str | Path) -> Landing:
        """The landing zone of a local folder, behind the endpoint; the folder is made, as the service makes it."""
        if not Path(db).exists():
            Path(db).mkdir(parents=True)
        name = base64.urlsafe_b64encode(str(Path(db).absolute()).encode()).decode()
        return Landing(f"{self.server.url}/ws/{name}", Loader())


def folder_of(name: str) -> Path:
    """The local folder of a database."""
    return Path(base64.urlsafe_b64decode(name).decode())


def _database(_: object, name: str) -> DatabaseEntry:
    folder = folder_of(name)
    return DatabaseEntry(str(uuid.uuid5(uuid.NAMESPACE_URL, str(folder))), name, folder)
