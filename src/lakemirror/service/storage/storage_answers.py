"""Answers of the storage plane: headers that all carry, and errors in the body of their dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.utils import formatdate
from xml.sax.saxutils import escape

from aiohttp import web

from lakemirror.service.request_address import DFS
from lakemirror.service.request_notes import notes

VERSION = "2024-11-04"

_LAST_SECOND = 253_402_300_799  # of the year 9999
_ECHOED = re.compile(r"[\x20-\x7e]{0,1024}")


class StorageError(Exception):
    """A request that is refused: status, the vendor's error code, one sentence."""

    def __init__(self, status: int, code: str, message: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message or code)
        self.status = status
        self.code = code
        self.message = message or code
        self.headers = dict(headers or {})


def error_answer(error: StorageError, dialect: str, method: str) -> web.Response:
    """The answer that an error is; without a body where the request is HEAD or the status has none."""
    headers = {"x-ms-error-code": error.code, **error.headers}
    if method == "HEAD" or error.status == 304:
        return web.Response(status=error.status, headers=headers)
    if dialect == DFS:
        body = json.dumps({"error": {"code": error.code, "message": error.message}})
        return web.Response(status=error.status, headers=headers, text=body, content_type="application/json")
    body = (
        '<?xml version="1.0" encoding="utf-8"?>'
        f"<Error><Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message></Error>"
    )
    return web.Response(status=error.status, headers=headers, text=body, content_type="application/xml")


def http_date(nanoseconds: int) -> str:
    """A time as HTTP headers write it."""
    return formatdate(min(max(nanoseconds // 1_000_000_000, 0), _LAST_SECOND), usegmt=True)


def not_found(dialect: str) -> StorageError:
    """404 in the words of the dialect."""
    return StorageError(404, "PathNotFound" if dialect == DFS else "BlobNotFound", "The path does not exist.")


def forbidden(message: str = "This caller may not do that here.") -> StorageError:
    """403: no role, or a place where nobody may write."""
    return StorageError(403, "AuthorizationPermissionMismatch", message)


def invalid_parameter(name: str) -> StorageError:
    """400: the value of this query parameter is missing or out of its range."""
    return StorageError(400, "InvalidQueryParameterValue", f"The value of {name} is missing or not allowed.")


def finish_headers(request: web.BaseRequest, answer: web.StreamResponse) -> None:
    """Adds the headers that every answer carries."""
    headers = answer.headers
    headers.setdefault("x-ms-request-id", notes().id)
    for name, default in (("x-ms-version", VERSION), ("x-ms-client-request-id", "")):
        value = request.headers.get(name, default)
        if value and _ECHOED.fullmatch(value):
            headers.setdefault(name, value)
