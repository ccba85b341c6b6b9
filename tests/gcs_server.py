"""A translation in front of fake-gcs-server: XML calls for objects, which obstore and delta-rs make, as JSON calls.

    client ─▶ XML call ─▶ this translation ─▶ JSON call ─▶ fake-gcs-server

The server decides every condition (`x-goog-if-generation-match` becomes `ifGenerationMatch` of the upload). The
translation adds what the server lacks: put, copy, delete, `start-after`, `If-Match`, uploads in parts, and the error of
a missing bucket, which the server would make.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body."""

_KEPT = ("Content-Range", "Last-Modified", "X-Goog-Generation", "Content-Type")


class JsonApi:
    """The JSON calls of a server, one connection for each thread."""

    def __init__(self, endpoint: str) -> None:
        self._host = urlsplit(endpoint).netloc
        self._mine = threading.local()
        self._buckets: set[str] = set()

    def make_bucket(self, name: str) -> None:
        self._send("POST", "/storage/v1/b?project=tests", json.dumps({"name": name}).encode())

    def has_bucket(self, name: str) -> bool:
        if name not in self._buckets and self._send("GET", f"/storage/v1/b/{quote(name, '')}")[0] == 200:
            self._buckets.add(name)
        return name in self._buckets

    def read(self, bucket: str, key: str, wanted: str = "") -> Answer:
        """`wanted`: a Range header."""
        path = f"/download/storage/v1/b/{quote(bucket, '')}/o/{quote(key, '')}?alt=media"
        return self._send("GET", path, headers={"Range": wanted} if wanted else {})

    def put(self, bucket: str, key: str, data: bytes, generation: str | None = None) -> tuple[int, dict[str, Any]]:
        """The status and the object. `generation`: only over this one; "0": only if absent."""
        query = {"uploadType": "media", "name": key}
        if generation is not None:
            query["ifGenerationMatch"] = generation
        path = f"/upload/storage/v1/b/{quote(bucket, '')}/o?{urlencode(query)}"
        status, _, answer = self._send("POST", path, data, {"Content-Type": "application/octet-stream"})
        return status, json.loads(answer) if status == 200 else {}

    def delete(self, bucket: str, key: str) -> int:
        return self._send("DELETE", f"/storage/v1/b/{quote(bucket, '')}/o/{quote(key, '')}")[0]

    def list(self, bucket: str, query: dict[str, str]) -> dict[str, Any]:
        _, _, answer = self._send("GET", f"/storage/v1/b/{quote(bucket, '')}/o?{urlencode(query)}")
        return dict(json.loads(answer))

    def _send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = http.client.HTTPConnection(self._host, timeout=60)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, {name.title(): value for name, value in answer.getheaders()}, answer.read()
        except (OSError, http.client.HTTPException):
            self._mine.connection = None
            raise


