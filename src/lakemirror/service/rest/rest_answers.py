"""Answers and refusals of the REST interface."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from lakemirror.service.interface import Refusal

_RETRIABLE = (408, 429, 503)


class Refused(Refusal):
    """A call that is answered with an error. `code` is the vendor's name for it."""


def answer(content: Any = None, status: int = 200) -> web.Response:
    """JSON, or an empty body where there is no content."""
    if content is None:
        return web.Response(status=status)
    return web.Response(status=status, body=json.dumps(content).encode(), content_type="application/json")


def refusal(
    status: int, code: str, message: str, request_id: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    """The error body of the REST interface."""
    content = {
        "errorCode": code, "message": message, "requestId": request_id, "isRetriable": status in _RETRIABLE,
    }  # fmt: skip
    return web.Response(
        status=status, body=json.dumps(content).encode(), content_type="application/json",
        headers={"x-ms-public-api-error-code": code, **(headers or {})},
    )  # fmt: skip


def invalid(message: str) -> Refused:
    return Refused(400, "InvalidRequest", message)


__all__ = ["Refused", "answer", "invalid", "refusal"]
