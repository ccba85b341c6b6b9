"""What the planes of the service share: who asks, and what there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lakemirror.storage import Place

if TYPE_CHECKING:
    from aiohttp import web

    from lakemirror.service.request_address import Target

ITEM_FILE = ".lakemirror-item.json"  # in a database's folder: its id, name and state; not listed
WORKSPACE_FILE = ".lakemirror-workspace.json"  # in a workspace's folder: its id


@dataclass(frozen=True)
class Caller:
    """An authenticated principal. `roles`: workspace in lower case, or `*`, to `read` or `contribute`.

    `sas_permissions`: the letters `sp` of an account SAS, which narrow the roles; None without a SAS. `sas_kinds`: its
    letters `srt`. `sas_folder`: `workspace/database/path` by ids of the folder that a SAS opens; else empty.
    """

    name: str
    roles: Mapping[str, str]
    sas_permissions: frozenset[str] | None = None
    sas_kinds: frozenset[str] = frozenset("sco")
    sas_folder: str = ""

    def may(self, workspace: str, role: str) -> bool:
        """True where the principal has this role, or a greater one, on the workspace (its name, in any case)."""
        granted = {self.roles.get(workspace.lower()), self.roles.get("*")}
        return "contribute" in granted or (role == "read" and "read" in granted)

    def sas_allows(self, letters: str) -> bool:
        """True where the SAS has one of these letters, where none is needed, and without a SAS."""
        return self.sas_permissions is None or not letters or not self.sas_permissions.isdisjoint(letters)

    def sas_opens(self, name: str) -> bool:
        """True if `workspace/database/path` is in the folder of the SAS, and for a caller that has none."""
        return not self.sas_folder or f"{name}/".startswith(f"{self.sas_folder}/")


@dataclass(frozen=True)
class WorkspaceEntry:
    """A workspace: a folder under the root. `id` is a GUID in lower case."""

    id: str
    name: str
    folder: Place


@dataclass(frozen=True)
class DatabaseEntry:
    """A mirrored database. `id` is a GUID in lower case; `folder` holds `Files` and `Tables`.

    `state`: what was asked for last: `Initialized`, `Running` or `Stopped`.
    """

    id: str
    display_name: str
    folder: Place
    workspace: WorkspaceEntry | None = None
    description: str = ""
    state: str = "Running"


class Registry(Protocol):
    """The workspaces and databases of a root folder. Names and ids are found in any case."""

    @property
    def staging(self) -> Path:
        """The folder of uploads that are not published, on this machine's disk."""

    @property
    def staged_copies(self) -> Place | None:
        """Where the store has them, too, so that another machine goes on with them; None: nowhere."""

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

    async def authenticate(self, request: web.BaseRequest, target: Target | None = None) -> Caller:
        """Who asks; Refused where that is not proven. Does not touch the disk of a database.

        `target`: what a request of the storage plane means, which keys and SAS open; None for REST, which takes tokens.
        """


@dataclass(frozen=True)
class Limits:
    """What a request may take. Sizes in bytes, times in seconds.

    `grace`, `least_rate` (bytes a second), `small_body`, `small_body_time`: how slow a client may be, see `Pace`.
    `most_unknown`: requests under way from one address whose principal is not known.
    """

    max_body: int = 4 * 1024**3
    body_timeout: float = 30.0
    page_size: int = 100
    max_requests: int = 512
    grace: float = 10.0
    least_rate: int = 1024
    small_body: int = 64 * 1024
    small_body_time: float = 15.0
    most_unknown: int = 32
