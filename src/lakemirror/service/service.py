"""The service of one root folder: its planes, its engine host, and the loop that follows the folders.

request ─▶ limits ─▶ plane by path ─▶ answer ─▶ metrics, audit log
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.service.auth.audit_log import AuditLog
from lakemirror.service.auth.authenticator import PrincipalAuthenticator
from lakemirror.service.auth.failure_limit import FailureLimit
from lakemirror.service.auth.principals import Principals
from lakemirror.service.auth.token_endpoints import TOKEN, Authority, is_authority
from lakemirror.service.auth.tokens import Tokens
from lakemirror.service.captures.capture_host import CaptureHost
from lakemirror.service.certificates import Certificate, made_certificate, tls_context
from lakemirror.service.host import EngineHost
from lakemirror.service.interface import Limits
from lakemirror.service.listener import MOST_HEADER_BYTES, MOST_LINE, Handler, Listener
from lakemirror.service.operating.metrics import ServiceMetrics
from lakemirror.service.operating.operating_endpoints import ROUTES, Operating, version
from lakemirror.service.own_folder import OWN_FOLDER, own_folder, work_folder
from lakemirror.service.raw_query import query_of, raw_path_of
from lakemirror.service.refused import Refused
from lakemirror.service.request_address import dialect_of
from lakemirror.service.request_body import announced_length
from lakemirror.service.request_notes import RequestNotes, begin_notes, notes
from lakemirror.service.rest.paging import Paging
from lakemirror.service.rest.registry import FolderRegistry
from lakemirror.service.rest.rest import Rest
from lakemirror.service.rest.rest_answers import refusal
from lakemirror.service.sharing.file_links import FileLinks
from lakemirror.service.sharing.sharing_endpoints import ROOT, Sharing
from lakemirror.service.storage.handler import StorageEndpoint
from lakemirror.service.storage.storage_answers import error_answer, finish_headers
from lakemirror.service.under_way import CountingAuthenticator, UnderWay
from lakemirror.service.unity.unity_endpoints import API, Unity, unity_refusal
from lakemirror.storage import Place
from lakemirror.storage.lease import RENEWED, Lease
from lakemirror.storage.place import capabilities_of
from lakemirror.storage.private_files import locked

log = logging.getLogger("lakemirror")

LOOK = 3.0  # seconds between two looks at the root for folders put there by hand
FOLLOW = 2.0  # seconds between two looks at the principals in a store
FINISH = 30.0  # seconds that requests under way get after SIGTERM
APPLIES = 12.0  # seconds that applies at work get then
LEAST_FREE = 1024**3  # bytes, and
LEAST_SHARE = 0.02  # of the disk, under which nothing is written
ROOM_LOOK = 1.0  # seconds between two looks at the free disk
_LOST = 499  # noted for a request whose client went away
_HOST = re.compile(r"[A-Za-z0-9._-]+(?::\d+)?|\[[0-9A-Fa-f:.]+\](?::\d+)?")


@dataclass(frozen=True)
class Options:
    """How a service listens. `certificate` None: one is made; `names`: more names in it. `clear`: plain HTTP.

    `state`: where the service keeps its own files, as `own_folder` has it. `file_locations`: clients of Unity Catalog's
    interface on this machine get the paths of tables, where the root is a folder.
    """

    host: str = "127.0.0.1"
    port: int = 8443
    public_url: str = ""
    certificate: Certificate | None = None
    names: tuple[str, ...] = ()
    clear: bool = False
    token_lifetime: int = 3600
    limits: Limits = field(default_factory=Limits)
    state: str | Path | None = None
    file_locations: bool = False


def plane_of(target: str) -> str:
    """Which plane answers a request target (section 2): a key of `Service._planes`."""
    path = raw_path_of(target)
    if path == "/v1" or path.startswith("/v1/"):
        return "rest"
    if path == ROOT or path.startswith(f"{ROOT}/"):
        return "sharing"
    if path == API or path.startswith(f"{API}/"):
        return "unity"
    if is_authority(path):
        return "authority"
    if (path == "/" or path in ROUTES or path.startswith("/ui/")) and "?" not in target:
        return "operating"
    return "storage"


class Service:
    """Serves one root folder."""

    def __init__(self, root: Place, options: Options) -> None:
        """LakemirrorError `service-option-invalid`, `root-in-use`."""
        self.root = root.absolute()
        self.options = options
        self._own = own_folder(self.root, options.state)
        self._work = work_folder(self._own)
        self._held = contextlib.ExitStack()
        if not self._held.enter_context(locked(self._work / "serve.lock", wait=False)):
            self._held.close()
            raise LakemirrorError("root-in-use", f"another lakemirror serves {root}")
        self._lease = Lease(self.root / OWN_FOLDER, self._work)
        self._lease.take()
        self.principals = Principals(self.root, options.state)
        self.tokens = Tokens(self._own / "keys", options.token_lifetime)
        self.registry = FolderRegistry(self.root, lambda name: self.principals.by_name(name) is not None, options.state)
        self.host = EngineHost()
        self.captures = CaptureHost(self._own)
        self.registry.on_published(self.host.wake)
        self.failures = FailureLimit()
        self.authenticator = PrincipalAuthenticator(self.principals, self.tokens, self.base_url, self.failures)
        limits = options.limits
        self._metrics = ServiceMetrics(version(), self.registry, self.host, self.captures)
        self._audit = AuditLog(self._own / "audit.log")
        self.under_way = UnderWay(limits)
        known = (
            self.registry, self.host, self.captures, self.principals, self.authenticator, self.under_way, self.base_url,
            Paging(self.tokens.derived_key("paging"), limits.page_size), limits, self.has_room,
        )  # fmt: skip
        counting = CountingAuthenticator(self.authenticator, self.under_way)
        self._planes: dict[str, Handler] = {
            "rest": Rest(*known).handle,
            "sharing": Sharing(*known, FileLinks(self.tokens.derived_key("links"))).handle,
            "unity": Unity(*known, options.file_locations).handle,
            "authority": Authority(*known, self.tokens, self.failures).handle,
            "operating": Operating(*known, self._metrics).handle,
            "storage": StorageEndpoint(self.registry, counting, limits).handle,
        }
        self._listener = Listener(self.handle, limits)
        self._following: list[asyncio.Task[None]] = []
        self._stopping, self._room, self._room_seen = False, True, -ROOM_LOOK

    @property
    def url(self) -> str:
        """Where the service listens."""
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        return f"{self._scheme}://{host}:{self._listener.port}"

    @property
    def authority_file(self) -> Place | None:
        """The certificate of the authority that was made, which clients have to trust; None for a given one."""
        made = self.options.certificate is None and not self.options.clear
        return self._own / "tls/ca.pem" if made else None

    @property
    def _scheme(self) -> str:
        return "http" if self.options.clear else "https"

    def base_url(self, request: web.BaseRequest) -> str:
        """Scheme and host under which the client reaches the service."""
        if self.options.public_url:
            return self.options.public_url.rstrip("/")
        host = request.host if _HOST.fullmatch(request.host) else "localhost"
        return f"{self._scheme}://{host}"

    async def start(self) -> None:
        """Listens, and starts the engines. LakemirrorError `listen-failed`, `service-option-invalid`."""
        tls = None
        if not self.options.clear:
            certificate = self.options.certificate or made_certificate(self._own / "tls", self.options.names)
            tls = tls_context(certificate)
        await self._listener.listen(self.options.host, self.options.port, tls)
        self.host.follow(self.registry.all_databases())
        self.captures.follow(self.registry.all_databases())
        self._following = [asyncio.create_task(each) for each in (self._follow(), self._follow_principals())]

    async def stop(self) -> bool:
        """Ends within the times of section 7; True where every engine has ended."""
        self._stopping = True
        self._listener.refuse_new()
        for each in self._following:
            each.cancel()
        engines = asyncio.create_task(asyncio.to_thread(self.host.shutdown, FINISH + APPLIES))
        captures = asyncio.create_task(asyncio.to_thread(self.captures.shutdown, FINISH))
        deadline = time.monotonic() + FINISH
        while (self.under_way.total or self._listener.is_busy) and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        await self._listener.end(1.0)
        ended = await engines
        await captures
        await asyncio.to_thread(self._audit.close)
        self._lease.give_up()
        self._held.close()
        return ended

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to any request. Never raises but for a connection that is lost."""
        noted = begin_notes()
        plane = plane_of(request.raw_path)
        begun, status = time.monotonic(), _LOST
        with self.under_way.request():
            try:
                answer = await self._answered(request, plane)
                status = answer.status
            finally:
                done = self._note(request, noted, plane, status, time.monotonic() - begun)
            if done and (kept := self._audit.kept()) is not None:
                await asyncio.wrap_future(kept)
            if self._stopping:
                answer.force_close()
            if not answer.prepared:
                answer.headers.setdefault("x-ms-request-id", noted.id)
                await answer.prepare(request)  # here, so that it counts as under way until the client has read it
                await answer.write_eof()
        return answer

    async def _answered(self, request: web.BaseRequest, plane: str) -> web.StreamResponse:
        try:
            self._check_limits(request, plane)
            answer = await self._planes[plane](request)
        except Refused as denied:
            notes().refused = denied.code
            return _refusal(request, plane, denied)
        except LakemirrorError as error:
            log.error("%s", error)
            status = error.kind.http_status if error.retry else 500
            unavailable = Refused(status, "ServiceUnavailable", "The service cannot do this now.")
            return _refusal(request, plane, unavailable)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as failure:  # the boundary around one request
            log.error("%s", coded(failure))
            return _refusal(request, plane, Refused(500, "InternalError", "The service failed; its log says more."))
        return answer

    def _check_limits(self, request: web.BaseRequest, plane: str) -> None:
        """Refused where the request is too large, or the disk almost full (section 7)."""
        if len(request.raw_path) > MOST_LINE:
            raise Refused(414, "UriTooLong", f"A request line has at most {MOST_LINE} bytes.")
        if sum(len(name) + len(value) + 4 for name, value in request.raw_headers) > MOST_HEADER_BYTES:
            raise Refused(431, "RequestHeaderFieldsTooLarge", f"Headers have at most {MOST_HEADER_BYTES} bytes.")
        announced_length(request, sys.maxsize)  # another coding than chunks is refused, whoever asks for whatever
        if plane == "storage" and request.method in ("PUT", "PATCH") and not self.has_room():
            raise Refused(503, "ServerBusy", "The disk is almost full.", {"Retry-After": "60"})

    def has_room(self) -> bool:
        """True where the disk has 1 GiB and 2 % free. It is looked at once a second."""
        now = time.monotonic()
        if now - self._room_seen > ROOM_LOOK:
            usage = shutil.disk_usage(self._work)
            self._room = usage.free >= LEAST_FREE and usage.free >= LEAST_SHARE * usage.total
            self._room_seen = now
        return self._room

    def _note(self, request: web.BaseRequest, noted: RequestNotes, plane: str, status: int, seconds: float) -> bool:
        """Counts the request, and writes it to the audit log where it belongs there. Never raises. True where it has
        done what the log must not miss: a change, or credentials given."""
        if plane == "storage":
            if noted.uploaded and status < 400:
                self._metrics.uploaded(noted.workspace, noted.database, noted.uploaded)
            changes = request.method not in ("GET", "HEAD", "OPTIONS")
        else:
            changes = plane == "rest" and not noted.operation.startswith(("Get", "List"))
        self._metrics.note(plane, noted.operation or "Other", status, seconds)
        if status in (401, 403):
            self._metrics.refused(noted.refused or str(status))
        no_token = noted.operation == TOKEN and status >= 400
        done = (changes and status < 400) or bool(noted.granted)
        if status in (401, 403) or no_token or done:
            self._record(request, noted, raw_path_of(request.raw_path), status)
        for path, of_part in noted.parts:
            if of_part == 403 or of_part < 400:
                self._record(request, noted, path, of_part)
        return done

    def _record(self, request: web.BaseRequest, noted: RequestNotes, path: str, status: int) -> None:
        try:
            self._audit.write(
                path,
                status,
                principal=noted.caller.name if noted.caller else "",
                operation=noted.operation,
                requestId=noted.id,
                remote=request.remote or "",
                **noted.granted,
            )
        except OSError as failure:
            log.error("the audit log cannot be written: %s", coded(failure))

    async def _follow(self) -> None:
        """Follows what is done by hand, and finishes deletions."""
        while True:
            try:
                await asyncio.to_thread(self._look)
            except Exception as failure:  # the boundary around one look
                log.error("%s", coded(failure))
            await asyncio.sleep(RENEWED if capabilities_of(self.root).waits else LOOK)

    async def _follow_principals(self) -> None:
        """Follows `lakemirror access`. On a disk nothing is to do: who asks for a principal looks."""
        while capabilities_of(self._own).waits:
            await asyncio.sleep(FOLLOW)
            try:
                await asyncio.to_thread(self.principals.follow)
            except Exception as failure:  # the boundary around one look
                log.error("%s", coded(failure))

    def _look(self) -> None:
        if not self._lease.renew():
            self._end_displaced()
            return
        self.registry.look()
        self.host.follow(self.registry.all_databases())
        self.captures.follow(self.registry.all_databases())
        for database in self.registry.doomed():
            self.host.stop(database.id)
            if self.host.has_stopped(database.id) and self.captures.has_ended(database.id):
                self.registry.bury(database)
        self.registry.sweep(time.time())

    def _end_displaced(self) -> None:
        """Another process serves this address: nothing more is changed here."""
        if not self._stopping:
            self._stopping = True
            log.error("%s", LakemirrorError("root-in-use", f"another lakemirror serves {self.root} now: this one ends"))
            signal.raise_signal(signal.SIGTERM)


def _refusal(request: web.BaseRequest, plane: str, error: Refused) -> web.StreamResponse:
    """A refusal in the words of the plane."""
    if plane == "unity":
        return unity_refusal(error)
    if plane != "storage":
        return refusal(error, notes().id)
    try:
        query = query_of(request.raw_path)
    except Refused:
        query = {}
    dialect = dialect_of(request.host, request.method, query, request.headers)
    answer = error_answer(error, dialect, request.method)
    finish_headers(request, answer)
    answer.force_close()  # the body was not read
    return answer
