"""A database's definition as the REST interface carries it: parts with a path and a Base64 payload."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from lakemirror.declared_readers import allowed
from lakemirror.errors import LakemirrorError
from lakemirror.service.control.answers import Refused, invalid
from lakemirror.service.interface import DatabaseEntry
from lakemirror.settings import DEFINITION, MOST_BYTES, Settings, parse_definition

PLATFORM = ".platform"
_SCHEMA = "https://developer.microsoft.com/json-schemas/fabric/gitIntegration/platformProperties/2.0.0/schema.json"
_OPEN_MIRRORING = {
    "properties": {
        "source": {"type": "GenericMirror", "typeProperties": {}},
        "target": {"type": "MountedRelationalDatabase", "typeProperties": {"format": "Delta"}},
    }
}


def definition_of(body: Mapping[str, Any]) -> bytes:
    """The content of `mirroring.json` in a request. Refused `InvalidRequest` without one, `CorruptedPayload` for parts
    that cannot be used, settings that are invalid included."""
    definition = body.get("definition")
    if not isinstance(definition, dict):
        raise invalid("The request has no definition.")
    parts = definition.get("parts")
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise _corrupted("definition.parts is no list of parts.")
    data: bytes | None = None
    for part in parts:
        if not isinstance(part.get("path"), str) or part.get("payloadType") != "InlineBase64":
            raise _corrupted("Each part needs a path, and payloadType InlineBase64.")
        decoded = _decoded(part.get("payload"))
        if part["path"] == DEFINITION:
            if data is not None:
                raise _corrupted(f"There are two parts {DEFINITION}.")
            data = decoded
    if data is None:
        raise _corrupted(f"There is no part {DEFINITION}.")
    if len(data) > MOST_BYTES:
        raise _corrupted(f"{DEFINITION} has more than {MOST_BYTES} bytes.")
    try:
        allowed(Settings().with_definition(parse_definition(data)))
    except LakemirrorError as error:
        raise _corrupted(f"{error.message}.") from error
    return data


def default_schema(definition: bytes | None) -> str:
    """The default schema of a definition; empty where it has none, or cannot be read."""
    try:
        return Settings().with_definition(parse_definition(definition or b"{}")).default_schema
    except LakemirrorError:
        return ""


def parts_of(database: DatabaseEntry, definition: bytes | None) -> dict[str, Any]:
    """The answer of getDefinition."""
    platform = {
        "$schema": _SCHEMA,
        "metadata": {
            "type": "MirroredDatabase",
            "displayName": database.display_name,
            **({"description": database.description} if database.description else {}),
        },
        "config": {"version": "2.0", "logicalId": "00000000-0000-0000-0000-000000000000"},
    }
    data = json.dumps(_OPEN_MIRRORING, indent=2).encode() if definition is None else definition
    return {
        "definition": {"parts": [_part(DEFINITION, data), _part(PLATFORM, json.dumps(platform, indent=2).encode())]}
    }


def _part(path: str, data: bytes) -> dict[str, str]:
    return {"path": path, "payload": base64.b64encode(data).decode(), "payloadType": "InlineBase64"}


def _decoded(payload: Any) -> bytes:
    try:
        return base64.b64decode("".join(payload.split()), validate=True)
    except (AttributeError, ValueError) as error:
        raise _corrupted("A part's payload is no Base64.") from error


def _corrupted(message: str) -> Refused:
    return Refused(400, "CorruptedPayload", message)


__all__ = ["PLATFORM", "default_schema", "definition_of", "parts_of"]
