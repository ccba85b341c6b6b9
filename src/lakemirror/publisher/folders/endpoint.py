"""The storage endpoint of one mirrored database, asked over HTTPS with the standard library alone.

Every request can be sent twice without harm, so that one whose answer is lost is sent again: an upload has a
name of its own, and the second answer to a rename shows that the first was carried out.
"""

from __future__ import annotations

import http.client
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlencode, urlsplit

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.folders.credentials import Credential, Tokens
from lakemirror.storage.addresses import is_loopback

CA_VARIABLE = "LAKEMIRROR_CA"  # a PEM file with the authority of the service's certificate
WHERE = "Correct the workspace or the database in the address; only the service can make one."
PATIENCE = 60.0  # seconds for which a request is sent again
VERSION = "2021-06-08"
TIMEOUT = 60.0  # seconds without a byte
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_PIECE = 1 << 20


@dataclass(frozen=True)
class Answer:
    """`code`: the service's error code. `again`: the request was sent before, and its answer did not come."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes
    again: bool

    @property
    def code(self) -> str:
        return self.headers.get("x-ms-error-code", "")


@dataclass(frozen=True)
class FilePart:
    """A part of a file as the body of a request."""

    path: Path
    start: int
    size: int

    def pieces(self) -> Iterator[bytes]:
        """Its bytes."""
        with self.path.open("rb") as file:
            file.seek(self.start)
            left = self.size
            while left and (piece := file.read(min(_PIECE, left))):
                left -= len(piece)
                yield piece


class Endpoint:
    """A mirrored database behind `https://host/workspace/database`. Safe for threads."""

    def __init__(
        self, url: str, credential: Credential | None = None, ca: str | os.PathLike[str] | None = None
    ) -> None:
        """`ca`: PEM file of the authority that signed the service's certificate; None: what LAKEMIRROR_CA names, else
        the system's. LakemirrorError `input-invalid`, `credential-invalid`."""
        parts = urlsplit(url)
        names = [unquote(part) for part in parts.path.split("/") if part]
        if len(names) == 4 and names[2:] == ["Files", "LandingZone"]:
            names = names[:2]
        if len(names) != 2 or not parts.hostname or parts.query or parts.fragment or parts.username:
            raise LakemirrorError(
                "input-invalid",
                f"{parts.scheme}://{parts.hostname or ''}… is no address of a mirrored database",
                hint="Give https://host/workspace/database.",
            )
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise LakemirrorError(
                "input-invalid", f"{parts.hostname}: credentials are sent in clear to this machine only",
                hint="Give an https:// address.",
            )  # fmt: skip
        self.workspace, self.database = names
        self.url = f"{parts.scheme}://{parts.netloc}/{'/'.join(map(quote, names))}"
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._ca = ca or os.environ.get(CA_VARIABLE) or None
        self._local = threading.local()
        self._tokens = Tokens(credential, self._origin, self._post)

    def ask(
        self,
        method: str,
        path: str | None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | FilePart = b"",
    ) -> Answer:
        """The answer to a request about a path of the database; None: about the workspace. It is sent again, for
        PATIENCE seconds, while the service cannot be reached or is busy.

        LakemirrorError `storage-unavailable`, `credential-invalid` (401, 403), `database-missing` (no such workspace
        or database).
        """
        inner = "" if path is None else f"/{quote(self.database, safe='')}/{quote(path)}".rstrip("/")
        target = f"/{quote(self.workspace, safe='')}{inner}"
        target += f"?{urlencode(query, quote_via=quote)}" if query else ""
        size = len(body) if isinstance(body, bytes) else body.size
        until = time.monotonic() + PATIENCE
        pause, lost, renewed = 0.1, False, False
        while True:
            token = self._tokens.token()
            sent = {"x-ms-version": VERSION, "Accept": "*/*", "Authorization": f"Bearer {token}", **(headers or {})}
            if method in ("PUT", "PATCH", "POST"):
                sent["Content-Length"] = str(size)
            wait = 0.0
            try:
                answer = self._sent(method, target, sent, body, lost)
            except ssl.SSLCertVerificationError as error:
                raise self._no_trust(error) from error
            except (OSError, http.client.HTTPException) as error:
                reason, lost = _reason(error), True
            else:
                if answer.status == 401 and not renewed:
                    self._tokens.refused(token)
                    renewed = True
                    continue
                if answer.status not in _AGAIN:
                    return self._checked(answer)
                reason = f"status {answer.status} {answer.code}"
                lost = lost or answer.status >= 500
                with suppress(ValueError):
                    wait = float(answer.headers.get("Retry-After", 0))
            wait = max(wait, pause * random.uniform(0.5, 1.5))
            if time.monotonic() + wait > until:
                raise LakemirrorError("storage-unavailable", f"{self.url}: {reason}")
            time.sleep(wait)
            pause = min(1.0, 2 * pause)

    def _sent(self, method: str, target: str, headers: Mapping[str, str], body: bytes | FilePart, lost: bool) -> Answer:
        connection = self._connection()
        try:
            content = body.pieces() if isinstance(body, FilePart) else body or None
            connection.request(method, target, content, dict(headers))
            found = connection.getresponse()
            return Answer(found.status, found.headers, found.read(), lost)
        except BaseException:
            self._local.connection = None
            connection.close()
            raise

    def _connection(self) -> http.client.HTTPConnection:
        kept: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if kept is not None and getattr(self._local, "process", 0) == os.getpid():
            return kept
        made = self._connect(self._origin)
        self._local.connection, self._local.process = made, os.getpid()
        return made

    def _connect(self, origin: str) -> http.client.HTTPConnection:
        parts = urlsplit(origin)
        if parts.scheme == "http":
            return _Connection(parts.hostname or "", parts.port, timeout=TIMEOUT)
        try:
            context = ssl.create_default_context(cafile=None if self._ca is None else str(self._ca))
        except OSError as error:
            raise LakemirrorError("credential-invalid", f"{self._ca} is no PEM file with certificates") from error
        return _TlsConnection(parts.hostname or "", parts.port, timeout=TIMEOUT, context=context)

    def _post(self, origin: str, path: str, form: bytes) -> tuple[int, bytes]:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or (parts.scheme == "http" and not is_loopback(parts.hostname or "")):
            raise LakemirrorError("credential-invalid", "the authority has no https:// address")
        until = time.monotonic() + PATIENCE
        while True:
            connection = self._connect(origin)
            try:
                headers = {"Content-Type": "application/x-www-form-urlencoded"}
                connection.request("POST", f"{parts.path.rstrip('/')}{path}", form, headers)
                answer = connection.getresponse()
                status, body = answer.status, answer.read()
                if status not in _AGAIN or time.monotonic() > until:
                    return status, body
            except ssl.SSLCertVerificationError as error:
                raise self._no_trust(error) from error
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() > until:
                    raise LakemirrorError("storage-unavailable", f"{origin}: {_reason(error)}") from error
            finally:
                connection.close()
            time.sleep(0.5)

    def _checked(self, answer: Answer) -> Answer:
        if answer.status in (401, 403):
            raise LakemirrorError("credential-invalid", f"{self.url}: {answer.status} {answer.code}")
        if answer.code in ("FilesystemNotFound", "ContainerNotFound"):
            raise LakemirrorError("database-missing", f"{self.url}: there is no such workspace", hint=WHERE)
        return answer

    def _no_trust(self, error: ssl.SSLCertVerificationError) -> LakemirrorError:
        return LakemirrorError(
            "credential-invalid",
            f"{self._origin}: the certificate is not trusted: {error.verify_message}",
            hint=f"Name the PEM file of its authority: {CA_VARIABLE}, ca=, or --ca.",
        )

    def refusal(self, answer: Answer, path: str) -> OSError:
        """An unexpected answer as an error of the file system."""
        if answer.status == 404:
            return FileNotFoundError(f"{path}: {answer.code}")
        if answer.status in (409, 412):
            return FileExistsError(f"{path}: {answer.code}")
        return OSError(f"{path}: status {answer.status} {answer.code}")


class _Connection(http.client.HTTPConnection):
    """A connection that is closed with its endpoint or its thread, whichever goes first."""

    def connect(self) -> None:
        super().connect()
        # headers and body go out in two packets: the second must not wait for the first to be confirmed
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be ending
            self.close()


class _TlsConnection(_Connection, http.client.HTTPSConnection):
    pass


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or type(error).__name__
