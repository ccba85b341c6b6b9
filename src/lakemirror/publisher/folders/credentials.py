"""Tokens for a service: from a principal's secret, or from whatever gives tokens (`azure.identity` and the like)."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote, urlencode

from lakemirror.errors import LakemirrorError

VARIABLE = "LAKEMIRROR_CREDENTIAL"  # names the JSON file that `lakemirror access ROOT add` printed
SCOPE = "https://storage.azure.com/.default"
_EARLY = 120.0  # seconds before its end at which a token is asked for again


@runtime_checkable
class TokenCredential(Protocol):
    """What `azure.identity` gives: `get_token(scope)` with `token` and `expires_on` in Unix seconds."""

    def get_token(self, *scopes: str, **kwargs: Any) -> Any: ...


Credential = str | os.PathLike[str] | Mapping[str, str] | TokenCredential
Post = Callable[[str, str, bytes], tuple[int, bytes]]  # origin, path, form: the status and the body of the answer


class Tokens:
    """Tokens of one credential, kept until shortly before their end. Safe for threads."""

    def __init__(self, credential: Credential | None, origin: str, post: Post) -> None:
        """`credential`: a principal's JSON file or its content (`client_id`, `client_secret`, optionally `tenant_id`,
        `authority`), or a TokenCredential; None: the file that LAKEMIRROR_CREDENTIAL names. `origin`: scheme and host
        of the service, which is the authority unless another is named. LakemirrorError `credential-invalid`."""
        self._lock = threading.Lock()
        self._token, self._until = "", 0.0
        self._give: Callable[[], tuple[str, float]]
        if isinstance(credential, TokenCredential):
            self._give = lambda: _given(credential)
        else:
            principal = _principal(os.environ.get(VARIABLE) if credential is None else credential)
            self._give = lambda: _asked_for(principal, origin, post)

    def token(self) -> str:
        """LakemirrorError `credential-invalid`, `storage-unavailable`."""
        with self._lock:
            if time.time() > self._until - _EARLY:
                self._token, self._until = self._give()
            return self._token

    def refused(self, token: str) -> None:
        """Call when the service refused this token: the next one is a new one."""
        with self._lock:
            if token == self._token:
                self._until = 0.0


def _given(credential: TokenCredential) -> tuple[str, float]:
    found = credential.get_token(SCOPE)
    return str(found.token), float(found.expires_on)


def _principal(credential: str | os.PathLike[str] | Mapping[str, str] | None) -> Mapping[str, str]:
    if credential is None:
        raise LakemirrorError("credential-invalid", f"an address needs a credential, and {VARIABLE} is not set")
    found: Any = credential
    if not isinstance(credential, Mapping):
        try:
            found = json.loads(Path(credential).read_bytes())
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
            raise LakemirrorError(
                "credential-invalid", f"the credential file {credential} cannot be read: {reason}"
            ) from error
    names = ("client_id", "client_secret")
    if not isinstance(found, Mapping) or not all(isinstance(found.get(name), str) and found[name] for name in names):
        raise LakemirrorError("credential-invalid", "the credential has no client_id and client_secret")
    return found


def _asked_for(principal: Mapping[str, str], origin: str, post: Post) -> tuple[str, float]:
    form = {
        "grant_type": "client_credentials", "client_id": principal["client_id"],
        "client_secret": principal["client_secret"], "scope": SCOPE,
    }  # fmt: skip
    tenant = quote(principal.get("tenant_id") or "adfs", safe="")
    authority = (principal.get("authority") or origin).rstrip("/")
    status, body = post(authority, f"/{tenant}/oauth2/v2.0/token", urlencode(form).encode())
    try:
        answer = json.loads(body)
        if status == 200:
            return str(answer["access_token"]), time.time() + float(answer["expires_in"])
        reason = str(answer["error"])
    except (ValueError, KeyError, TypeError):
        reason = f"status {status}"
    raise LakemirrorError("credential-invalid", f"{authority} gives no token: {reason}")
