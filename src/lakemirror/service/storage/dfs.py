"""The DFS dialect: one function for each operation (service.md section 5)."""

from __future__ import annotations

import json
import os

from aiohttp import web

from lakemirror.failpoints import reach
from lakemirror.service.refused import Refused
from lakemirror.service.request_body import announced_length
from lakemirror.service.storage import publish_file
from lakemirror.service.storage.bodies import receive
from lakemirror.service.storage.call import Call, on_path
from lakemirror.service.storage.checksums import digest_of
from lakemirror.service.storage.conditions import conditions_of
from lakemirror.service.storage.database_files import DatabaseFiles
from lakemirror.service.storage.filesystems import (
    filesystem_access,
    filesystem_status,
    make_filesystem,
    not_offered,
    remove_filesystem,
    workspaces_json,
)
from lakemirror.service.storage.listing import Entry, Page, Tree, marker_of, name_of, page_of, page_size
from lakemirror.service.storage.numbers import number_of, position_of
from lakemirror.service.storage.reads import (
    ACCESS,
    FILE_PERMISSIONS,
    FOLDER_PERMISSIONS,
    left_as_it_is,
    read,
    written,
)
from lakemirror.service.storage.removal import remove
from lakemirror.service.storage.rename import rename
from lakemirror.service.storage.storage_answers import http_date, not_found
from lakemirror.service.storage.uploads import Part, Upload
from lakemirror.storage.served_files import Found


@on_path
async def create_folder(call: Call, files: DatabaseFiles) -> web.Response:
    """201: the folder and its parents exist."""
    return written(201, await call.serving.workers.run(make_folder, files, call.address.path, call))


@on_path
async def create_file(call: Call, files: DatabaseFiles) -> web.Response:
    """201: clients see the file with length 0; nothing is published yet."""
    conditions = call.conditions()
    return written(201, await call.serving.workers.run(publish_file.create_file, files, call.address.path, conditions))


@on_path
async def append(call: Call, files: DatabaseFiles) -> web.Response:
    """202: the bytes outlive the process, or were flushed before. With `flush=true` they are published as well."""
    path = call.address.path
    position = position_of(call.query.get("position", ""))
    announced = announced_length(call.request, call.serving.limits.max_body)
    upload, file = await call.serving.workers.run(_begin_append, files, path, position, announced, call)
    if upload is None:
        length = await receive(call, _open_nothing, 0)
    else:
        target = upload.folder / file
        offset = position if file == "data" else 0
        try:
            length = await receive(call, lambda: _open_part(target), offset)
            await call.serving.workers.run(_count, files, upload, Part(position, length, file))
        finally:
            await call.serving.workers.run(_release, files, upload, position, announced, file)
    headers = {"x-ms-request-server-encrypted": "false"}
    if call.operation.name == "AppendAndFlush":
        found = await _flush_at(call, files, position + length)
        headers |= {"ETag": f'"{found.etag}"', "Last-Modified": http_date(found.modified_ns)}
    return web.Response(status=202, headers=headers)


@on_path
async def flush(call: Call, files: DatabaseFiles) -> web.Response:
    """200: what was appended is published, durably, and the replicator woken."""
    position = number_of(call.query.get("position", ""), "position")
    return written(200, await _flush_at(call, files, position))


@on_path
async def rename_path(call: Call, files: DatabaseFiles) -> web.Response:
    """201: the file or folder has its new name, durably."""
    wrong = Refused(400, "InvalidSourceUri", "The source is not in the same mirrored database.")
    source = call.source("x-ms-rename-source", wrong)
    call.check_writable(source)
    conditions, of_source = call.conditions(), conditions_of(call.headers, "x-ms-source-")
    found = await call.serving.workers.run(rename, files, source, call.address.path, conditions, of_source)
    return written(201, found)


@on_path
async def delete(call: Call, files: DatabaseFiles) -> web.Response:
    """200: gone, durably."""
    recursive = call.query.get("recursive", "").lower() == "true"
    await call.serving.workers.run(remove, files, call.address.path, call.conditions(), call.codes, recursive=recursive)
    return web.Response(status=200)


