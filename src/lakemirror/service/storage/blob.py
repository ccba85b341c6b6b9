"""The Blob dialect: one function for each operation (service.md section 5)."""

from __future__ import annotations

import asyncio
import http
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

from aiohttp import web
from multidict import CIMultiDict

from lakemirror.service.raw_query import split_target
from lakemirror.service.refused import Refused
from lakemirror.service.request_address import BLOB, checked_segments, target_of
from lakemirror.service.request_body import announced_length
from lakemirror.service.request_notes import notes
from lakemirror.service.storage import batch_delete
from lakemirror.service.storage.blocks import block_name, drop_blocks, keep_block, publish_blocks, uncommitted
from lakemirror.service.storage.bodies import read_small, receive, to_new_file
from lakemirror.service.storage.call import Call, asked_for, meant_method, on_path
from lakemirror.service.storage.checksums import digest_of
from lakemirror.service.storage.conditions import Conditions, conditions_of
from lakemirror.service.storage.copy import copy, missing_source
from lakemirror.service.storage.database_files import DatabaseFiles
from lakemirror.service.storage.dfs import make_folder
from lakemirror.service.storage.filesystems import (
    filesystem_status,
    make_filesystem,
    modified_ns,
    not_offered,
    readable,
    remove_filesystem,
)
from lakemirror.service.storage.listing import Entry, Page, Tree, marker_of, name_of, page_of, page_size, rolled_up
from lakemirror.service.storage.publish_file import check_now, publish, sync_file
from lakemirror.service.storage.reads import left_as_it_is, read, written
from lakemirror.service.storage.removal import remove
from lakemirror.service.storage.storage_answers import (
    Codes,
    error_answer,
    forbidden,
    http_date,
    invalid_parameter,
    not_found,
)
from lakemirror.service.storage.xml import BlobPage, blob_list, block_ids, container_list, uncommitted_blocks
from lakemirror.storage.served_files import Found

_SMALL = 1 << 20  # bytes
_MOST_LIST_BYTES = 16 << 20  # 50,000 blocks
_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]{1,300}")
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@on_path
async def put_blob(call: Call, files: DatabaseFiles) -> web.Response:
    """201: the file is published, durably. With `x-ms-meta-hdi_isfolder` and no bytes: the folder exists."""
    path = call.address.path
    kind = call.headers.get("x-ms-blob-type", "").lower()
    if not kind:
        raise Refused(400, "MissingRequiredHeader", "The header x-ms-blob-type is missing.")
    if kind in ("appendblob", "pageblob"):
        raise Refused(501, "NotImplemented", "Only block blobs are offered.")
    if kind != "blockblob":
        raise Refused(400, "InvalidHeaderValue", "The header x-ms-blob-type is not BlockBlob.")
    length = announced_length(call.request, call.serving.limits.max_body)
    if call.makes_folder:
        return written(201, await call.serving.workers.run(make_folder, files, path, call))
    conditions, md5 = call.conditions(), digest_of(call.headers.get("x-ms-blob-content-md5"))
    run = call.serving.workers.run
    if length is None or length > _SMALL:  # of a small file the conditions are looked at once, when it is published
        await run(_before_put, files, path, conditions)
    complete = files.temporary("put")
    published: list[Found] = []
    try:
        await receive(
            call, to_new_file(complete), 0, lambda: published.append(_publish(files, complete, path, conditions, md5))
        )
    except BaseException:
        await run(complete.unlink, missing_ok=True)
        raise
    return written(201, published[0])


@on_path
async def put_block(call: Call, files: DatabaseFiles) -> web.Response:
    """201: the block outlives the process; the blob is not there yet."""
    if "x-ms-copy-source" in call.headers:
        raise Refused(400, "UnsupportedHeader", "Blocks from an address are not offered.")
    name, conditions = block_name(call.query.get("blockid", "")), call.conditions()
    announced_length(call.request, call.serving.limits.max_body)
    run = call.serving.workers.run
    temporary = await run(files.temporary, "block")
    try:
        await receive(
            call, to_new_file(temporary), 0, lambda: keep_block(files, call.address.path, name, temporary, conditions)
        )
    except BaseException:
        await run(temporary.unlink, missing_ok=True)
        raise
    return web.Response(status=201, headers={"x-ms-request-server-encrypted": "false"})