@contextlib.contextmanager
def translated(endpoint: str) -> Iterator[str]:
    """The endpoint of the translation in front of a server, until the block ends."""
    api, uploads = JsonApi(endpoint), dict[str, dict[int, bytes]]()

    handler = type("Handler", (_Call,), {"api": api, "uploads": uploads})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class _Call(BaseHTTPRequestHandler):
    """One XML call. The path is `/bucket/key`, and `/bucket` for a listing."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    api: JsonApi
    uploads: dict[str, dict[int, bytes]]

    def _act(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        bucket, _, key = (unquote(each) for each in address.path[1:].partition("/"))
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        status, headers, body = self._answer(bucket, key, query, data)
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _act

    def _answer(self, bucket: str, key: str, query: dict[str, str], data: bytes) -> Answer:
        if not self.api.has_bucket(bucket):
            return _refusal(404, "NoSuchBucket")
        if not key:
            return self._list(bucket, query)
        if "uploads" in query or "uploadId" in query:
            return self._upload(bucket, key, query, data)
        if self.command in ("GET", "HEAD"):
            return self._read(bucket, key)
        if self.command == "DELETE":
            found = self.api.delete(bucket, key)
            return (204, {}, b"") if found in (200, 204) else _refusal(404, "NoSuchKey")
        if source := unquote(self.headers.get("x-goog-copy-source", "")):
            status, _, data = self.api.read(*source.split("/", 1))
            if status != 200:
                return _refusal(404, "NoSuchKey")
            return self._put(bucket, key, data, b"<CopyObjectResult/>")
        return self._put(bucket, key, data)

    def _read(self, bucket: str, key: str) -> Answer:
        status, headers, data = self.api.read(bucket, key, self.headers.get("Range", ""))
        if status == 404:
            return _refusal(404, "NoSuchKey")
        if status == 416:
            return _refusal(416, "InvalidRange")
        tag = _tag(headers["Etag"].strip('"'))
        if self.headers.get("If-Match", tag) != tag:
            return _refusal(412, "PreconditionFailed")
        return status, {**{name: headers[name] for name in _KEPT if name in headers}, "ETag": tag}, data

    def _put(self, bucket: str, key: str, data: bytes, body: bytes = b"") -> Answer:
        status, found = self.api.put(bucket, key, data, self.headers.get("x-goog-if-generation-match"))
        if status != 200:
            return _refusal(status, "PreconditionFailed" if status == 412 else "InternalError")
        return 200, {"ETag": _tag(found["etag"]), "x-goog-generation": str(found["generation"])}, body

    def _upload(self, bucket: str, key: str, query: dict[str, str], data: bytes) -> Answer:
        """The calls of an upload in parts. The parts are put as one object when the upload is completed."""
        if "uploads" in query:
            name = uuid.uuid4().hex
            self.uploads[name] = {}
            body = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            return 200, {}, body.encode()
        name = query["uploadId"]
        if name not in self.uploads:
            return _refusal(404, "NoSuchUpload")
        if self.command == "PUT":
            self.uploads[name][int(query["partNumber"])] = data
            return 200, {"ETag": f'"{hashlib.md5(data).hexdigest()}"'}, b""
        if self.command == "DELETE":
            del self.uploads[name]
            return 204, {}, b""
        numbers = [int(each.text or "") for each in ElementTree.fromstring(data).iter() if "PartNumber" in each.tag]
        complete = b"".join(self.uploads[name][number] for number in sorted(numbers))
        tag = escape(f'"{hashlib.md5(complete).hexdigest()}"')
        done = f"<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
        answer = self._put(bucket, key, complete, done.encode())
        del self.uploads[name]
        return answer

    def _list(self, bucket: str, query: dict[str, str]) -> Answer:
        asked = {"maxResults": query.get("max-keys", "1000"), "prefix": query.get("prefix", "")}
        asked |= {"delimiter": query["delimiter"]} if "delimiter" in query else {}
        asked |= {"pageToken": query["continuation-token"]} if "continuation-token" in query else {}
        if "start-after" in query:
            asked["startOffset"] = (
                query["start-after"] + "\0"
            )  # the JSON call begins with the name, the XML call after it
        found = self.api.list(bucket, asked)
        parts = ["<?xml version='1.0' encoding='UTF-8'?><ListBucketResult>"]
        for each in found.get("items", ()):
            parts.append(
                f"<Contents><Key>{escape(each['name'])}</Key><Size>{each['size']}</Size>"
                f"<Generation>{each['generation']}</Generation><LastModified>{each['updated']}</LastModified>"
                f"<ETag>{escape(_tag(each['etag']))}</ETag></Contents>"
            )
        for each in found.get("prefixes", ()):
            parts.append(f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>")
        if token := found.get("nextPageToken"):
            parts.append(f"<NextContinuationToken>{escape(token)}</NextContinuationToken>")
        return 200, {"Content-Type": "application/xml"}, "".join([*parts, "</ListBucketResult>"]).encode()

    def log_message(self, *_: object) -> None:
        pass


def _tag(md5: str) -> str:
    """The ETag of the XML calls: the MD5 in hexadecimal digits; the JSON calls have it in base64."""
    return f'"{base64.b64decode(md5).hex()}"'


def _refusal(status: int, code: str) -> Answer:
    body = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code></Error>"
    return status, {"Content-Type": "application/xml"}, body.encode()
