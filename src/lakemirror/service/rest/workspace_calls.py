"""Workspaces that the operator makes, renames and deletes by REST.

A rename changes the address, not the folder nor the id, and who had a role on the old name has it on the new one. A
deletion takes the roles away, so that a later workspace of this name is open to nobody. Roles come first: killed
between the two, the same call ends what it has begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakemirror.service.auth.principals import Principals
from lakemirror.service.interface import WorkspaceEntry
from lakemirror.service.refused import Refused
from lakemirror.service.rest.registry import FolderRegistry, NameInUse, NotEmpty
from lakemirror.service.rest.rest_answers import invalid
from lakemirror.service.workspace_names import is_guid, is_reserved, is_workspace_name


@dataclass(frozen=True)
class WorkspaceCalls:
    """The calls that change workspaces; call them in a thread."""

    registry: FolderRegistry
    principals: Principals

    def create(self, body: Mapping[str, Any]) -> WorkspaceEntry:
        """The new workspace. Refused 400, 409 `WorkspaceNameAlreadyExists`."""
        name = self._name(body)
        self.principals.forget_stale_roles(name)
        try:
            return self.registry.create_workspace(name)
        except NameInUse:
            raise _in_use(name) from None

    def rename(self, workspace: WorkspaceEntry, body: Mapping[str, Any]) -> WorkspaceEntry:
        """The workspace under its new name. Refused 400, 404, 409."""
        name = self._name(body)
        other = self.registry.workspace(name)
        if other is not None and other.id != workspace.id:
            raise _in_use(name)
        self.principals.move_roles(workspace.name, name)
        try:
            return self.registry.rename_workspace(workspace, name)
        except (NameInUse, KeyError) as error:
            self.principals.move_roles(name, workspace.name)
            raise _in_use(name) if isinstance(error, NameInUse) else _gone() from None

    def delete(self, workspace: WorkspaceEntry) -> None:
        """Deletes a workspace without databases. Refused 404, 409 `WorkspaceNotEmpty`."""
        try:
            self.registry.delete_workspace(workspace, lambda: self.principals.move_roles(workspace.name, None))
        except NotEmpty as error:
            raise Refused(409, "WorkspaceNotEmpty", str(error)) from None
        except KeyError:
            raise _gone() from None

    def _name(self, body: Mapping[str, Any]) -> str:
        name = body.get("displayName")
        if not isinstance(name, str) or not is_workspace_name(name) or is_reserved(name) or is_guid(name):
            raise invalid("displayName has 1 to 63 of A-Z, a-z, 0-9, '.', '_' and '-', the first a letter or digit.")
        if self.principals.by_name(name.lower()) is not None:
            raise Refused(409, "WorkspaceNameAlreadyExists", f"{name} is the name of a principal.")
        return name


def _in_use(name: str) -> Refused:
    return Refused(409, "WorkspaceNameAlreadyExists", f"There is a workspace {name}.")


def _gone() -> Refused:
    return Refused(404, "WorkspaceNotFound", "There is no such workspace.")
