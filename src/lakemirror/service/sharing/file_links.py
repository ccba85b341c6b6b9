"""Links that open one file of a table, for one principal, for a time.

    /delta-sharing/files/<workspace>/<database>/<path of the file>?sp=r&se=<end>&by=<principal>&sig=<signature>

The signature covers all of it. A data file is written once, under a name that is never used again, so a link opens one
file of one version. `sp` has the name that it has in a SAS: Delta's kernel takes a URL for a signed one by that name.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from lakemirror.service.refused import Refused

PREFIX = "/delta-sharing/files/"
LIFETIME = 3600  # seconds
_SIGNATURE = 16  # bytes


@dataclass(frozen=True)
class LinkedFile:
    """What a link opens. `workspace`, `database`: ids. `path`: relative to the database's folder.

    `principal`: the name of whom the link was made for.
    """

    workspace: str
    database: str
    path: str
    principal: str


class FileLinks:
    """Makes and opens links. `key`: the secret that signs them; a service with another key opens none of them."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def maker(self, base_url: str, principal: str, database: Sequence[str], expiry: int) -> Callable[[str], str]:
        """The function from a file's path, relative to the database's folder, to its link.

        `database`: ids of its workspace and of itself. `expiry`: seconds since the epoch.
        """
        key = self._key_for(str(expiry), principal, *database)
        begin = f"{base_url}{PREFIX}{'/'.join(database)}/"
        end = f"?sp=r&se={expiry}&by={principal}&sig="

        def link(path: str) -> str:
            return f"{begin}{_quoted(path)}{end}{_signature_of(key, path)}"

        return link

    def open(self, below: str, query: Mapping[str, str]) -> LinkedFile:
        """What a link opens. `below`: its decoded path after the prefix. Refused 403 if it is not ours, or is over."""
        parts = below.split("/", 2)
        if len(parts) < 3 or not {"se", "by", "sig"} <= query.keys():
            raise _not_ours()
        (workspace, database, path), principal, expiry = parts, query["by"], query["se"]
        signature = _signature_of(self._key_for(expiry, principal, workspace, database), path)
        is_number = expiry.isascii() and expiry.isdigit()
        if not is_number or not hmac.compare_digest(query["sig"].encode(), signature.encode()):
            raise _not_ours()
        if time.time() >= int(expiry):
            raise Refused(403, "LinkExpired", "The time of this link is over. Query the table again for a new one.")
        return LinkedFile(workspace, database, path, principal)

    def _key_for(self, *scope: str) -> bytes:
        """The key that signs the paths of one scope. No part has a line feed in a link that was made here."""
        text = "".join(f"{part}\n" for part in scope).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, key=self._key).digest()


@lru_cache(100_000)
def _quoted(path: str) -> str:
    return quote(path, safe="/=-_.~")


def _signature_of(key: bytes, path: str) -> str:
    """By BLAKE2b, which takes a key and a fifth of the time of HMAC: an answer has a link for each file."""
    return hashlib.blake2b(path.encode("utf-8", "surrogatepass"), key=key, digest_size=_SIGNATURE).hexdigest()


def _not_ours() -> Refused:
    return Refused(403, "LinkInvalid", "This link was not made by this service, or was changed.")
