"""A database's definition as the REST interface carries it: parts with a path and a Base64 payload."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.mirror.table_rules import allowed
from lakemirror.service.interface import DatabaseEntry
from lakemirror.service.refused import Refused
from lakemirror.service.rest.rest_answers import invalid
from lakemirror.settings.settings import (
    DATABASE,
    DEFINITION,
    MOST_BYTES,
    OWNERS,
    Settings,
    definition_values,
    named_in_definition,
    parse_definition,
    setting_named,
)

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
    that cannot be used."""
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
    return data


def stored_definition(data: bytes, before: bytes | None, bounds: Mapping[str, float]) -> bytes:
    """What `mirroring.json` holds once this definition is taken; `before`: what it holds now, None for a new database.

    Section 4: a definition sets what its own tables mean. What the operator wrote into the file stays as it is, whether
    the definition repeats or omits it. `bounds`: the longest retentions.
    Refused `InvalidDefinition` for another value of a setting of the operator's, and for a longer retention;
    `CorruptedPayload` for settings that cannot be used.
    """
    definition, held = _valid(data), _parsed(before)
    _check_bounds(definition, held, bounds)
    own, of_operator = definition.get("lakemirror") or {}, _of_operator(held)
    if not isinstance(own, dict):
        raise _foreign(f"lakemirror in {DEFINITION} is not an object.")
    for key, value in _of_operator(definition).items():
        if key not in of_operator or of_operator[key] != value:
            raise _foreign(f"{key} in {DEFINITION} is the operator's setting: a definition cannot set it.")
    try:
        if json.dumps({**own, **of_operator}, sort_keys=True) == json.dumps(own, sort_keys=True):
            return data
        merged = json.dumps({**definition, "lakemirror": {**own, **of_operator}}, indent=2).encode()
    except RecursionError as error:
        raise _corrupted(f"{DEFINITION} is nested too deeply.") from error
    if len(merged) > MOST_BYTES:
        raise _corrupted(f"{DEFINITION} has more than {MOST_BYTES} bytes.")
    return merged


def default_schema(definition: bytes | None) -> str:
    """The default schema of a definition; empty where it has none, or cannot be read."""
    try:
        return str(definition_values(_parsed(definition), (DATABASE,)).get("default_schema", ""))
    except LakemirrorError:
        return ""


def _of_operator(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The keys under `lakemirror` that name settings which a database's definition does not own, with their values."""
    own = definition.get("lakemirror")
    keys = own.items() if isinstance(own, dict) else ()
    return {key: value for key, value in keys if OWNERS.get(setting_named(key), DATABASE) != DATABASE}


def _check_bounds(definition: Mapping[str, Any], held: Mapping[str, Any], bounds: Mapping[str, float]) -> None:
    values, before = definition_values(definition, (DATABASE,)), named_in_definition(held)
    for name, most in bounds.items():
        if values.get(name, 0) > most and values[name] != before.get(name):
            raise _foreign(f"{name} in {DEFINITION}: the operator keeps at most {most:g} days.")


def _valid(data: bytes) -> Mapping[str, Any]:
    """The contents of a definition whose settings of its own can be used."""
    try:
        definition = parse_definition(data)
        allowed(Settings(**definition_values(definition, (DATABASE,))))
    except LakemirrorError as error:
        raise _corrupted(f"{error.message}.") from error
    return definition


def _parsed(definition: bytes | None) -> Mapping[str, Any]:
    """The contents of a definition; empty where it cannot be read: then nothing in it is in force."""
    try:
        return parse_definition(definition or b"{}")
    except LakemirrorError:
        return {}


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


def _foreign(message: str) -> Refused:
    return Refused(400, "InvalidDefinition", message)


def _corrupted(message: str) -> Refused:
    return Refused(400, "CorruptedPayload", message)
