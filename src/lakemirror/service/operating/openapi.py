"""The REST interface as OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

_ITEM = "MirroredDatabase"
_MEANINGS = {
    "400": "The request is invalid.",
    "401": "No token, or one that is not valid.",
    "403": "The caller has no role for this on the workspace.",
    "404": "There is nothing at this address.",
    "409": "The display name is in use.",
    "413": "The request is too large.",
    "429": "Too many requests are under way.",
    "501": "Not supported.",
}


def description(server: str, version: str) -> dict[str, Any]:
    """The description, with the address that the client used as its server."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "lakemirror",
            "version": version,
            "description": "Workspaces and mirrored databases.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": f"{server}/v1"}],
        "security": [{"token": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
            "schemas": _SCHEMAS,
            "responses": {"Error": {"description": "An error.", "content": _json("Error")}},
        },
    }


def _paths() -> dict[str, Any]:
    one = "/workspaces/{workspaceId}/mirroredDatabases/{mirroredDatabaseId}"
    workspace, both = [_parameter("workspaceId")], [_parameter("workspaceId"), _parameter("mirroredDatabaseId", True)]
    page = [{"name": "continuationToken", "in": "query", "schema": {"type": "string"}}]
    return {
        "/workspaces": {"get": _call("ListWorkspaces", "Workspaces", page), "post": _not_offered()},
        "/workspaces/{workspaceId}": {"parameters": workspace, "get": _call("GetWorkspace", "Workspace")},
        "/workspaces/{workspaceId}/items": {
            "parameters": workspace,
            "get": _call("ListItems", "Items", [{"name": "type", "in": "query", "schema": {"type": "string"}}, *page]),
        },
        "/workspaces/{workspaceId}/mirroredDatabases": {
            "parameters": workspace,
            "get": _call("ListMirroredDatabases", "MirroredDatabases", page),
            "post": _call("CreateMirroredDatabase", _ITEM, status="201", body="CreateRequest", more=("409",)),
        },
        one: {
            "parameters": both,
            "get": _call("GetMirroredDatabase", _ITEM),
            "patch": _call("UpdateMirroredDatabase", _ITEM, body="UpdateRequest", more=("409",)),
            "delete": _call(
                "DeleteMirroredDatabase", "", [{"name": "hardDelete", "in": "query", "schema": {"type": "boolean"}}]
            ),
        },
        **{
            f"{one}/{name[0].lower()}{name[1:]}": {"parameters": both, "post": _call(name, answer, query, body=body)}
            for name, answer, query, body in (
                ("GetDefinition", "DefinitionAnswer", None, ""),
                ("UpdateDefinition", "", None, "DefinitionAnswer"),
                ("StartMirroring", "", None, ""),
                ("StopMirroring", "", None, ""),
                ("GetMirroringStatus", "MirroringStatus", None, ""),
                ("GetTablesMirroringStatus", "TablesMirroringStatus", page, ""),
            )
        },
    }


def _call(
    operation: str,
    answer: str,
    parameters: list[dict[str, Any]] | None = None,
    *,
    status: str = "200",
    body: str = "",
    more: tuple[str, ...] = (),
) -> dict[str, Any]:
    found: dict[str, Any] = {"description": "Done."}
    if answer:
        found["content"] = _json(answer)
    refusals = ("400", "401", "403", "404", *more, *(("413",) if body else ()), "429")
    call: dict[str, Any] = {
        "operationId": operation,
        "responses": {
            status: found,
            **{each: {"description": _MEANINGS[each], "content": _json("Error")} for each in refusals},
        },
    }
    if parameters:
        call["parameters"] = parameters
    if body:
        call["requestBody"] = {"required": True, "content": _json(body)}
    return call


def _not_offered() -> dict[str, Any]:
    refused = {"description": _MEANINGS["501"], "content": _json("Error")}
    return {"operationId": "CreateWorkspace", "responses": {"501": refused}}


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _parameter(name: str, guid: bool = False) -> dict[str, Any]:
    kind = {"type": "string", "format": "uuid"} if guid else {"type": "string"}
    text = "The id of the mirrored database." if guid else "The id or the name of the workspace."
    return {"name": name, "in": "path", "required": True, "description": text, "schema": kind}


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties}


def _list_of(schema: str, name: str = "value") -> dict[str, Any]:
    items = {"type": "array", "items": {"$ref": f"#/components/schemas/{schema}"}}
    return _object(name, **{name: items, "continuationToken": _TEXT, "continuationUri": _TEXT})


_TEXT = {"type": "string"}
_GUID = {"type": "string", "format": "uuid"}
_WHOLE = {"type": "integer"}
_PART = _object("path payload payloadType", path=_TEXT, payload=_TEXT, payloadType={"const": "InlineBase64"})
_PARTS = _object("parts", parts={"type": "array", "items": _PART})
_NAME = {"type": "string", "minLength": 1, "maxLength": 123}
_DESCRIPTION = {"type": "string", "maxLength": 256}
_TABLE_STATES = ["Initialized", "Snapshotting", "Replicating", "Reseeding", "Stopped", "Failed"]
_STATES = ["Initializing", "Initialized", "Starting", "Running", "Paused", "Stopping", "Stopped"]
_SHORT_ERROR = _object("errorCode message", errorCode=_TEXT, message=_TEXT)

_SCHEMAS: dict[str, Any] = {
    "Error": _object(
        "errorCode message requestId isRetriable", errorCode=_TEXT, message=_TEXT, requestId=_TEXT,
        isRetriable={"type": "boolean"},
    ),
    "Workspace": _object("id displayName type", id=_GUID, displayName=_TEXT, type={"const": "Workspace"}),
    "Workspaces": _list_of("Workspace"),
    "Item": _object(
        "id type displayName workspaceId", id=_GUID, type={"const": _ITEM}, displayName=_NAME,
        description=_DESCRIPTION, workspaceId=_GUID,
    ),
    "Items": _list_of("Item"),
    _ITEM: {
        "allOf": [{"$ref": "#/components/schemas/Item"}],
        "properties": {"properties": _object("oneLakeTablesPath", oneLakeTablesPath=_TEXT, defaultSchema=_TEXT)},
    },
    "MirroredDatabases": _list_of(_ITEM),
    "CreateRequest": _object(
        "displayName definition", displayName=_NAME, description=_DESCRIPTION, definition=_PARTS
    ),
    "UpdateRequest": {
        "type": "object", "minProperties": 1, "properties": {"displayName": _NAME, "description": _DESCRIPTION},
    },
    "DefinitionAnswer": _object("definition", definition=_PARTS),
    "MirroringStatus": _object("status", status={"enum": _STATES}, error=_SHORT_ERROR),
    "TableStatus": _object(
        "sourceTableName status metrics", sourceObjectType={"const": "Table"}, sourceSchemaName=_TEXT,
        sourceTableName=_TEXT, status={"enum": _TABLE_STATES}, error=_SHORT_ERROR,
        metrics=_object(
            "processedRows processedBytes", processedRows=_WHOLE, processedBytes=_WHOLE,
            lastSyncDateTime={"type": "string", "format": "date-time"}, lastSyncLatencyInSeconds=_WHOLE,
        ),
    ),
    "TablesMirroringStatus": _list_of("TableStatus", "data"),
}  # fmt: skip

__all__ = ["description"]
