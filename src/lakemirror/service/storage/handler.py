"""The handler of the storage plane: from a request to its answer, whatever goes wrong.

request ─▶ target ─▶ caller ─▶ operation ─▶ may the caller? ─▶ dfs | blob ─▶ headers that every answer carries
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from lakemirror.failures import coded
from lakemirror.service.interface import Authenticator, Limits, Refusal, Registry
from lakemirror.service.raw_query import AddressError
from lakemirror.service.request_address import BLOB, DFS, dialect_of, target_of
from lakemirror.service.storage import blob, dfs
from lakemirror.service.storage.call import Call, Outcome, Places, Serving, asked_for, meant_method
from lakemirror.service.storage.storage_answers import StorageError, error_answer, finish_headers, not_found
from lakemirror.service.storage.workers import Workers

log = logging.getLogger(__name__)

StorageHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_NOT_OFFERED = ("x-ms-structured-body", "x-ms-encryption-key", "x-ms-lease-action")
_SWEEP_SECONDS = 3600.0
_IN_THE_WAY = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_ANSWERS = {DFS: dfs.ANSWERS, BLOB: blob.ANSWERS}


def make_storage_handler(
    registry: Registry,
    authenticator: Authenticator,
    limits: Limits,
    observe: Callable[[web.BaseRequest, Outcome], None] = lambda request, outcome: None,
) -> StorageHandler:
    """A handler for every request of the storage plane; it never raises.

    Mount it on a `web.Server(handler, auto_decompress=False)`, so that bodies stay as they are sent and nothing answers
    `Expect: 100-continue` or reads the body before it. `observe` is told of every
    request once it is answered. A header that an answer has already, like `x-ms-request-id`, stays.
    """
    serving = Serving(registry, authenticator, limits, Places(registry), Workers())

    next_sweep = 0.0

    def sweep() -> None:
        nonlocal next_sweep
        now = time.time()
        if now >= next_sweep:
            next_sweep = now + _SWEEP_SECONDS
            serving.workers.later(serving.places.remove_old_uploads, now)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        method, dialect, outcome = request.method, DFS, Outcome()
        try:
            target = target_of(request.raw_path, authenticator.is_principal)
            dialect = dialect_of(request.host or "", method, target.query, request.headers)
            caller = await authenticator.authenticate(request, target)
            outcome.principal = caller.name
            if target.refused is not None:
                raise target.refused
            method = meant_method(method, request.headers)
            operation = asked_for(dialect, method, target, request.headers)
            outcome.operation = operation.name
            call = Call(request, serving, caller, method, dialect, operation, target.query, target.address,
                        request.headers, outcome)  # fmt: skip
            sweep()
            answer = await _dispatch(call)
        except StorageError as error:
            answer = _refusal(request, error, dialect, method)
        except Refusal as error:
            denied = StorageError(error.status, error.code, error.message, error.headers)
            answer = _refusal(request, denied, dialect, method)
        except AddressError as error:
            answer = _refusal(request, StorageError(400, error.code, str(error)), dialect, method)
        except OSError as error:
            answer = _refusal(request, _failed(error, request, dialect), dialect, method)
        except Exception as error:
            log.error("storage request failed: %s", coded(error))
            log.debug("where it failed", exc_info=error)
            answer = _refusal(request, StorageError(500, "InternalError", "The service failed."), dialect, method)
        if not answer.prepared:
            finish_headers(request, answer)
        outcome.status, outcome.code = answer.status, answer.headers.get("x-ms-error-code", "")
        observe(request, outcome)
        return answer

    return handle


async def _dispatch(call: Call) -> web.StreamResponse:
    for name in _NOT_OFFERED:
        if name in call.headers:
            raise StorageError(501, "NotImplemented", f"{name} is not offered.")
    call.check_sas()
    return await _ANSWERS[call.dialect][call.operation.name](call)


def _refusal(request: web.BaseRequest, error: StorageError, dialect: str, method: str) -> web.Response:
    answer = error_answer(error, dialect, method)
    if request.body_exists and not request.content.at_eof():
        answer.force_close()  # what is left of the body is not read
    return answer


def _failed(error: OSError, request: web.BaseRequest, dialect: str) -> StorageError:
    if error.errno in _NO_SPACE:
        return StorageError(503, "ServerBusy", "The disk is full.", {"Retry-After": "1"})
    if isinstance(error, FileNotFoundError):
        return not_found(dialect)
    if error.errno in _IN_THE_WAY:
        return StorageError(409, "PathConflict", "A file or folder is in the way.")
    if error.errno == errno.EFBIG:
        message = "The file is larger than the file system allows."
        return StorageError(413, "RequestBodyTooLarge", message, {"Connection": "close"})
    if error.errno == errno.ENAMETOOLONG:
        return StorageError(400, "InvalidResourceName", "The name is too long for the file system.")
    log.error("storage request failed: %s %s: %s", request.method, type(error).__name__, error.strerror)
    return StorageError(500, "InternalError", "The store failed.")


__all__ = ["StorageHandler", "make_storage_handler"]
