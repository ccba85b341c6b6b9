"""Workspaces as the storage plane shows them: file systems of the DFS dialect, containers of the Blob dialect."""

from __future__ import annotations

import json

from aiohttp import web

from lakemirror.service.interface import WorkspaceEntry
from lakemirror.service.refused import Refused
from lakemirror.service.storage.call import Call
from lakemirror.service.storage.reads import access_of
from lakemirror.service.storage.storage_answers import forbidden, http_date
from lakemirror.storage.place import local_path


async def filesystem_status(call: Call) -> web.Response:
    """200 with the properties of the workspace."""
    workspace = call.workspace()
    return web.Response(
        headers={
            **_about(workspace),
            "x-ms-namespace-enabled": "true",
            "x-ms-lease-status": "unlocked",
            "x-ms-lease-state": "available",
            "x-ms-has-immutability-policy": "false",
            "x-ms-has-legal-hold": "false",
        }
    )


async def filesystem_access(call: Call) -> web.Response:
    """200 with who may do what with the workspace."""
    call.workspace()
    return web.Response(headers=access_of(True))


async def make_filesystem(call: Call) -> web.Response:
    """Never done: Refused 409 where the workspace exists, else 403."""
    try:
        call.workspace()
    except Refused as error:
        raise forbidden("Workspaces are not made here.") from error
    if call.address.database:
        raise forbidden("Workspaces are not made here.")
    raise Refused(409, call.codes.workspace_exists, "The workspace exists already.")


async def remove_filesystem(call: Call) -> web.Response:
    """Never done: Refused 403."""
    raise forbidden("Workspaces are not deleted here.")


async def not_offered(call: Call) -> web.Response:
    """Refused 501, for a caller with a role."""
    if call.address.workspace:
        call.workspace()
    raise Refused(501, "NotImplemented", "This operation is not offered.")


def readable(call: Call) -> list[WorkspaceEntry]:
    """The workspaces that the caller may read, by name."""
    found = [each for each in call.serving.registry.workspaces() if call.caller.may(each.name, "read")]
    return sorted(found, key=lambda each: each.name)


async def workspaces_json(call: Call) -> web.Response:
    """The readable workspaces, as the DFS dialect lists file systems."""
    entries = []
    for workspace in readable(call):
        about = _about(workspace)
        entries.append(
            {"name": workspace.name, "lastModified": about["Last-Modified"], "etag": about["ETag"].strip('"')}
        )
    return web.Response(text=json.dumps({"filesystems": entries}), content_type="application/json")


def modified_ns(workspace: WorkspaceEntry) -> int:
    """When something last came to the workspace or went, in nanoseconds since 1970; 0 in a store."""
    folder = local_path(workspace.folder)
    try:
        return 0 if folder is None else folder.stat().st_mtime_ns
    except OSError:
        return 0


def _about(workspace: WorkspaceEntry) -> dict[str, str]:
    modified = modified_ns(workspace)
    return {"ETag": f'"0x{modified:X}"', "Last-Modified": http_date(modified)}
