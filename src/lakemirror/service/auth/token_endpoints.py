"""The authority over HTTP: token endpoint, discovery documents, keys (specification of the service, section 3)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

from aiohttp import web

from lakemirror.service.auth.authenticator import basic_credentials
from lakemirror.service.auth.failure_limit import FailureLimit
from lakemirror.service.auth.tokens import Tokens
from lakemirror.service.plane import Plane
from lakemirror.service.raw_query import query_of, raw_path_of
from lakemirror.service.refused import Refused
from lakemirror.service.request_body import read_body
from lakemirror.service.request_notes import notes
from lakemirror.service.workspace_names import is_guid

MOST_BYTES = 64 * 1024  # of a token request
TOKEN = "Token"  # the operation that issues one
ALIASES = frozenset({"adfs", "common", "organizations"})
_DISCOVERY = (".well-known/openid-configuration", "v2.0/.well-known/openid-configuration")


def is_authority(raw_path: str) -> bool:
    """True for a path of this plane."""
    first, _, rest = raw_path.strip("/").partition("/")
    if first == "common" and rest == "discovery/instance":
        return True
    return bool(first) and (rest in _DISCOVERY or rest == "discovery/v2.0/keys" or rest.startswith("oauth2/"))


@dataclass
class Authority(Plane):
    """Answers the requests of the authority plane."""

    tokens: Tokens
    failures: FailureLimit

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        tenant, _, rest = raw_path_of(request.raw_path).strip("/").partition("/")
        if rest in ("oauth2/token", "oauth2/v2.0/token"):
            notes().operation = TOKEN
            return await self._token(request, tenant, version_2="v2.0" in rest)
        notes().operation = "Discovery"
        if request.method not in ("GET", "HEAD"):
            return web.json_response(_error("invalid_request", "Use GET."), status=405, headers={"Allow": "GET"})
        if rest == "discovery/instance":
            return self._instance(request)
        if not self._is_ours(tenant):
            return web.json_response(_error("invalid_tenant", "This tenant is not served here."), status=400)
        if rest == "discovery/v2.0/keys":
            return web.json_response(self.tokens.key_set())
        if rest in _DISCOVERY:
            return web.json_response(self._configuration(self.base_url(request), tenant))
        return web.json_response(_error("invalid_request", "Only client credentials are supported."), status=404)

    def _is_ours(self, tenant: str) -> bool:
        return tenant.lower() in ALIASES or tenant.lower() == self.principals.tenant_id

    def _configuration(self, base: str, tenant: str) -> dict[str, Any]:
        return {
            "issuer": f"{base}/{tenant}/v2.0",
            "authorization_endpoint": f"{base}/{tenant}/oauth2/v2.0/authorize",
            "token_endpoint": f"{base}/{tenant}/oauth2/v2.0/token",
            "jwks_uri": f"{base}/{tenant}/discovery/v2.0/keys",
            "response_types_supported": ["token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "grant_types_supported": ["client_credentials"],
            "token_endpoint_auth_methods_supported": ["client_secret_post", "client_secret_basic"],
        }

    def _instance(self, request: web.BaseRequest) -> web.Response:
        base = self.base_url(request)
        host = base.partition("://")[2]
        try:
            asked = query_of(request.raw_path).get("authorization_endpoint", "")
        except Refused:
            asked = ""
        tenant = asked.partition("://")[2].partition("/")[2].partition("/")[0]
        tenant = tenant if is_guid(tenant) or tenant in ALIASES else self.principals.tenant_id
        alias = {"preferred_network": host, "preferred_cache": host, "aliases": [host]}
        return web.json_response({
            "tenant_discovery_endpoint": f"{base}/{tenant}/v2.0/.well-known/openid-configuration",
            "api-version": "1.1",
            "metadata": [alias],
        })  # fmt: skip

    async def _token(self, request: web.BaseRequest, tenant: str, *, version_2: bool) -> web.Response:
        if request.method != "POST":
            return web.json_response(_error("invalid_request", "Use POST."), status=405, headers={"Allow": "POST"})
        remote = request.remote or ""
        if self.failures.is_reached(remote):
            return _refused(
                429, "temporarily_unavailable", "Too many failures from this address.", {"Retry-After": "1"}
            )
        try:
            self.under_way.enter_unknown(remote)
        except Refused as busy:
            return _refused(busy.status, "temporarily_unavailable", busy.message, busy.headers)
        try:
            body = await read_body(request, self.limits, MOST_BYTES)
            fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100)
        except Refused as error:
            return _refused(error.status, "invalid_request", error.message, error.headers)
        except ValueError:
            return _refused(400, "invalid_request", "The body is no form.")
        form = dict(fields)
        if len(form) < len(fields):
            return _refused(400, "invalid_request", "A field of the form comes twice.")  # RFC 6749, section 3.2
        if not self._is_ours(tenant):
            return _refused(400, "invalid_request", "This tenant is not served here.", number=90002)
        if form.get("grant_type") != "client_credentials":
            return _refused(400, "unsupported_grant_type", "Only client_credentials is supported.", number=70003)
        audience = (form.get("scope") or "") if version_2 else (form.get("resource") or form.get("scope") or "")
        audience = audience.split(" ")[0].removesuffix("/.default")
        if not audience:
            wanted = "scope" if version_2 else "resource"
            return _refused(400, "invalid_request", f"The request has no {wanted}.", number=90014)
        client_id, secret = _credentials(request, form)
        found = await self.authenticator.principal(client_id, secret, remote)
        if found is None:
            notes().refused = "invalid_client"
            return _refused(401, "invalid_client", "The client or its secret is wrong.", number=7000215)
        notes().caller = found.caller()
        issuer = f"{self.base_url(request)}/{tenant}/v2.0"
        token, expires = self.tokens.issue(found, self.principals.tenant_id, audience, issuer)
        answer = {
            "token_type": "Bearer",
            "expires_in": self.tokens.lifetime,
            "ext_expires_in": self.tokens.lifetime,
            "expires_on": str(expires),
            "access_token": token,
        }
        if not version_2:
            answer["resource"] = audience
        return web.json_response(answer, headers={"Cache-Control": "no-store", "Pragma": "no-cache"})


def _credentials(request: web.BaseRequest, form: dict[str, str]) -> tuple[str, str]:
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        name, secret = basic_credentials(value)
        return unquote_plus(name), unquote_plus(secret)
    return form.get("client_id", ""), form.get("client_secret", "")


def _refused(
    status: int, error: str, message: str, headers: dict[str, str] | None = None, number: int = 900144
) -> web.Response:
    return web.json_response(
        _error(error, message, number), status=status, headers={"Cache-Control": "no-store", **(headers or {})}
    )


def _error(error: str, message: str, number: int = 900144) -> dict[str, Any]:
    return {
        "error": error,
        "error_description": f"AADSTS{number}: {message}",
        "error_codes": [number],
        "correlation_id": str(uuid.uuid4()),
    }
