"""Messages without any part of a password that an address holds: a driver may quote what it cannot read of it."""

from __future__ import annotations

import re
from urllib.parse import unquote

SHOWN = "***"

_NAMED = re.compile(r"(?:pass\w*|pwd|secret\w*|token)\s*=\s*(.*)", re.IGNORECASE | re.DOTALL)
_DELIMITERS = re.compile(r"[/?#@:%&=;,\[\]\s'\"]+")


def without_passwords(text: str, address: str) -> str:
    """The text, with every part of the address's password as `***`.

    The password may have characters that should have been percent-encoded. So it is all that may be meant: between the
    first colon and the last `@`, or from `password=` on.
    """
    for part in sorted(_parts(address), key=len, reverse=True):
        before = r"(?<!\w)" if part[0].isalnum() else ""
        behind = r"(?!\w)" if part[-1].isalnum() else ""
        text = re.sub(before + re.escape(part) + behind, SHOWN, text)
    return text


def _parts(address: str) -> set[str]:
    found = {match[1] for match in [_NAMED.search(address)] if match}
    user, at, _ = address.partition("://")[2].rpartition("@")
    found |= {user.partition(":")[2]} if at else set()
    found |= {address.partition(":")[2].rpartition("@")[0]} if "://" not in address else set()
    found |= {unquote(each) for each in found}
    found |= {piece for each in found for piece in _DELIMITERS.split(each)}
    return found - {"", SHOWN}
