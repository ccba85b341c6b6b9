"""The REST interface as OpenAPI 3.1, from the rows of its calls."""

from __future__ import annotations

from typing import Any

from lakemirror.service.rest.calls import CALLS, DATABASE, RestCall
from lakemirror.status.status import TABLE_STATES

_MEANINGS = {
    "400": "The request is invalid.",
    "401": "No token, or one that is not valid.",
    "403": "The caller has no role for this on the workspace.",
    "404": "There is nothing at this address.",
    "409": "The display name is in use.",
    "413": "The request is too large.",
    "429": "Too many requests are under way.",
    "501": "Not supported.",
    "503": "The source of a capture does not answer.",
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
    paths: dict[str, Any] = {}
    for call in CALLS:
        named = [segment.strip("{}") for segment in call.path.split("/") if segment.startswith("{")]
        at = paths.setdefault(call.path, {"parameters": [_PARAMETERS[name] for name in named]} if named else {})
        at[call.method.lower()] = _described(call)
    return paths


def _described(call: RestCall) -> dict[str, Any]:
    if not call.offered:
        return {"operationId": call.operation, "responses": {"501": _refusal("501")}}
    answer: dict[str, Any] = {"description": "Done."}
    if call.answers:
        answer["content"] = _json(call.answers)
    refused = (400, 401, 403, 404, *call.refuses, *((413,) if call.body else ()), 429)
    described: dict[str, Any] = {
        "operationId": call.operation,
        "responses": {str(call.status): answer, **{str(status): _refusal(str(status)) for status in refused}},
    }
    if call.query:
        described["parameters"] = [{"name": name, "in": "query", "schema": {"type": kind}} for name, kind in call.query]
    if call.body:
        described["requestBody"] = {"required": True, "content": _json(call.body)}
    return described


def _refusal(status: str) -> dict[str, Any]:
    return {"description": _MEANINGS[status], "content": _json("Error")}


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _parameter(name: str, text: str, guid: bool = False) -> dict[str, Any]:
    kind = {"type": "string", "format": "uuid"} if guid else {"type": "string"}
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
_STATES = ["Initializing", "Initialized", "Starting", "Running", "Paused", "Stopping", "Stopped"]
_TEXTS = {"type": "array", "items": _TEXT}
_CAPTURE: dict[str, Any] = {
    "source": _TEXT, "passwordFrom": {"type": "object", "properties": {"file": _TEXT, "environment": _TEXT}},
    "tables": _TEXTS, "exclude": _TEXTS, "insertOnly": _TEXTS, "flat": {"type": "boolean"}, "numeric": _TEXT,
    "renames": {"type": "object", "additionalProperties": _TEXT}, "infinite": {"enum": ["null"]},
    "afterDdl": {"enum": ["reload", "ignore"]}, "cutSeconds": {"type": "number", "minimum": 0},
}  # fmt: skip
_SHORT_ERROR = _object("errorCode message", errorCode=_TEXT, message=_TEXT)

_PARAMETERS = {
    "workspaceId": _parameter("workspaceId", "The id or the name of the workspace."),
    "mirroredDatabaseId": _parameter("mirroredDatabaseId", "The id of the mirrored database.", guid=True),
    "captureName": _parameter("captureName", "The name of the capture."),
}

_SCHEMAS: dict[str, Any] = {
    "Error": _object(
        "errorCode message requestId isRetriable", errorCode=_TEXT, message=_TEXT, requestId=_TEXT,
        isRetriable={"type": "boolean"},
    ),
    "Workspace": _object("id displayName type", id=_GUID, displayName=_TEXT, type={"const": "Workspace"}),
    "Workspaces": _list_of("Workspace"),
    "WorkspaceRequest": _object("displayName", displayName=_TEXT),
    "Item": _object(
        "id type displayName workspaceId", id=_GUID, type={"const": DATABASE}, displayName=_NAME,
        description=_DESCRIPTION, workspaceId=_GUID,
    ),
    "Items": _list_of("Item"),
    DATABASE: {
        "allOf": [{"$ref": "#/components/schemas/Item"}],
        "properties": {"properties": _object("oneLakeTablesPath", oneLakeTablesPath=_TEXT, defaultSchema=_TEXT)},
    },
    "MirroredDatabases": _list_of(DATABASE),
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
        sourceTableName=_TEXT, status={"enum": list(TABLE_STATES)}, error=_SHORT_ERROR,
        metrics=_object(
            "processedRows processedBytes", processedRows=_WHOLE, processedBytes=_WHOLE,
            lastSyncDateTime={"type": "string", "format": "date-time"}, lastSyncLatencyInSeconds=_WHOLE,
        ),
    ),
    "TablesMirroringStatus": _list_of("TableStatus", "data"),
    "CaptureRequest": _object("source", **_CAPTURE),
    "Capture": _object(
        "name source state restarts", name=_TEXT, **_CAPTURE, restarts=_WHOLE, error=_SHORT_ERROR,
        state={"enum": ["Starting", "Running", "Waiting", "Stopping"]}, status={"type": ["object", "null"]},
    ),
    "Captures": _list_of("Capture"),
    "ReloadRequest": _object("tables", tables=_TEXTS),
}  # fmt: skip
