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
        shown, following = self.cut(items, place, query.get("continuationtoken", ""), scope)
        if not following:
            return shown, {}
        return shown, {
            "continuationToken": following,
            "continuationUri": f"{address}?continuationToken={quote(following)}",
        }

    def cut(
        self, items: Sequence[Item], place: Callable[[Item], Sequence[str]], token: str, scope: str,
        most: int | None = None,
    ) -> tuple[Sequence[Item], str]:  # fmt: skip
        """The page after that of `token`, and the token of the next page; empty if there is none.

        `scope`: the list that the token is for. `most`: of items; never more than the size of a page.
        """
        after = self._read(token, scope) if token else None
        rest = [item for item in items if after is None or list(place(item)) > after]
        size = self._size if most is None else min(most, self._size)
        shown = rest[:size]
        if len(rest) <= size:
            return shown, ""
        last = list(place(shown[-1])) if shown else after or []
        return shown, self._write(last, scope)

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
