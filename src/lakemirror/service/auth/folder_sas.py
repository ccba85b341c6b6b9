"""SAS for one folder: a query string that opens one folder for reading and listing, for an hour.

It has the form of the vendor's user-delegation SAS with `sr=d`. Its key is made of a secret of the service and the
account key of the principal: only the service makes one, and it ends when the principal gets a new key or is removed.
"""

from __future__ import annotations

import base64
import hmac
import re
import time
from collections.abc import Iterable, Mapping
from urllib.parse import urlencode

from lakemirror.service.auth.account_sas import moment
from lakemirror.service.auth.principals import Principal
from lakemirror.service.auth.shared_key import signature

LIFETIME = 3600  # seconds
LETTERS = frozenset("rl")
_SKEW = 300  # seconds by which a client's clock may be late
_VERSION = "2021-08-06"
_KEY = ("skoid", "sktid", "skt", "ske", "sks", "skv")
_AFTER = (
    "saoid", "suoid", "scid", "sip", "spr", "sv", "sr", "snapshot", "ses", "rscc", "rscd", "rsce", "rscl", "rsct",
)  # fmt: skip
_DEPTH = re.compile("[1-9][0-9]{0,3}")


class FolderSas:
    """Makes and verifies them. `secret`: a service with another secret takes none of them."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def issue(self, principal: Principal, tenant_id: str, folder: str, *, secure: bool) -> tuple[str, int]:
        """The SAS and when it expires, in seconds since the epoch.

        `folder`: `workspace/database/path`, with ids in lower case. `secure`: for HTTPS alone.
        """
        now = int(time.time())
        begin, end = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(each)) for each in (now - _SKEW, now + LIFETIME))
        query = {
            "sp": "rl", "st": begin, "se": end, "skoid": principal.client_id, "sktid": tenant_id, "skt": begin,
            "ske": end, "sks": "b", "skv": _VERSION, "spr": "https" if secure else "https,http", "sv": _VERSION,
            "sr": "d", "sdd": str(folder.count("/")),
        }  # fmt: skip
        return urlencode({**query, "sig": self._sign(query, principal, folder)}), now + LIFETIME

    def folder_of(self, query: Mapping[str, str], principal: Principal, names: Iterable[str], *, secure: bool) -> str:
        """The folder that the SAS in a query opens; empty if it is not valid, now, for any of these names.

        `query`: names in lower case. `names`: of what the request may be about, as `folder` of `issue`.
        """
        depth, now = query.get("sdd", ""), time.time()
        starts, ends = moment(query.get("st", "")), moment(query.get("se", ""))
        if starts is None or ends is None or not starts <= now < ends or not _DEPTH.fullmatch(depth):
            return ""
        if any("\n" in query.get(name, "") for name in ("sp", "st", "se", *_KEY, *_AFTER)):
            return ""  # two fields in one
        if query.get("spr") == "https" and not secure:
            return ""
        given = query.get("sig", "").encode()
        for name in names:
            folder = "/".join(name.split("/")[: int(depth) + 1])
            if hmac.compare_digest(self._sign(query, principal, folder).encode(), given):
                return folder if LETTERS.issuperset(query.get("sp", "")) else ""
        return ""

    def _sign(self, query: Mapping[str, str], principal: Principal, folder: str) -> str:
        key = "\n".join([principal.account_key, *(query.get(name, "") for name in _KEY)])
        derived = base64.b64encode(hmac.digest(self._secret, key.encode(), "sha256")).decode()
        fields = [query.get(name, "") for name in ("sp", "st", "se")]
        fields += [f"/blob/onelake/{folder}", *(query.get(name, "") for name in (*_KEY, *_AFTER))]
        return signature(derived, "\n".join(fields))
