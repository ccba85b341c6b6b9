"""Continuation tokens: where a list goes on, signed so that no other token is taken."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from lakemirror.service.rest.rest_answers import invalid

Item = TypeVar("Item")


class Paging:
    """Cuts lists into pages. `key`: the secret that tokens are signed with."""

    def __init__(self, key: bytes, page_size: int) -> None:
        self._key = key
        self._size = page_size

    def page(
        self, items: Sequence[Item], place: Callable[[Item], Sequence[str]], query: Mapping[str, str], address: str
    ) -> tuple[Sequence[Item], dict[str, str]]:
        """The page that the query asks for, and `continuationToken` and `continuationUri` where there is more.

        `items` are in the order of `place`, which tells them apart. `query`: names in lower case. Refused
        `InvalidRequest` for a foreign token.
        """
        scope = address.partition("://")[2].partition("/")[2]
        token = query.get("continuationtoken", "")
        after = self._read(token, scope) if token else None
        rest = [item for item in items if after is None or list(place(item)) > after]
        shown = rest[: self._size]
        if len(rest) <= self._size:
            return shown, {}
        following = self._write(list(place(shown[-1])), scope)
        return shown, {
            "continuationToken": following,
            "continuationUri": f"{address}?continuationToken={quote(following)}",
        }

    def _write(self, after: list[str], scope: str) -> str:
        data = json.dumps(after).encode()
        return base64.urlsafe_b64encode(self._sign(data, scope) + data).decode()

    def _read(self, token: str, scope: str) -> list[str]:
        try:
            raw = base64.urlsafe_b64decode(token.encode())
            signed = hmac.compare_digest(raw[:16], self._sign(raw[16:], scope))
            found: Any = json.loads(raw[16:]) if signed else None
        except ValueError:
            found = None
        if found is None:
            raise invalid("The continuation token is not one of this list.")
        return list(found)

    def _sign(self, data: bytes, scope: str) -> bytes:
        return hmac.digest(self._key, scope.encode() + b"\0" + data, "sha256")[:16]


__all__ = ["Paging"]
