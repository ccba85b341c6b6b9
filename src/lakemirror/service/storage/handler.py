"""The handler of the storage plane: from a request to its answer, whatever goes wrong.

request ─▶ target ─▶ caller ─▶ operation ─▶ may the caller? ─▶ dfs | blob ─▶ headers that every answer carries
"""

from __future__ import annotations

import errno
import logging
import time

from aiohttp import web

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.service.interface import Authenticator, Limits, Registry
from lakemirror.service.refused import Refused
from lakemirror.service.request_address import BLOB, DFS, dialect_of, target_of
from lakemirror.service.request_notes import notes
from lakemirror.service.storage import blob, dfs
from lakemirror.service.storage.call import Call, FilesByDatabase, Serving, asked_for, meant_method
from lakemirror.service.storage.storage_answers import error_answer, finish_headers, not_found
from lakemirror.service.storage.workers import Workers

log = logging.getLogger(__name__)

_NOT_OFFERED = ("x-ms-structured-body", "x-ms-encryption-key", "x-ms-lease-action")
_SWEEP_SECONDS = 3600.0
_IN_THE_WAY = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_ANSWERS = {DFS: dfs.ANSWERS, BLOB: blob.ANSWERS}


class StorageEndpoint:
    """Answers every request of the storage plane.

    Mount `handle` on a `web.Server(handler, auto_decompress=False)`, so that bodies stay as they are sent and nothing
    answers `Expect: 100-continue` or reads the body before it.
    """

    def __init__(self, registry: Registry, authenticator: Authenticator, limits: Limits) -> None:
        self._serving = Serving(registry, authenticator, limits, FilesByDatabase(registry), Workers())
        self._next_sweep = 0.0

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer; never raises. A header that an answer has already, like `x-ms-request-id`, stays."""
        method, dialect = request.method, DFS
        authenticator = self._serving.authenticator
        try:
            target = target_of(request.raw_path, authenticator.is_principal)
            dialect = dialect_of(request.host or "", method, target.query, request.headers)
            caller = await authenticator.authenticate(request, target)
            if target.refused is not None:
                raise target.refused
            method = meant_method(method, request.headers)
            operation = asked_for(dialect, method, target, request.headers)
            notes().operation = operation.name
            call = Call(request, self._serving, caller, method, dialect, operation, target.query, target.address,
                        request.headers)  # fmt: skip
            self._sweep()
            answer = await _dispatch(call)
        except Refused as error:
            answer = _refusal(request, error, dialect, method)
        except LakemirrorError as error:
            answer = _refusal(request, _of_store(error), dialect, method)
        except OSError as error:
            answer = _refusal(request, _failed(error, request, dialect), dialect, method)
        except Exception as error:
            log.error("storage request failed: %s", coded(error))
            log.debug("where it failed", exc_info=error)
            answer = _refusal(request, Refused(500, "InternalError", "The service failed."), dialect, method)
        if not answer.prepared:
            finish_headers(request, answer)
        notes().refused = answer.headers.get("x-ms-error-code", "")
        return answer

    def _sweep(self) -> None:
        """Has old uploads removed, once an hour."""
        now = time.time()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_SECONDS
            self._serving.workers.later(self._serving.databases.remove_old_uploads, now)


async def _dispatch(call: Call) -> web.StreamResponse:
    for name in _NOT_OFFERED:
        if name in call.headers:
            raise Refused(501, "NotImplemented", f"{name} is not offered.")
    call.check_sas()
    return await _ANSWERS[call.dialect][call.operation.name](call)


def _of_store(error: LakemirrorError) -> Refused:
    """What a store that cannot be used means for a client."""
    if error.code == "path-refused":
        return Refused(400, "InvalidUri", "The store cannot hold a file of this name.")
    log.error("%s", error)
    if error.retry:
        return Refused(503, "ServerBusy", "The store does not answer now.", {"Retry-After": "5"})
    return Refused(500, "InternalError", "The service failed.")


def _refusal(request: web.BaseRequest, error: Refused, dialect: str, method: str) -> web.Response:
    answer = error_answer(error, dialect, method)
    if request.body_exists and not request.content.at_eof():
        answer.force_close()  # what is left of the body is not read
    return answer


def _failed(error: OSError, request: web.BaseRequest, dialect: str) -> Refused:
    if error.errno in _NO_SPACE:
        return Refused(503, "ServerBusy", "The disk is full.", {"Retry-After": "1"})
    if isinstance(error, FileNotFoundError):
        return not_found(dialect)
    if error.errno in _IN_THE_WAY:
        return Refused(409, "PathConflict", "A file or folder is in the way.")
    if error.errno == errno.EFBIG:
        message = "The file is larger than the file system allows."
        return Refused(413, "RequestBodyTooLarge", message, {"Connection": "close"})
    if error.errno == errno.ENAMETOOLONG:
        return Refused(400, "InvalidResourceName", "The name is too long for the file system.")
    log.error("storage request failed: %s %s: %s", request.method, type(error).__name__, error.strerror)
    return Refused(500, "InternalError", "The store failed.")
