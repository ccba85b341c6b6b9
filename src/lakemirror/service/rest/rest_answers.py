"""Answers and refusals of the REST interface."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from lakemirror.service.refused import Refused

_RETRIABLE = (408, 429, 503)


def answer(content: Any = None, status: int = 200) -> web.Response:
    """JSON, or an empty body where there is no content."""
    if content is None:
        return web.Response(status=status)
    return web.Response(status=status, body=json.dumps(content).encode(), content_type="application/json")


def refusal(error: Refused, request_id: str) -> web.Response:
    """The error body of the REST interface."""
    content = {
        "errorCode": error.code, "message": error.message, "requestId": request_id,
        "isRetriable": error.status in _RETRIABLE,
    }  # fmt: skip
    return web.Response(
        status=error.status, body=json.dumps(content).encode(), content_type="application/json",
        headers={"x-ms-public-api-error-code": error.code, **error.headers},
    )  # fmt: skip


def invalid(message: str) -> Refused:
    return Refused(400, "InvalidRequest", message)
