"""Shared Key: a request signed with an account key (the vendor's scheme for Blob and Data Lake storage)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime

from lakemirror.service.raw_query import query_pairs, raw_path_of
from lakemirror.service.refused import Refused

SKEW = 15 * 60  # seconds that a request's date may be away from now
_SIGNED = (
    "content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
    "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range",
)  # fmt: skip


def string_to_sign(method: str, target: str, headers: Mapping[str, str], account: str) -> str:
    """What the client signs. `headers` by lower-case name; `target` as it was sent, account segment included."""
    values = {name: headers.get(name, "") for name in _SIGNED}
    if values["content-length"] == "0":
        values["content-length"] = ""
    if "x-ms-date" in headers:
        values["date"] = ""
    own = sorted((name, " ".join(value.split())) for name, value in headers.items() if name.startswith("x-ms-"))
    return "\n".join([
        method, *values.values(), *(f"{name}:{value}" for name, value in own), _resource(target, account),
    ])  # fmt: skip


def signature(account_key: str, text: str) -> str:
    """HMAC-SHA256 of the text by the account key, Base64."""
    return base64.b64encode(hmac.digest(base64.b64decode(account_key), text.encode(), hashlib.sha256)).decode()


def is_signed(
    given: str, account_key: str, method: str, target: str, headers: Iterable[tuple[str, str]], account: str, now: float
) -> bool:
    """True where the signature fits the request and its date is within 15 minutes of `now`."""
    lowered: dict[str, str] = {}
    for name, value in headers:
        lowered[name.lower()] = f"{lowered[name.lower()]},{value}" if name.lower() in lowered else value
    try:
        date = parsedate_to_datetime(lowered.get("x-ms-date") or lowered.get("date", "")).timestamp()
        wanted = signature(account_key, string_to_sign(method, target, lowered, account))
    except (Refused, ValueError, TypeError, OverflowError):
        return False
    return abs(now - date) <= SKEW and hmac.compare_digest(wanted.encode(), given.encode("utf-8", "replace"))


def _resource(target: str, account: str) -> str:
    values: dict[str, list[str]] = {}
    for name, value in query_pairs(target):
        values.setdefault(name.lower(), []).append(value)
    lines = [f"/{account}{raw_path_of(target)}"]
    return "\n".join([*lines, *(f"{name}:{','.join(sorted(values[name]))}" for name in sorted(values))])