@on_path
async def put_block_list(call: Call, files: DatabaseFiles) -> web.Response:
    """201: the listed blocks are published as one file, durably."""
    path = call.address.path
    md5 = digest_of(call.headers.get("x-ms-blob-content-md5"))
    run = call.serving.workers.run
    listed = await run(block_ids, await read_small(call, _MOST_LIST_BYTES))
    found = await run(publish_blocks, files, path, listed, call.conditions(), md5)
    return written(201, found)


@on_path
async def get_blocks(call: Call, files: DatabaseFiles) -> web.Response:
    """The uncommitted blocks; 404 where there is neither a blob nor a block."""
    blocks = await call.serving.workers.run(uncommitted, files, call.address.path)
    if not blocks and await call.serving.workers.run(files.find, call.address.path) is None:
        raise not_found(call.dialect)
    return web.Response(text=uncommitted_blocks(blocks), content_type="application/xml")


@on_path
async def copy_blob(call: Call, files: DatabaseFiles) -> web.Response:
    """202: the copy is published, durably, when this is answered."""
    path = call.address.path
    source = call.source("x-ms-copy-source", missing_source())
    conditions, of_source = call.conditions(), conditions_of(call.headers, "x-ms-source-")
    found = await call.serving.workers.run(copy, files, source, path, conditions, of_source)
    answer = written(202, found)
    answer.headers["x-ms-copy-id"] = str(uuid.uuid4())
    answer.headers["x-ms-copy-status"] = "success"
    return answer


@on_path
async def delete_blob(call: Call, files: DatabaseFiles) -> web.Response:
    """202: the file, or the empty folder, is gone, durably."""
    path = call.address.path
    await call.serving.workers.run(_delete, files, path, call.conditions(), call.codes)
    return web.Response(status=202, headers={"x-ms-delete-type-permanent": "true"})


async def list_blobs(call: Call) -> web.Response:
    """One page of names that begin with a prefix, in byte order."""
    workspace = call.workspace()
    prefix = _prefix(call.query.get("prefix", ""))
    delimiter = call.query.get("delimiter", "")
    if _NOT_IN_XML.search(prefix + delimiter):
        raise invalid_parameter("prefix or delimiter")
    most = page_size(call.query.get("maxresults"), "maxresults")
    marker = name_of(call.query.get("marker", ""), "marker")
    first = max(prefix, marker, _prefix(call.query.get("startfrom", "")), key=str.encode)
    database_name, slash, _ = prefix.partition("/")
    tree = call.tree(workspace, database_name) or ({} if slash else call.tree(workspace, "") or {})
    page = await call.serving.workers.run(list_page, Tree(tree), prefix, first, delimiter, most)
    body = blob_list(
        BlobPage(
            _endpoint(call),
            call.address.workspace,
            prefix,
            delimiter,
            call.query.get("marker", ""),
            most,
            page.entries,
            marker_of(page.following),
            "metadata" in call.query.get("include", "").lower().split(","),
        )
    )
    return web.Response(text=body, content_type="application/xml")


def list_page(tree: Tree, prefix: str, first: str, delimiter: str, most: int) -> Page:
    """One page of the names that begin with `prefix`, from the name `first` on."""
    try:
        entries = tree.walk(prefix.rpartition("/")[0], first, recursive=delimiter != "/", slashed=delimiter == "/")
        return page_of(rolled_up(_beginning(entries, prefix), prefix, delimiter), most)
    except FileNotFoundError:
        return Page([], "")


async def answer_batch(call: Call) -> web.Response:
    """202: what became of each delete of a batch."""
    call.workspace()
    body = await read_small(call, batch_delete.MOST_BYTES)
    parts = batch_delete.parts_of(call.headers.get("Content-Type", ""), body)
    answers = await asyncio.gather(*(_batch_part(call, part) for part in parts))
    targets = (split_target(part.target)[0] for part in parts)
    notes().parts += zip(targets, (each.status for each in answers), strict=True)
    content_type, answer = batch_delete.batch_body(answers)
    return web.Response(status=202, body=answer, headers={"Content-Type": content_type})


