"""Who asks: tokens on both planes, keys and account SAS on storage, names and secrets on the page."""

from __future__ import annotations

import asyncio
import base64
import hmac
import os
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from lakemirror.service.auth import account_sas
from lakemirror.service.auth.failure_limit import FailureLimit
from lakemirror.service.auth.folder_sas import LETTERS, FolderSas
from lakemirror.service.auth.principals import Principal, Principals, fits
from lakemirror.service.auth.shared_key import is_signed
from lakemirror.service.auth.tokens import TokenRefused, Tokens
from lakemirror.service.interface import Caller
from lakemirror.service.refused import Refused
from lakemirror.service.request_address import Target
from lakemirror.service.request_notes import notes

if TYPE_CHECKING:
    from aiohttp import web

_REMEMBERED = 60.0  # seconds for which a name and secret that fit are not hashed again
_MOST_REMEMBERED = 1000


class PrincipalAuthenticator:
    """Authenticates against the principals of one root folder."""

    def __init__(
        self, principals: Principals, tokens: Tokens, base_url: Callable[[web.BaseRequest], str], failures: FailureLimit
    ) -> None:
        """`base_url`: scheme and host under which the client reaches the service."""
        self._failures = failures
        self._principals = principals
        self._tokens = tokens
        self._base_url = base_url
        self._folder_sas = FolderSas(tokens.derived_key("folders"))
        self._pepper = secrets.token_bytes(32)
        self._remembered: dict[bytes, float] = {}
        # threads of their own, and half of the processors: wrong secrets keep no other request waiting
        self._hashing = ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2), "secrets")

    def is_principal(self, name: str) -> bool:
        return self._principals.by_name(name) is not None

    async def authenticate(self, request: web.BaseRequest, target: Target | None = None) -> Caller:
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            caller = self._by_token(request, value.strip(), target is not None)
        elif target is None:
            raise _needs_token()
        elif scheme == "SharedKey":
            caller = self._by_key(request, value.strip())
        elif scheme:
            raise _does_not_fit(f"{scheme[:20]} is not supported: use a token, a Shared Key or an account SAS.")
        else:
            caller = self._by_sas(request, target)
        notes().caller = caller
        return caller

    async def for_sharing(self, request: web.BaseRequest) -> Caller:
        """Who asks for shared tables, by any token, also that of a profile file. Refused with status 401."""
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise _needs_token()
        caller = self._by_token(request, value.strip(), False, sharing=True)
        notes().caller = caller
        return caller

    def sas_for_folder(self, caller: Caller, folder: str, *, secure: bool) -> tuple[str, int]:
        """A SAS of this caller for one folder, and when it expires. `folder`, `secure`: as for `FolderSas.issue`."""
        found = self._principals.by_name(caller.name)
        if found is None:
            raise Refused(401, "Unauthorized", "This principal was removed.")
        return self._folder_sas.issue(found, self._principals.tenant_id, folder, secure=secure)

    async def by_secret(self, request: web.BaseRequest) -> Caller:
        """Who asks by Basic NAME:secret, or by a token. Refused with status 401, or 429 after many failures."""
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            caller = self._by_token(request, value.strip(), False)
        else:
            pair = basic_credentials(value) if scheme.lower() == "basic" else None
            found = None if pair is None else await self.principal(*pair, request.remote or "")
            if found is None:
                header = {"WWW-Authenticate": 'Basic realm="lakemirror", charset="UTF-8"'}
                raise Refused(401, "Unauthorized", "Sign in with the name and the secret of a principal.", header)
            caller = found.caller()
        notes().caller = caller
        return caller

    async def principal(self, client_id: str, secret: str, remote: str) -> Principal | None:
        """The principal with this client id, or name, and secret. Takes as long for one that does not exist.

        `remote`: the client's address. Refused with status 429 where too many secrets from there were wrong.
        """
        found = self._principals.by_client_id(client_id)
        stored = None if found is None else found.secret
        salt = "" if stored is None else str(stored["salt"])
        key = hmac.digest(self._pepper, f"{client_id}\0{salt}\0{secret}".encode("utf-8", "surrogatepass"), "sha256")
        if self._remembered.get(key, 0.0) > time.monotonic():
            return found
        if self._failures.is_reached(remote):
            raise Refused(429, "TooManyRequests", "Too many failures from this address.", {"Retry-After": "1"})
        if not await asyncio.get_running_loop().run_in_executor(self._hashing, fits, secret, stored):
            self._failures.note(remote)
            return None
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = time.monotonic() + _REMEMBERED
        return found

    def _by_token(self, request: web.BaseRequest, token: str, storage: bool, *, sharing: bool = False) -> Caller:
        try:
            claims = self._tokens.verify(token, self._principals.tenant_id)
            found = self._principals.by_client_id(claims.client_id)
            if found is None:
                raise TokenRefused("the principal of this token was removed")
            if claims.is_for_sharing and not sharing:
                raise TokenRefused("the token of a profile file is for Delta Sharing alone")
            if not claims.fits(found):
                raise TokenRefused("the principal has got a new key since this token was made")
        except TokenRefused as refused:
            if storage:
                raise Refused(
                    401, "InvalidAuthenticationInfo", f"Access refused: {refused}.", self._challenge(request)
                ) from refused
            code = "TokenExpired" if refused.expired else "Unauthorized"
            raise Refused(
                401, code, f"Access refused: {refused}.", {"WWW-Authenticate": 'Bearer error="invalid_token"'}
            ) from refused
        return found.caller()

    def _by_key(self, request: web.BaseRequest, value: str) -> Caller:
        name, _, given = value.partition(":")
        found = self._principals.by_name(name)
        key = base64.b64encode(self._pepper).decode() if found is None else found.account_key
        fitting = is_signed(
            given, key, request.method, request.raw_path, request.headers.items(), name, time.time()
        )  # fmt: skip
        if found is None or not fitting:
            raise _does_not_fit("The signature does not fit the request, or its date is not now.")
        return found.caller()

    def _by_sas(self, request: web.BaseRequest, target: Target) -> Caller:
        if target.refused is not None:
            raise target.refused
        query = target.query
        if "sig" not in query:
            raise Refused(
                401, "NoAuthenticationInformation", "The request has no Authorization header.", self._challenge(request)
            )
        if "skoid" in query:
            return self._by_folder_sas(request, target)
        account = _account_in_host(request.host)
        found = self._principals.by_name(account) or self._principals.by_name(target.account)
        if found is None or "srt" not in query:
            raise _does_not_fit("Only an account SAS is accepted, in an address that names its account.")
        grant = account_sas.grant_of(
            query, found.name, found.account_key, secure=request.secure, remote=request.remote or "", now=time.time()
        )
        if grant is None:
            raise _does_not_fit("The SAS is not valid for this request.")
        return replace(found.caller(), sas_permissions=grant.permissions, sas_kinds=grant.kinds)

    def _by_folder_sas(self, request: web.BaseRequest, target: Target) -> Caller:
        query, address = target.query, target.address
        found = self._principals.by_client_id(query["skoid"])
        about = (
            address,
            address.below_directory(query.get("directory", "")),
            address.below_prefix(query.get("prefix", "")),
        )
        names = [each.full_name for each in about]  # the operation decides which it is: here each may be
        folder = found and self._folder_sas.folder_of(query, found, names, secure=request.secure)
        if not found or not folder:
            raise _does_not_fit("The SAS is not valid for this request.")
        return replace(
            found.caller(), sas_permissions=LETTERS, sas_kinds=frozenset("co"), sas_folder=folder
        )  # fmt: skip

    def _challenge(self, request: web.BaseRequest) -> dict[str, str]:
        address = f"{self._base_url(request)}/{self._principals.tenant_id}/oauth2/authorize"
        return {
            "WWW-Authenticate": f"Bearer authorization_uri={address} resource_id=https://storage.azure.com"
        }  # fmt: skip


def basic_credentials(value: str) -> tuple[str, str]:
    """Name and secret of a Basic header's value; two empty texts where it is none."""
    try:
        name, colon, secret = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    return (name, secret) if colon else ("", "")


def _account_in_host(host: str) -> str:
    label, _, rest = host.partition(".")
    return label.lower() if rest.startswith(("dfs.", "blob.")) else ""


def _needs_token() -> Refused:
    return Refused(
        401, "Unauthorized", "This call needs a token: Authorization: Bearer …", {"WWW-Authenticate": "Bearer"}
    )


def _does_not_fit(message: str) -> Refused:
    return Refused(403, "AuthenticationFailed", message)