async def list_paths(call: Call) -> web.Response:
    """One page of a folder, in byte order; a file lists itself."""
    workspace = call.workspace()
    address = call.address.below_directory(call.query.get("directory", ""))
    tree = call.tree(workspace, address.database)
    if tree is None:
        raise not_found(call.dialect)
    name = "/".join(part for part in (address.database, address.path) if part)
    recursive = call.query.get("recursive", "").lower() == "true"
    most = page_size(call.query.get("maxresults"), "maxResults")
    first = name_of(call.query.get("continuation", ""), "continuation")
    page = await call.serving.workers.run(_list, Tree(tree), name, first, recursive, most)
    headers = {"x-ms-continuation": marker_of(page.following)} if page.following else {}
    body = json.dumps({"paths": [_path_entry(entry) for entry in page.entries]}, ensure_ascii=False)
    return web.Response(text=body, content_type="application/json", headers=headers)


def make_folder(files: DatabaseFiles, path: str, call: Call) -> Found:
    """Makes a folder and its parents, durably; harmless where it exists. Refused 409 for a file there, 412."""
    with files.publishing(path):
        found = files.find(path)
        conditions_of(call.headers).check_write(found, call.codes.exists)
        if found is not None and not found.is_folder:
            raise Refused(409, call.codes.exists, "A file has this name.")
        publish_file.make_parents(files, f"{path}/x")
        made = files.find(path)
    files.settle(f"{path}/x")
    if made is None:
        raise not_found(call.dialect)
    return made


async def _flush_at(call: Call, files: DatabaseFiles, position: int) -> Found:
    md5 = digest_of(call.headers.get("x-ms-content-md5"))
    conditions = call.conditions()
    return await call.serving.workers.run(publish_file.flush, files, call.address.path, position, conditions, md5)


def _begin_append(
    files: DatabaseFiles, path: str, position: int, length: int | None, call: Call
) -> tuple[Upload | None, str]:
    with files.lock:
        upload, flushed = publish_file.upload_for_append(files, path)
        publish_file.check_now(files, path, call.conditions())
        if position < flushed:
            return None, ""
        if upload is None:
            upload = publish_file.begin_append(files, path)
        return upload, upload.claim(position, length)


def _count(files: DatabaseFiles, upload: Upload, part: Part) -> None:
    reach("upload.written")
    files.copies.keep(upload, part)
    with files.lock:
        if files.uploads.get(upload.path) is not upload or upload.sealed:
            raise Refused(409, "PathConflict", "Another request flushed, created or deleted this path meanwhile.")
        upload.count(part)
    reach("upload.counted")


def _release(files: DatabaseFiles, upload: Upload, position: int, announced: int | None, file: str) -> None:
    with files.lock:
        upload.release(position, announced, file)


def _open_part(path: os.PathLike[str]) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        message = "Another request flushed, created or deleted this path meanwhile."
        raise Refused(409, "PathConflict", message) from None


def _open_nothing() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _list(tree: Tree, name: str, first: str, recursive: bool, most: int) -> Page:
    if name:
        found = tree.find(name)
        if found is None:
            raise Refused(404, "PathNotFound", "The path does not exist.")
        if not found.is_folder:
            return Page([Entry(name, found)], "")
    try:
        return page_of(tree.walk(name, first, recursive=recursive), most)
    except FileNotFoundError:
        raise Refused(404, "PathNotFound", "The path does not exist.") from None


def _path_entry(entry: Entry) -> dict[str, str]:
    found = entry.found
    described = {
        "name": entry.name,
        "contentLength": str(found.length),
        "lastModified": http_date(found.modified_ns),
        "etag": found.etag,
        "owner": ACCESS["x-ms-owner"],
        "group": ACCESS["x-ms-group"],
        "permissions": FOLDER_PERMISSIONS if found.is_folder else FILE_PERMISSIONS,
    }
    return {**described, "isDirectory": "true"} if found.is_folder else described


ANSWERS = {
    "ListFilesystems": workspaces_json,
    "ListPaths": list_paths,
    "GetFilesystemAccess": filesystem_access,
    "GetFilesystem": filesystem_status,
    "CreateFilesystem": make_filesystem,
    "DeleteFilesystem": remove_filesystem,
    "ReadPath": read,
    "RenamePath": rename_path,
    "CreateDirectory": create_folder,
    "CreateFile": create_file,
    "AppendAndFlush": append,
    "Append": append,
    "Flush": flush,
    "SetProperties": left_as_it_is,
    "NotOffered": not_offered,
    "DeletePath": delete,
}  # the operations of this dialect, each with the function that answers it
