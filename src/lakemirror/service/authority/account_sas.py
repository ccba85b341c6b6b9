"""Account SAS: a query string that narrows what an account key allows, signed with that key."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import lru_cache

from lakemirror.service.authority.shared_key import signature

_SERVICE_AND_MORE = frozenset("rldwcaxytmeopif")  # letters of `sp` that the vendor knows


def permissions(
    query: Mapping[str, str], account: str, account_key: str, *, level: str, secure: bool, remote: str, now: float
) -> frozenset[str] | None:
    """The letters of `sp`; None where the SAS does not allow this request.

    `level`: what the request addresses: `s` service, `c` container, `o` object. `remote`: the client's address.
    """
    if not hmac.compare_digest(signature(account_key, _string_to_sign(query, account)), query.get("sig", "")):
        return None
    if level not in query.get("srt", "") or "b" not in query.get("ss", ""):
        return None
    if query.get("spr", "https,http") == "https" and not secure:
        return None
    starts, ends = _moment(query.get("st", "")), _moment(query.get("se", ""))
    if ends is None or now >= ends or (query.get("st") and (starts is None or now < starts)):
        return None
    if query.get("sip") and not _within(remote, query["sip"]):
        return None
    return frozenset(query.get("sp", "")) & _SERVICE_AND_MORE


def level_of(segments: int, query: Mapping[str, str]) -> str:
    """What a request addresses. `segments`: of its path, the account not counted."""
    restype, resource = query.get("restype", ""), query.get("resource", "")
    if restype in ("service", "account") or resource == "account" or segments == 0:
        return "s"
    if restype == "container" or resource == "filesystem" or segments == 1:
        return "c"
    return "o"


def _string_to_sign(query: Mapping[str, str], account: str) -> str:
    names = ["sp", "ss", "srt", "st", "se", "sip", "spr", "sv"]
    if query.get("sv", "") >= "2020-12-06":
        names.append("ses")
    return "\n".join([account, *(query.get(name, "") for name in names), ""])


@lru_cache(1000)
def _moment(text: str) -> float | None:
    for form in ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d"):
        try:
            return datetime.strptime(text, form).replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            continue
    try:
        return datetime.strptime(text[:26].rstrip("Z"), "%Y-%m-%dT%H:%M:%S.%f").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def _within(remote: str, allowed: str) -> bool:
    first, _, last = allowed.partition("-")
    try:
        address = ipaddress.ip_address(remote)
        low, high = ipaddress.ip_address(first), ipaddress.ip_address(last or first)
    except ValueError:
        return False
    return address.version == low.version == high.version and int(low) <= int(address) <= int(high)


__all__ = ["level_of", "permissions"]
