"""The handler of the storage plane: from a request to its answer, whatever goes wrong.

request ─▶ caller ─▶ dialect ─▶ address ─▶ dfs | blob ─▶ headers that every answer carries
"""

from __future__ import annotations

import errno
import logging
import re
import uuid
from collections.abc import Awaitable, Callable

from aiohttp import web

from lakemirror.service.addresses import (
    DFS,
    AddressError,
    address_of,
    dialect_of,
    query_of,
    segments_of,
    split_target,
)
from lakemirror.service.interface import AccessDenied, Authenticator, Limits, Registry
from lakemirror.service.storage.answers import VERSION, StorageError, error_answer
from lakemirror.service.storage.call import Call, Places, Serving
from lakemirror.service.storage.dfs import answer_dfs
from lakemirror.service.storage.workers import Workers

log = logging.getLogger(__name__)

StorageHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_METHODS = frozenset({"GET", "HEAD", "PUT", "PATCH", "POST", "DELETE"})
_ECHOED = re.compile(r"[\x20-\x7e]{0,1024}")
_NOT_OFFERED = ("x-ms-structured-body", "x-ms-encryption-key", "x-ms-lease-action")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def make_storage_handler(registry: Registry, authenticator: Authenticator, limits: Limits) -> StorageHandler:
    """A handler for every request of the storage plane; it never raises.

    Mount it so that nothing answers `Expect: 100-continue` or reads the body before it. In the request it leaves
    `operation`, `principal` and `uploaded_bytes` for logs and metrics, and takes `request_id` where there is one.
    """
    serving = Serving(registry, authenticator, limits, Places(registry), Workers())

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        request["finish_headers"] = lambda answer: _finish(request, answer)
        method = request.method
        raw_path, raw_query = split_target(request.raw_path)
        dialect, refused, query = DFS, None, {}
        try:
            query = query_of(raw_query)
        except AddressError as error:
            refused = error
        dialect = dialect_of(request.host or "", method, query, request.headers)
        try:
            caller = await authenticator.authenticate(request, storage=True)
            request["principal"] = caller.name
            if refused is not None:
                raise refused
            method = _meant(request)
            address = address_of(segments_of(raw_path), authenticator.is_principal)
            call = Call(request, serving, caller, method, dialect, query, address)
            answer = await _dispatch(call)
        except StorageError as error:
            answer = _refusal(request, error, dialect, method)
        except AccessDenied as error:
            denied = StorageError(error.status, error.code, error.message, error.headers)
            answer = _refusal(request, denied, dialect, method)
        except AddressError as error:
            answer = _refusal(request, StorageError(400, error.code, str(error)), dialect, method)
        except OSError as error:
            answer = _refusal(request, _failed(error, request), dialect, method)
        except Exception as error:
            log.exception("storage request failed: %s", type(error).__name__)
            answer = _refusal(request, StorageError(500, "InternalError", "The service failed."), dialect, method)
        if not answer.prepared:
            _finish(request, answer)
        return answer

    return handle


async def _dispatch(call: Call) -> web.StreamResponse:
    for name in _NOT_OFFERED:
        if name in call.headers:
            raise StorageError(501, "NotImplemented", f"{name} is not offered.")
    if call.dialect == DFS:
        return await answer_dfs(call)
    return await answer_dfs(call)


def _meant(request: web.BaseRequest) -> str:
    """The method that is meant: PATCH where a PUT says so."""
    override = request.headers.get("X-HTTP-Method-Override")
    if override is not None:
        if request.method != "PUT" or override.upper() != "PATCH":
            raise StorageError(400, "InvalidHeaderValue", "X-HTTP-Method-Override can make PUT a PATCH only.")
        return "PATCH"
    if request.method not in _METHODS:
        raise StorageError(405, "UnsupportedHttpVerb", "The resource does not support this verb.")
    return request.method


def _refusal(request: web.BaseRequest, error: StorageError, dialect: str, method: str) -> web.Response:
    answer = error_answer(error, dialect, method)
    if request.body_exists and not request.content.at_eof():
        answer.force_close()  # what is left of the body is not read
    return answer


def _finish(request: web.BaseRequest, answer: web.StreamResponse) -> None:
    headers = answer.headers
    headers.setdefault("x-ms-request-id", str(request.get("request_id") or uuid.uuid4()))
    for name, default in (("x-ms-version", VERSION), ("x-ms-client-request-id", "")):
        value = request.headers.get(name, default)
        if value and _ECHOED.fullmatch(value):
            headers.setdefault(name, value)


def _failed(error: OSError, request: web.BaseRequest) -> StorageError:
    if error.errno in _NO_SPACE:
        return StorageError(503, "ServerBusy", "The disk is full.", {"Retry-After": "1"})
    if error.errno == errno.ENAMETOOLONG:
        return StorageError(400, "InvalidResourceName", "The name is too long for the file system.")
    log.error("storage request failed: %s %s: %s", request.method, type(error).__name__, error.strerror)
    return StorageError(500, "InternalError", "The store failed.")


__all__ = ["StorageHandler", "make_storage_handler"]
