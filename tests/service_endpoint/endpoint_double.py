"""The storage plane alone on a loopback port: a registry and an authenticator in memory, for tests.

As a program: `endpoint_double.py ROOT` serves and prints its port. The variable STAGED_COPIES names where a store has
what is staged.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import os
import ssl
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.seen_in_store import SeenInStore

from lakemirror.service.interface import Caller, DatabaseEntry, Limits, WorkspaceEntry
from lakemirror.service.refused import Refused
from lakemirror.service.request_address import Target
from lakemirror.service.storage import StorageEndpoint
from lakemirror.storage import Place, place
from lakemirror.storage.place import served_files

WORKSPACE_ID = "11111111-2222-3333-4444-555555555555"
DATABASE_ID = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
ACCOUNT_KEY = "bG9va2luZyBmb3IgYSBrZXk="


class MemoryRegistry:
    """Workspaces `ws` and `other`, each with a database `sales`, and `ws` with `empty`."""

    def __init__(self, root: Place, own: Path) -> None:
        self._staging = own / ".lakemirror" / "staged"
        self.wakes: list[str] = []
        self._workspaces = [
            WorkspaceEntry(WORKSPACE_ID, "ws", root / "ws"),
            WorkspaceEntry("99999999-2222-3333-4444-555555555555", "other", root / "other"),
        ]
        self._databases = {
            "ws": [
                DatabaseEntry(DATABASE_ID, "sales", root / "ws" / "sales"),
                DatabaseEntry("aaaaaaaa-bbbb-cccc-dddd-000000000000", "empty", root / "ws" / "empty"),
            ],
            "other": [DatabaseEntry("aaaaaaaa-0000-cccc-dddd-eeeeeeeeeeee", "sales", root / "other" / "sales")],
        }
        for databases in self._databases.values():
            for database in databases:
                served_files(database.folder).make_folder("Files/LandingZone")
                served_files(database.folder).make_folder("Tables")

    @property
    def staging(self) -> Path:
        return self._staging

    @property
    def staged_copies(self) -> Place | None:
        copies = os.environ.get("STAGED_COPIES")
        return place(copies) if copies else None

    def workspaces(self) -> list[WorkspaceEntry]:
        return self._workspaces

    def workspace(self, name_or_id: str) -> WorkspaceEntry | None:
        wanted = name_or_id.lower()
        return next((each for each in self._workspaces if wanted in (each.id, each.name)), None)

    def databases(self, workspace: WorkspaceEntry) -> list[DatabaseEntry]:
        return self._databases[workspace.name]

    def database(self, workspace: WorkspaceEntry, name_or_id: str) -> DatabaseEntry | None:
        wanted = name_or_id.lower().removesuffix(".mirroreddatabase")
        return next((each for each in self.databases(workspace) if wanted in (each.id, each.display_name)), None)

    def published(self, database: DatabaseEntry) -> None:
        self.wakes.append(database.id)


class MemoryAuthenticator:
    """`Bearer NAME` is the principal NAME; anything with a key or a SAS is `loader`."""

    def __init__(self, roles: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.roles = roles or {"loader": {"ws": "contribute"}, "reader": {"ws": "read"}, "admin": {"*": "contribute"}}

    def is_principal(self, name: str) -> bool:
        return name in self.roles

    async def authenticate(self, request: web.BaseRequest, target: Target | None = None) -> Caller:
        header = request.headers.get("Authorization", "")
        if target is not None and "sig" in target.query:
            kinds = frozenset(target.query.get("srt", "sco"))
            return Caller("loader", self.roles["loader"], frozenset(target.query.get("sp", "")), kinds)
        if not header:
            raise Refused(401, "NoAuthenticationInformation", "No credentials.", {"WWW-Authenticate": "Bearer"})
        kind, _, name = header.partition(" ")
        name = name if kind == "Bearer" else name.partition(":")[0]
        if name not in self.roles:
            raise Refused(401, "InvalidAuthenticationInfo", "The token is foreign.")
        return Caller(name, self.roles[name])


class EndpointServer:
    """The endpoint in a thread of its own. `url`: without a slash at the end."""

    def __init__(
        self, root: Path, limits: Limits | None = None, port: int = 0, *, tls: bool = False, served: Place | None = None
    ) -> None:
        """`tls`: HTTPS with a certificate that `certificate` names. `served`: where the databases are; None: `root`."""
        self.root = root
        self.served = served or root
        for workspace in () if served else ("ws/sales", "ws/empty", "other/sales"):
            (root / workspace).mkdir(parents=True, exist_ok=True)
        self.registry = MemoryRegistry(self.served, root)
        self.authenticator = MemoryAuthenticator()
        self.handler = StorageEndpoint(self.registry, self.authenticator, limits or Limits()).handle
        self.certificate = root / "certificate.pem"
        self._tls = own_certificate(self.certificate) if tls else None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runner: web.ServerRunner | None = None
        self.port = asyncio.run_coroutine_threadsafe(self._start(port), self._loop).result()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def database(self) -> Any:
        folder = self.served / "ws" / "sales"
        return folder if isinstance(folder, Path) else SeenInStore(folder)

    @property
    def landing_zone(self) -> Any:
        return self.database / "Files" / "LandingZone"

    def staged(self) -> list[Path]:
        """What the staging folder of the database holds and is not being removed."""
        return sorted((self.registry.staging / DATABASE_ID).glob("[!t]*"))

    def close(self) -> None:
        """Ends the server; harmless where it has ended."""
        if self._loop.is_closed():
            return
        assert self._runner is not None
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self, port: int) -> int:
        self._runner = web.ServerRunner(web.Server(self.handler, auto_decompress=False), shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=self._tls)
        await site.start()
        return int(self._runner.addresses[0][1])


def own_certificate(path: Path) -> ssl.SSLContext:
    """A server's TLS context whose certificate is at `path`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "endpoint")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(certificate.public_bytes(Encoding.PEM))
    private = path.with_suffix(".key")
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, private)
    return context


if __name__ == "__main__":
    server = EndpointServer(Path(sys.argv[1]), port=int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(server.port, flush=True)
    threading.Event().wait()
