"""Account SAS: a query string that narrows what an account key allows, signed with that key."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache

from lakemirror.service.auth.shared_key import signature

_SERVICE_AND_MORE = frozenset("rldwcaxytmeopif")  # letters of `sp` that the vendor knows
_SIGNED = ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv", "ses")


@dataclass(frozen=True)
class Grant:
    """What an account SAS allows. `permissions`: the letters of `sp`. `kinds`: those of `srt`."""

    permissions: frozenset[str]
    kinds: frozenset[str]


def grant_of(
    query: Mapping[str, str], account: str, account_key: str, *, secure: bool, remote: str, now: float
) -> Grant | None:
    """What the SAS in a query allows; None where it is not valid for this client now.

    `query`: names in lower case. `remote`: the client's address.
    """
    if any("\n" in query.get(name, "") for name in _SIGNED):
        return None  # two fields in one: a line fewer at the end makes the signed text fit again
    signed = signature(account_key, _string_to_sign(query, account)).encode()
    if not hmac.compare_digest(signed, query.get("sig", "").encode()) or "b" not in query.get("ss", ""):
        return None
    if query.get("spr", "https,http") == "https" and not secure:
        return None
    starts, ends = moment(query.get("st", "")), moment(query.get("se", ""))
    if ends is None or now >= ends or (query.get("st") and (starts is None or now < starts)):
        return None
    if query.get("sip") and not _within(remote, query["sip"]):
        return None
    return Grant(frozenset(query.get("sp", "")) & _SERVICE_AND_MORE, frozenset(query.get("srt", "")))


def _string_to_sign(query: Mapping[str, str], account: str) -> str:
    names = _SIGNED if query.get("sv", "") >= "2020-12-06" else _SIGNED[:-1]
    return "\n".join([account, *(query.get(name, "") for name in names), ""])


@lru_cache(1000)
def moment(text: str) -> float | None:
    """Seconds since the epoch of a time in a SAS; None if it is no time."""
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
