"""What the planes of the service share: who asks, what there is, and how a request is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiohttp import web

ITEM_FILE = ".lakemirror-item.json"  # in a database's folder: its id, name and state; not listed
WORKSPACE_FILE = ".lakemirror-workspace.json"  # in a workspace's folder: its id


@dataclass(frozen=True)
class Caller:
    """An authenticated principal. `roles`: workspace in lower case, or `*`, to `read` or `contribute`.

    `sas_permissions`: the letters of an account SAS, which narrow the roles; None without a SAS.
    """

    name: str
    roles: Mapping[str, str]
    sas_permissions: frozenset[str] | None = None

    def may(self, workspace: str, role: str) -> bool:
        """True where the principal has this role, or a greater one, on the workspace (its name, in any case)."""
        granted = {self.roles.get(workspace.lower()), self.roles.get("*")}
        return "contribute" in granted or (role == "read" and "read" in granted)


@dataclass(frozen=True)
class WorkspaceEntry:
    """A workspace: a folder under the root. `id` is a GUID in lower case."""

    id: str
    name: str
    folder: Path


@dataclass(frozen=True)
class DatabaseEntry:
    """A mirrored database. `id` is a GUID in lower case; `folder` holds `Files` and `Tables`.

    `state`: what was asked for last: `Initialized`, `Running` or `Stopped`.
    """

    id: str
    display_name: str
    folder: Path
    workspace: WorkspaceEntry | None = None
    description: str = ""
    state: str = "Running"


class Registry(Protocol):
    """The workspaces and databases of a root folder. Names and ids are found in any case."""

    @property
    def staging(self) -> Path:
        """The folder of uploads that are not published."""

    def workspaces(self) -> list[WorkspaceEntry]: ...

    def workspace(self, name_or_id: str) -> WorkspaceEntry | None: ...

    def databases(self, workspace: WorkspaceEntry) -> list[DatabaseEntry]: ...

    def database(self, workspace: WorkspaceEntry, name_or_id: str) -> DatabaseEntry | None:
        """By id, display name, or display name with `.MirroredDatabase`."""

    def published(self, database: DatabaseEntry) -> None:
        """Wakes the database's replicator at once."""


class Authenticator(Protocol):
    """Who may ask."""

    def is_principal(self, name: str) -> bool:
        """True for the name of a principal, which may stand as the account in a path."""

    async def authenticate(self, request: web.BaseRequest, *, storage: bool) -> Caller:
        """Who asks; AccessDenied where that is not proven. Does not touch the disk of a database."""


@dataclass(frozen=True)
class Limits:
    """What a request may take. Sizes in bytes, times in seconds."""

    max_body: int = 4 * 1024**3
    body_timeout: float = 30.0
    page_size: int = 100
    max_requests: int = 512


class Refusal(Exception):
    """A request that is answered with an error. `code` is the plane's error code."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


class AccessDenied(Refusal):
    """A request that is refused before anything is looked at."""


__all__ = [
    "ITEM_FILE",
    "WORKSPACE_FILE",
    "AccessDenied",
    "Authenticator",
    "Caller",
    "DatabaseEntry",
    "Limits",
    "Refusal",
    "Registry",
    "WorkspaceEntry",
]
