"""Batches: several deletes in one request, each checked and answered alone (obstore and delta-rs delete so)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakemirror.service.refused import Refused

MOST_PARTS = 256
MOST_BYTES = 4 << 20

_BOUNDARY = re.compile(r'boundary\s*=\s*(?:"([^"]{1,200})"|([^\s;]{1,200}))', re.IGNORECASE)
_LINE = re.compile(r"([A-Z]+) (\S+) HTTP/1\.[01]")


@dataclass(frozen=True)
class Part:
    """One request of a batch. `headers`: names in lower case. `content_id`: "" where it has none."""

    content_id: str
    method: str
    target: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class PartAnswer:
    """What became of one request."""

    content_id: str
    status: int
    reason: str
    headers: Mapping[str, str]
    body: str = ""


def parts_of(content_type: str, body: bytes) -> list[Part]:
    """The requests of a `multipart/mixed` body. Refused 400 `InvalidInput`."""
    match = _BOUNDARY.search(content_type)
    if not content_type.lower().startswith("multipart/mixed") or not match:
        raise _invalid("The content type is not multipart/mixed with a boundary.")
    boundary = b"--" + (match[1] or match[2]).encode("utf-8", "surrogateescape")
    pieces = (b"\r\n" + body).split(b"\r\n" + boundary)
    if len(pieces) < 3 or not pieces[-1].startswith(b"--"):
        raise _invalid("The batch does not end with its boundary.")
    found = pieces[1:-1]
    if len(found) > MOST_PARTS:
        raise _invalid(f"A batch may have {MOST_PARTS} parts.")
    return [_part(piece) for piece in found]


def batch_body(answers: Sequence[PartAnswer]) -> tuple[str, bytes]:
    """The content type and the body that answer a batch."""
    boundary = f"batchresponse_{uuid.uuid4()}"
    lines: list[str] = []
    for answer in answers:
        lines += [f"--{boundary}", "Content-Type: application/http"]
        if answer.content_id:
            lines.append(f"Content-ID: {answer.content_id}")
        lines += ["", f"HTTP/1.1 {answer.status} {answer.reason}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        lines += [f"Content-Length: {len(answer.body.encode())}", "", answer.body]
    lines += [f"--{boundary}--", ""]
    return f"multipart/mixed; boundary={boundary}", "\r\n".join(lines).encode()


def _part(piece: bytes) -> Part:
    try:
        text = piece.decode("utf-8")
    except UnicodeDecodeError:
        raise _invalid("A part is not UTF-8.") from None
    about, _, request = text.lstrip(" \t").removeprefix("\r\n").partition("\r\n\r\n")
    line, _, fields = request.partition("\r\n")
    match = _LINE.fullmatch(line.strip())
    content_id = _fields(about).get("content-id", "")
    if not match or not re.fullmatch(r"[\x21-\x7e]{0,200}", content_id):
        raise _invalid("A part is not an HTTP request.")
    return Part(content_id, match[1], match[2], _fields(fields.partition("\r\n\r\n")[0]))


def _fields(text: str) -> dict[str, str]:
    found = {}
    for line in text.split("\r\n"):
        name, colon, value = line.partition(":")
        if colon:
            found[name.strip().lower()] = value.strip()
    return found


def _invalid(message: str) -> Refused:
    return Refused(400, "InvalidInput", message)
