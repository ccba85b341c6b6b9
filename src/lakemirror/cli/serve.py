"""`lakemirror serve ROOT`: every mirrored database under a folder, behind one HTTPS address."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemirror.cli.narration import utc_time
from lakemirror.cli.options import StorageOptions, with_groups
from lakemirror.cli.printable import printable, say
from lakemirror.cli.supervised import leave
from lakemirror.errors import LakemirrorError
from lakemirror.storage import Place
from lakemirror.storage.addresses import is_loopback
from lakemirror.storage.place import database_place, local_path

if TYPE_CHECKING:
    from lakemirror.service.service import Service

_NEEDED = ("aiohttp", "awscrt", "cryptography", "jwt", "prometheus_client")


@dataclass(frozen=True)
class AddressOptions:
    """Where the service listens, how clients are to trust it, and where it says that tables are."""

    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="The port to listen on; 0: any.", min=0, max=65535)] = 8443
    public_url: Annotated[
        str, typer.Option(help="Clients' address, such as https://lake.example; empty: each request's.")
    ] = ""
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain, PEM; without it one is made.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="Private key of --tls-cert, PEM.")] = None
    tls_name: Annotated[
        list[str] | None, typer.Option(help="A further name or address in the certificate that is made.")
    ] = None
    http: Annotated[bool, typer.Option("--http", help="Plain HTTP, on a loopback address only.")] = False
    file_locations: Annotated[
        bool, typer.Option("--file-locations", help="Tell clients of Unity's interface on this machine tables' paths.")
    ] = False

    def check(self, root: Place) -> None:
        """LakemirrorError `service-option-invalid` for options that exclude one another."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise LakemirrorError("service-option-invalid", "--tls-cert and --tls-key belong together")
        if not self.host:
            raise LakemirrorError("service-option-invalid", "--host is empty; 0.0.0.0 listens on every address")
        if self.http and (self.tls_cert or not is_loopback(self.host)):
            message = "--http is for a loopback address, and without a certificate"
            raise LakemirrorError("service-option-invalid", message)
        if self.file_locations and local_path(root) is None:
            raise LakemirrorError("service-option-invalid", f"--file-locations needs a folder on a disk, not {root}")


@dataclass(frozen=True)
class LimitOptions:
    """How much the service takes at once, and how long a token is valid."""

    token_lifetime: Annotated[int, typer.Option(help="Seconds that a token is valid.", min=1)] = 3600
    page_size: Annotated[int, typer.Option(help="Entries on each page of a REST list.", min=1, max=10_000)] = 100
    max_body: Annotated[str, typer.Option(help="Largest request body, such as 500MiB or 4GiB.")] = "4GiB"
    body_timeout: Annotated[
        float, typer.Option(help="Seconds without a byte after which a request body is refused.", min=0.1)
    ] = 30.0
    max_requests: Annotated[int, typer.Option(help="Requests that may be under way at one time.", min=1)] = 512


State = Annotated[
    str | None,
    typer.Option(
        help="The service's own folder on a disk; without it ROOT/.lakemirror. "
        "A store needs it, or the word store: ROOT/.lakemirror there."
    ),
]


@with_groups
def serve(
    root: Annotated[str, typer.Argument(help="The folder that holds the workspaces, or its address in a store.")],
    address: AddressOptions,
    limits: LimitOptions,
    state: State = None,
    storage: StorageOptions = None,
    log_format: Annotated[str, typer.Option(help="How the log on stderr is written: text or json.")] = "text",
) -> None:
    """Serve every mirrored database under a folder or an address: REST, storage endpoint, page. Ends on SIGTERM.

    Example: lakemirror serve /srv/lake --host 0.0.0.0 --tls-name lake.example
    """
    require_extra()
    from lakemirror.service.certificates import Certificate
    from lakemirror.service.interface import Limits
    from lakemirror.service.service import Options, Service

    place = database_place(root)
    address.check(place)
    if log_format not in ("text", "json"):
        raise LakemirrorError("service-option-invalid", f"--log-format {log_format!r} is neither text nor json")
    _log(log_format)
    options = Options(
        address.host,
        address.port,
        address.public_url,
        Certificate(address.tls_cert, address.tls_key) if address.tls_cert and address.tls_key else None,
        tuple(address.tls_name or ()),
        clear=address.http,
        token_lifetime=limits.token_lifetime,
        limits=Limits(_bytes(limits.max_body), limits.body_timeout, limits.page_size, limits.max_requests),
        state=state,
        file_locations=address.file_locations,
    )
    import asyncio

    ended = asyncio.run(_serve(Service(place, options)))
    if not ended:
        say("running applies did not end in time: they end with the process, which is safe")
    leave(0)


def require_extra() -> None:
    """LakemirrorError `service-extra-missing` where a package of the extra is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise LakemirrorError("service-extra-missing", f"the service needs {', '.join(missing)}")


async def _serve(service: Service) -> bool:
    """Serves until a signal comes; a second one ends the process at once."""
    import asyncio

    stopping = asyncio.Event()

    def on_signal(number: int) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal, number)
    await service.start()
    say(printable(f"serving {service.root} at {service.url}"))
    if service.authority_file is not None:
        say(printable(f"clients trust {service.authority_file}"))
    await stopping.wait()
    say("stopping; again to stop at once")
    return await service.stop()


def _bytes(text: str) -> int:
    """The bytes of `500`, `500MiB`, `4GiB`. LakemirrorError `service-option-invalid`."""
    units = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
    number = text.rstrip("KMGTiB ")
    unit = text[len(number) :].strip()
    if not number.isascii() or not number.isdigit() or unit not in units or int(number) == 0:
        raise LakemirrorError("service-option-invalid", f"--max-body {text!r} is no size, such as 500MiB or 4GiB")
    return int(number) * units[unit]


def _log(form: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines() if form == "json" else _TextLines())
    for name, level in (("lakemirror", logging.INFO), ("asyncio", logging.ERROR), ("aiohttp", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


class _TextLines(logging.Formatter):
    """One line for each record, without a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(f"{utc_time(record)} {record.levelname.lower()} {_message(record)}")


class _JsonLines(logging.Formatter):
    """One object a line: time, level, message, and database, table and capture where the message has them."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": utc_time(record), "level": record.levelname.lower(), "message": _message(record),
        }  # fmt: skip
        line.update({name: getattr(record, name) for name in ("database", "table", "capture") if hasattr(record, name)})
        return json.dumps(line)


def _message(record: logging.LogRecord) -> str:
    """The message; of another package's error its first line and what was raised."""
    if record.name.split(".")[0] == "lakemirror":
        return record.getMessage()
    raised = record.exc_info[1] if record.exc_info else None
    return record.getMessage().partition("\n")[0] + (f": {type(raised).__name__}" if raised is not None else "")
