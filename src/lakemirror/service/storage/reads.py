"""Reading a file or a folder: HEAD and GET of both dialects."""

from __future__ import annotations

import base64
import hashlib
from contextlib import suppress

from aiohttp import web

from lakemirror.errors import LakemirrorError
from lakemirror.service.refused import Refused
from lakemirror.service.storage.call import Call, on_path
from lakemirror.service.storage.conditions import conditions_of
from lakemirror.service.storage.database_files import DatabaseFiles
from lakemirror.service.storage.ranges import ByteRange, range_of
from lakemirror.service.storage.storage_answers import finish_headers, http_date, not_found
from lakemirror.service.storage.workers import Workers
from lakemirror.storage.served_files import Found, ServedFile

_MOST_MD5 = 4 << 20

ACCESS = {"x-ms-owner": "$superuser", "x-ms-group": "$superuser"}
FOLDER_PERMISSIONS, FILE_PERMISSIONS = "rwxr-x---", "rw-r-----"


@on_path
async def read(call: Call, files: DatabaseFiles) -> web.StreamResponse:
    """The answer to HEAD or GET of a path."""
    file, found = await call.serving.workers.run(_opened, files, call.address.path)
    if found is None:
        raise not_found(call.dialect)
    try:
        return await _answer(call, found, file, files.published.piece)
    finally:
        if file is not None:
            file.close()


def _opened(files: DatabaseFiles, path: str) -> tuple[ServedFile | None, Found | None]:
    """The published file at a path, and what clients see there."""
    if staged := files.staged(path):
        return None, staged
    with suppress(FileNotFoundError):
        file = files.published.open(path)
        return file, file.found
    found = files.published.find(path)
    return None, found if found is not None and found.is_folder else None


def properties_of(found: Found) -> dict[str, str]:
    """The headers that describe what is found."""
    headers = {
        "ETag": f'"{found.etag}"',
        "Last-Modified": http_date(found.modified_ns),
        "Accept-Ranges": "bytes",
        "Content-Type": "application/octet-stream",
        "x-ms-resource-type": "directory" if found.is_folder else "file",
        "x-ms-blob-type": "BlockBlob",
        "x-ms-creation-time": http_date(found.modified_ns),
        "x-ms-lease-status": "unlocked",
        "x-ms-lease-state": "available",
        "x-ms-server-encrypted": "false",
    }
    if found.is_folder:
        headers["x-ms-meta-hdi_isfolder"] = "true"
    return headers


def access_of(is_folder: bool) -> dict[str, str]:
    """The headers of `action=getAccessControl`: fixed, since roles decide, not lists of control."""
    permissions = FOLDER_PERMISSIONS if is_folder else FILE_PERMISSIONS
    user, group, other = permissions[:3], permissions[3:6], permissions[6:]
    return {
        **ACCESS,
        "x-ms-permissions": permissions,
        "x-ms-acl": f"user::{user},group::{group},other::{other}",
    }


def written(status: int, found: Found) -> web.Response:
    """The answer to a write that went well."""
    headers = {
        "ETag": f'"{found.etag}"',
        "Last-Modified": http_date(found.modified_ns),
        "x-ms-request-server-encrypted": "false",
    }
    return web.Response(status=status, headers=headers)


@on_path
async def left_as_it_is(call: Call, files: DatabaseFiles) -> web.Response:
    """200 where the path exists: metadata and properties are not kept."""
    found = await call.serving.workers.run(files.find, call.address.path)
    if found is None:
        raise not_found(call.dialect)
    return written(200, found)


async def _answer(call: Call, found: Found, file: ServedFile | None, piece: int) -> web.StreamResponse:
    headers = properties_of(found)
    status = conditions_of(call.headers).verdict(found.etag, found.modified_ns, reading=True)
    if status:
        about = {"ETag": headers["ETag"], "Last-Modified": headers["Last-Modified"]}
        raise Refused(status, "ConditionNotMet", "The condition of the request does not hold.", about)
    if call.query.get("action", "").lower() == "getaccesscontrol":
        headers |= access_of(found.is_folder)
    if call.method == "HEAD":
        return web.Response(status=200, headers={**headers, "Content-Length": str(found.length)})
    part = range_of(call.headers, found.length)
    if part is None:
        wanted, code = ByteRange(0, found.length, found.length), 200
    else:
        wanted, code = part, 206
        headers["Content-Range"] = part.content_range
        if call.headers.get("x-ms-range-get-content-md5", "").lower() == "true":
            headers["Content-MD5"] = await call.serving.workers.run(_md5, file, part)
    answer = web.StreamResponse(status=code, headers=headers)
    answer.content_length = wanted.length
    finish_headers(call.request, answer)
    await send_part(call.request, answer, file, wanted, piece, call.serving.workers)
    return answer


async def send_part(
    request: web.BaseRequest,
    answer: web.StreamResponse,
    file: ServedFile | None,
    wanted: ByteRange,
    piece: int,
    workers: Workers,
) -> None:
    """Sends a part of an open file as the body of an answer. A file that became shorter ends the connection."""
    try:
        await answer.prepare(request)
        at = wanted.start
        while at < wanted.end and file is not None:
            data = await workers.run(file.read_at, min(piece, wanted.end - at), at)
            if not data:
                raise EOFError  # the file became shorter
            await answer.write(data)
            at += len(data)
        await answer.write_eof()
    except ConnectionError:
        return  # the client has gone
    except (OSError, EOFError, LakemirrorError):
        if request.transport is not None:
            request.transport.abort()  # the client sees that the body is not complete


def _md5(file: ServedFile | None, part: ByteRange) -> str:
    if part.length > _MOST_MD5:
        raise Refused(400, "InvalidRange", "The MD5 of a range is given up to 4 MiB.")
    data = b"" if file is None else file.read_at(part.length, part.start)
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
