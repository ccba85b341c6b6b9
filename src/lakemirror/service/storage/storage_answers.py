"""Answers of the storage plane: headers that all carry, and errors in the body of their dialect."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from email.utils import formatdate
from xml.sax.saxutils import escape

from aiohttp import web

from lakemirror.service.refused import Refused
from lakemirror.service.request_address import BLOB, DFS
from lakemirror.service.request_notes import notes

VERSION = "2024-11-04"

_LAST_SECOND = 253_402_300_799  # of the year 9999
_ECHOED = re.compile(r"[\x20-\x7e]{0,1024}")


def error_answer(error: Refused, dialect: str, method: str) -> web.Response:
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


@dataclass(frozen=True)
class Codes:
    """The error codes of a dialect: of a path that is missing, that exists, of a folder that holds something, of a
    workspace that is missing, and of one that exists.
    """

    missing: str
    exists: str
    filled: str
    no_workspace: str
    workspace_exists: str


CODES = {
    DFS: Codes(
        "PathNotFound", "PathAlreadyExists", "DirectoryNotEmpty", "FilesystemNotFound", "FilesystemAlreadyExists"
    ),
    BLOB: Codes(
        "BlobNotFound", "BlobAlreadyExists", "DirectoryIsNotEmpty", "ContainerNotFound", "ContainerAlreadyExists"
    ),
}


def not_found(dialect: str) -> Refused:
    """404 in the words of the dialect."""
    return Refused(404, CODES[dialect].missing, "The path does not exist.")


def forbidden(message: str = "This caller may not do that here.") -> Refused:
    """403: no role, or a place where nobody may write."""
    return Refused(403, "AuthorizationPermissionMismatch", message)


def invalid_parameter(name: str) -> Refused:
    """400: the value of this query parameter is missing or out of its range."""
    return Refused(400, "InvalidQueryParameterValue", f"The value of {name} is missing or not allowed.")


def finish_headers(request: web.BaseRequest, answer: web.StreamResponse) -> None:
    """Adds the headers that every answer carries."""
    headers = answer.headers
    headers.setdefault("x-ms-request-id", notes().id)
    for name, default in (("x-ms-version", VERSION), ("x-ms-client-request-id", "")):
        value = request.headers.get(name, default)
        if value and _ECHOED.fullmatch(value):
            headers.setdefault(name, value)
