"""Access tokens: JWT signed with RS256, good on both planes and across restarts."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lakemirror.errors import LakemirrorError
from lakemirror.service.auth.principals import Principal
from lakemirror.storage import Place
from lakemirror.storage.private_files import change_private

_ALGORITHM = "RS256"
SHARING = "delta-sharing"
_REQUIRED = ["exp", "iat", "nbf", "oid", "tid"]
_MOST_REMEMBERED = 1_000  # tokens, of some 1 KB


class TokenRefused(Exception):
    """`expired`: the token is ours and its time is over."""

    def __init__(self, message: str, *, expired: bool = False) -> None:
        super().__init__(message)
        self.expired = expired


@dataclass(frozen=True)
class Claims:
    """What a valid token says. `client_id`: of the principal. `is_for_sharing`: it opens the sharing plane alone."""

    client_id: str
    is_for_sharing: bool
    key: str

    def fits(self, principal: Principal) -> bool:
        """False for a token for sharing if the principal has got a new key since."""
        return not self.is_for_sharing or self.key == _fingerprint(principal)


class Tokens:
    """Issues and verifies the tokens of one root folder."""

    def __init__(self, folder: Place, lifetime: int = 3600) -> None:
        """`folder`: where the signing key is, made once. `lifetime`: of a token, in seconds."""
        self.lifetime = lifetime
        self._key = _signing_key(folder / "signing.pem")
        self._public = self._key.public_key()
        self.key_id = _key_id(self._public)
        self._verified: dict[str, dict[str, Any]] = {}

    def issue(self, principal: Principal, tenant_id: str, audience: str, issuer: str) -> tuple[str, int]:
        """The token and when it expires, in seconds since the epoch."""
        return self._signed(principal, tenant_id, self.lifetime, {"aud": audience, "iss": issuer})

    def issue_for_sharing(self, principal: Principal, tenant_id: str, lifetime: int) -> tuple[str, int]:
        """A token that opens the sharing plane alone, until the principal gets a new key; and when it expires."""
        claims = {"aud": SHARING, "iss": "lakemirror", "scp": SHARING, "key": _fingerprint(principal)}
        return self._signed(principal, tenant_id, lifetime, claims)

    def _signed(self, principal: Principal, tenant_id: str, lifetime: int, more: Mapping[str, str]) -> tuple[str, int]:
        now = int(time.time())
        claims = {
            **more, "tid": tenant_id, "appid": principal.client_id,
            "azp": principal.client_id, "oid": principal.client_id, "sub": principal.client_id,
            "iat": now, "nbf": now, "exp": now + lifetime, "uti": uuid.uuid4().hex, "ver": "2.0",
        }  # fmt: skip
        return jwt.encode(claims, self._key, _ALGORITHM, headers={"kid": self.key_id}), now + lifetime

    def verify(self, token: str, tenant_id: str) -> Claims:
        """What the token says. TokenRefused for any token that is not ours, or expired."""
        claims = self._verified.get(token) or self._decoded(token)
        if claims["exp"] <= time.time():
            raise TokenRefused("the token has expired", expired=True)
        if claims["tid"] != tenant_id or not isinstance(claims["oid"], str):
            raise TokenRefused("the token was issued for another tenant")
        return Claims(claims["oid"], claims.get("scp") == SHARING, str(claims.get("key", "")))

    def _decoded(self, token: str) -> dict[str, Any]:
        """The claims of a token, remembered: its signature takes a third of the CPU of a small answer."""
        try:
            claims: dict[str, Any] = jwt.decode(
                token, self._public, algorithms=[_ALGORITHM],
                options={"require": _REQUIRED, "verify_aud": False, "verify_iss": False},
            )  # fmt: skip
        except jwt.ExpiredSignatureError as error:
            raise TokenRefused("the token has expired", expired=True) from error
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise TokenRefused("the token was not issued here, or was changed") from error
        if len(self._verified) >= _MOST_REMEMBERED:
            self._verified.clear()
        self._verified[token] = claims
        return claims

    def key_set(self) -> dict[str, Any]:
        """The JSON Web Key Set with the public key."""
        return {"keys": [{**_jwk(self._public), "use": "sig", "alg": _ALGORITHM, "kid": self.key_id}]}

    def derived_key(self, purpose: str) -> bytes:
        """32 secret bytes for another purpose, the same across restarts."""
        numbers = self._key.private_numbers()
        return hashlib.sha256(f"lakemirror {purpose} {numbers.d}".encode()).digest()


def _fingerprint(principal: Principal) -> str:
    return hashlib.sha256(f"lakemirror sharing {principal.account_key}".encode()).hexdigest()[:32]


def _signing_key(path: Place) -> rsa.RSAPrivateKey:
    def made(before: bytes | None) -> bytes | None:
        if before is not None:
            return None
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        key = rsa.generate_private_key(65537, 2048)
        return key.private_bytes(encoding, form, serialization.NoEncryption())

    try:
        key = serialization.load_pem_private_key(change_private(path, made), None)
    except ValueError as error:
        raise LakemirrorError("service-option-invalid", f"{path} is no private key: {error}") from error
    if not isinstance(key, rsa.RSAPrivateKey):
        raise LakemirrorError("service-option-invalid", f"{path} is no RSA key")
    return key


def _jwk(key: rsa.RSAPublicKey) -> dict[str, str]:
    numbers = key.public_numbers()
    return {"e": _number(numbers.e), "kty": "RSA", "n": _number(numbers.n)}


def _key_id(key: rsa.RSAPublicKey) -> str:
    """The key's thumbprint (RFC 7638)."""
    text = json.dumps(_jwk(key), separators=(",", ":"), sort_keys=True)
    return _base64url(hashlib.sha256(text.encode()).digest())


def _number(value: int) -> str:
    return _base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
