"""Schemas of a schema registry, by their numbers, over its REST interface. Each is asked for once.

GET /schemas/ids/{number} ─▶ Avro's schema as JSON
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from urllib.request import BaseHandler, HTTPErrorProcessor, HTTPSHandler, Request, build_opener

from lakemirror.errors import LakemirrorError

_PREFIX = "schema.registry."
USER, AUTHORITIES = f"{_PREFIX}basic.auth.user.info", f"{_PREFIX}ssl.ca.location"
_PATIENCE = 20.0  # seconds for an answer
_BUSY = (429, 500, 502, 503, 504)


class UnknownSchema(Exception):
    """The registry has no schema that can be used for this number; the message says why."""


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry. `input-invalid` for an address that is none, or one that holds a password.

    `user_info`: `USER:PASSWORD`, never shown. `authorities`: a file of certificates that TLS trusts; empty: the
    system's.
    """

    address: str
    user_info: str = field(default="", repr=False)
    authorities: str = ""
    _known: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        url = urlsplit(self.address)
        if url.scheme not in ("http", "https") or not url.hostname or "@" in url.netloc:
            raise LakemirrorError(
                "input-invalid",
                "the address of a schema registry is http://HOST:8081 or https://HOST",
                hint=f"A user and a password are a property in a file: --kafka-config FILE with {USER}=USER:PASSWORD.",
            )

    @classmethod
    def of_properties(cls, address: str, properties: Mapping[str, str]) -> tuple[SchemaRegistry | None, dict[str, str]]:
        """The registry, None without an address; and the properties that are not its own. `input-invalid`."""
        own = {name: value for name, value in properties.items() if name.startswith(_PREFIX)}
        if unknown := sorted(own.keys() - {USER, AUTHORITIES}):
            raise LakemirrorError(
                "input-invalid",
                f"{unknown[0]} is no property of a schema registry that is known",
                hint=f"Give {USER} or {AUTHORITIES}; its address is --registry URL.",
            )
        if own and not address:
            raise LakemirrorError(
                "input-invalid", f"{min(own)} needs the registry's address", hint="Give --registry URL."
            )
        others = {name: value for name, value in properties.items() if name not in own}
        return (cls(address, own.get(USER, ""), own.get(AUTHORITIES, "")) if address else None), others

    def schema(self, number: int) -> Any:
        """The schema of this number, from JSON. `capture-registry-unavailable`, `input-invalid`; `UnknownSchema`."""
        if number not in self._known:
            self._known[number] = self._asked(number)
        return self._known[number]

    def _asked(self, number: int) -> Any:
        status, body = self._get(f"/schemas/ids/{number}")
        if status in (401, 403):
            raise LakemirrorError(
                "input-invalid",
                f"the schema registry does not let this user read schemas: it answered {status}",
                hint=f"Give {USER}=USER:PASSWORD in a file: --kafka-config FILE.",
            )
        if status in _BUSY:
            raise self._unavailable(f"it answered {status}")
        try:
            said = json.loads(body)
            schema = said["schema"] if status == 200 else None
            if schema is None:
                raise UnknownSchema(f"the registry answered {status} for schema {number}")
            if said.get("schemaType", "AVRO") != "AVRO" or said.get("references"):
                raise UnknownSchema(f"schema {number} is no Avro, or refers to other subjects")
            return json.loads(schema)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UnknownSchema(f"the registry's answer {status} for schema {number} is no schema") from error

    def _get(self, path: str) -> tuple[int, bytes]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self.user_info:
            headers["Authorization"] = f"Basic {base64.b64encode(self.user_info.encode()).decode()}"
        handlers: list[BaseHandler] = [_Plain()]
        if self.address.startswith("https://"):
            handlers.append(HTTPSHandler(context=ssl.create_default_context(cafile=self.authorities or None)))
        try:
            request = Request(self.address.rstrip("/") + path, headers=headers)
            with build_opener(*handlers).open(request, timeout=_PATIENCE) as answer:
                return int(answer.status), answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(str(getattr(error, "reason", None) or error or type(error).__name__)) from None

    def _unavailable(self, why: str) -> LakemirrorError:
        return LakemirrorError("capture-registry-unavailable", f"the schema registry {self.address}: {why}")


class _Plain(HTTPErrorProcessor):
    """Answers as they are: no redirect is followed, so that credentials go to no other host."""

    def http_response(self, request: Request, response: Any) -> Any:
        return response

    https_response = http_response