async def account_properties(call: Call) -> web.Response:
    """200: what kind of account this is, for a caller with any role."""
    if not call.caller.roles:
        raise forbidden()
    headers = {
        "x-ms-sku-name": "Standard_LRS",
        "x-ms-account-kind": "StorageV2",
        "x-ms-is-hns-enabled": "true",
    }
    return web.Response(headers=headers)


async def list_containers(call: Call) -> web.Response:
    """The readable workspaces that begin with `prefix`."""
    prefix = call.query.get("prefix", "")
    names = []
    for workspace in readable(call):
        if workspace.name.startswith(prefix):
            modified = modified_ns(workspace)
            names.append((workspace.name, http_date(modified), f"0x{modified:X}"))
    return web.Response(text=container_list(_endpoint(call), names), content_type="application/xml")


async def _batch_part(call: Call, part: batch_delete.Part) -> batch_delete.PartAnswer:
    try:
        target, fields = target_of(part.target, call.is_account), CIMultiDict(part.headers)
        if target.refused is not None:
            raise target.refused
        method = meant_method(part.method, fields)
        operation = asked_for(BLOB, method, target, fields)
        if operation.name != "DeleteBlob":
            raise Refused(400, "InvalidInput", "Only the deletion of a blob can be in a batch.")
        if not call.is_same_workspace(target.address.workspace):
            raise Refused(400, "InvalidInput", "The part is not in this workspace.")
        deletion = call.for_part(method, target, operation, fields)
        deletion.check_sas()
        await delete_blob(deletion)
    except Refused as error:
        refused = error
    else:
        headers = {"x-ms-request-id": str(uuid.uuid4()), "x-ms-delete-type-permanent": "true"}
        return batch_delete.PartAnswer(part.content_id, 202, "Accepted", headers)
    answer = error_answer(refused, call.dialect, part.method)
    headers = {name: value for name, value in answer.headers.items() if name.lower() != "content-length"}
    reason = http.HTTPStatus(refused.status).phrase
    return batch_delete.PartAnswer(part.content_id, refused.status, reason, headers, answer.text or "")


def _before_put(files: DatabaseFiles, path: str, conditions: Conditions) -> None:
    check_now(files, path, conditions, "BlobAlreadyExists")


def _publish(files: DatabaseFiles, complete: Path, path: str, conditions: Conditions, md5: bytes | None) -> Found:
    sync_file(complete, md5)
    return publish(files, complete, path, conditions, "BlobAlreadyExists")


def _delete(files: DatabaseFiles, path: str, conditions: Conditions, codes: Codes) -> None:
    remove(files, path, conditions, codes, recursive=False)
    with files.lock:
        drop_blocks(files, path)
    files.copies.settle()


def _beginning(entries: Iterator[Entry], prefix: str) -> Iterator[Entry]:
    for entry in entries:
        if not entry.name.startswith(prefix):
            return
        yield entry


def _prefix(text: str) -> str:
    """The start of a name, without empty segments. Refused."""
    normal = "/".join(checked_segments(text))
    return f"{normal}/" if normal and text.endswith("/") else normal


def _endpoint(call: Call) -> str:
    host = call.request.host
    return f"{call.request.scheme}://{host if _HOST.fullmatch(host) else 'localhost'}/"


ANSWERS = {
    "GetAccount": account_properties,
    "ListContainers": list_containers,
    "ListBlobs": list_blobs,
    "Batch": answer_batch,
    "GetContainer": filesystem_status,
    "CreateContainer": make_filesystem,
    "DeleteContainer": remove_filesystem,
    "GetBlocks": get_blocks,
    "ReadBlob": read,
    "DeleteBlob": delete_blob,
    "PutBlock": put_block,
    "PutBlockList": put_block_list,
    "SetMetadata": left_as_it_is,
    "CopyBlob": copy_blob,
    "PutBlob": put_blob,
    "NotOffered": not_offered,
}  # the operations of this dialect, each with the function that answers it
