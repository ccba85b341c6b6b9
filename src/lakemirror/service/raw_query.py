"""A request target, read once: its path, and the parameters of its query. The only parser of queries in the service.

    target ─▶ raw path, raw query ─▶ pairs as they were sent (signatures) ─▶ one value for each name (everything else)

`+` is a plus sign. Names are without case: who authorises a request and who acts on it see the same parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from lakemirror.service.refused import Refused

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


def split_target(target: str) -> tuple[str, str]:
    """The raw path and the raw query of a request target, which may be a complete URL."""
    match = _ABSOLUTE.match(target)
    path, _, query = (target[match.end() :] if match else target).partition("?")
    return path, query.partition("#")[0]


def raw_path_of(target: str) -> str:
    """The path of a request target, still encoded."""
    return split_target(target)[0] or "/"


def query_pairs(target: str) -> list[tuple[str, str]]:
    """Names and values of a request target's query, decoded once, in the order they were sent. Refused."""
    split = (item.partition("=") for item in split_target(target)[1].split("&") if item)
    return [(decoded(name), decoded(value)) for name, _, value in split]


def query_of(target: str) -> Mapping[str, str]:
    """The parameters of a request target, names in lower case. Refused, also for a name that comes twice."""
    found: dict[str, str] = {}
    for name, value in query_pairs(target):
        if name.lower() in found:
            raise Refused(400, "InvalidQueryParameterValue", f"The query parameter {name[:64]!r} comes twice.")
        found[name.lower()] = value
    return found


def decoded(raw: str) -> str:
    """A percent-encoded text decoded once. Refused where that is no UTF-8."""
    try:
        return unquote_to_bytes(raw.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeError:
        raise Refused(400, "InvalidUri", "The address is not UTF-8.") from None
