"""Limits of the listener, TLS, the command: what is refused, and that nobody holds up others."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from running_service import Running, until
from tests import preloaded
from typer.testing import CliRunner

from lakemirror.cli import app
from lakemirror.cli import serve as cli_serve
from lakemirror.errors import LakemirrorError
from lakemirror.service import listener
from lakemirror.service.auth.principals import Issued, Principals
from lakemirror.service.certificates import Certificate, made_certificate, tls_context
from lakemirror.service.interface import Limits
from lakemirror.service.service import Options, Service, plane_of


def raw(service: Running, data: bytes, *, tls: bool = True) -> bytes:
    """What the service sends back for these bytes until it closes, or for a second."""
    plain = socket.create_connection(("127.0.0.1", service.port), timeout=10)
    connection: Any = plain
    if tls:
        connection = ssl.create_default_context(cafile=str(service.ca)).wrap_socket(plain, server_hostname="localhost")
    with connection:
        connection.sendall(data)
        connection.settimeout(0.6)
        found = b""
        try:
            while chunk := connection.recv(65536):
                found += chunk
        except (TimeoutError, OSError):
            pass
        return found


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, "Host: localhost", *headers, "", ""]).encode()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (head(f"GET /{'x' * 17_000} HTTP/1.1"), b"414"),
        (head("GET /livez HTTP/1.1", f"X: {'y' * 70_000}"), b"431"),
        (head("GET /livez HTTP/1.1", *(f"X{n}: {'y' * 20_000}" for n in range(4))), b"431"),
        (head("GET /livez HTTP/1.1", *(f"X{n}: y" for n in range(201))), b"431"),
        (head("GET /livez HTTP/1.1", "Content-Length: 1", "Transfer-Encoding: chunked"), b"400"),
        (head("GET /livez HTTP/1.1", "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", b"400"),
        (head("PUT /s/d/Files/x HTTP/1.1", "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", b"400"),
        (head("GET /livez HTTP/1.1", "Content-Length: 1", "Content-Length: 2"), b"400"),
        (head("GET /livez HTTP/1.1", "Content-Length: +1"), b"400"),
        (head("GET /livez HTTP/1.1", "Content-Length: -1"), b"400"),
        (b"GET /livez HTTP/1.1\r\n\r\n", b"400"),
        (b"\x00\x01\x02\r\n\r\n", b"400"),
        (head("GET /livez HTTP/1.1"), b"200"),
    ],
)
def test_requests_that_are_refused_unread(running: Running, data: bytes, status: bytes) -> None:
    answer = raw(running, data)
    assert answer.split(b" ")[1] == status, answer[:200]
    assert b"Traceback" not in answer


def test_plain_http_on_the_tls_port(running: Running) -> None:
    assert b"200" not in raw(running, head("GET /livez HTTP/1.1"), tls=False)


def test_old_tls_is_refused(running: Running) -> None:
    context = ssl.create_default_context(cafile=str(running.ca))
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    with (
        socket.create_connection(("127.0.0.1", running.port), timeout=10) as plain,
        pytest.raises((ssl.SSLError, OSError)),
    ):
        context.wrap_socket(plain, server_hostname="localhost")


def test_slow_headers_end_and_hold_up_nobody(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE", 0.5)
    context = ssl.create_default_context(cafile=str(running.ca))
    slow = []
    for _ in range(30):
        plain = socket.create_connection(("localhost", running.port), timeout=10)
        slow.append(context.wrap_socket(plain, server_hostname="localhost"))
        slow[-1].sendall(b"GET /livez HTTP/1.1\r\nHo")
    assert running.send("GET", "/livez").status == 200
    for each in slow:
        each.settimeout(10)
        with contextlib.suppress(ConnectionError):
            assert each.recv(100) == b""
        each.close()


def test_a_body_that_stalls(tmp_path: Path) -> None:
    issued = Principals(tmp_path).add("slow", ["sales=contribute"])
    service = Running(tmp_path, limits=Limits(body_timeout=0.3))
    try:
        token = service.token(issued)
        line = "POST /v1/workspaces/sales/mirroredDatabases HTTP/1.1"
        answer = raw(service, head(line, f"Authorization: Bearer {token}", "Content-Length: 100") + b"{")
        assert b" 408 " in answer
        unknown = raw(service, head(line, "Content-Length: 100", "Expect: 100-continue"))
        assert b" 401 " in unknown
        assert b"100 Continue" not in unknown
        asked = head(line, f"Authorization: Bearer {token}", "Content-Length: 2", "Expect: 100-continue")
        assert raw(service, asked).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    finally:
        service.stop()


def test_too_many_requests(running: Running, token: str, admin: Issued, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = {"Authorization": "Basic " + base64.b64encode(f"admin:{admin.client_secret}".encode()).decode()}
    monkeypatch.setattr(running.service.under_way, "_limits", Limits(max_requests=0))
    for path, status in (("/v1/workspaces", 429), ("/sales/x", 503)):
        answer = running.send("GET", path, token=token)
        assert (answer.status, answer.headers["Retry-After"]) == (status, "1")
        assert answer.headers["x-ms-request-id"]
    assert running.send("GET", "/", headers=secret).status == 503
    answer = running.send("HEAD", "/sales/x", token=token, headers={"x-ms-client-request-id": "mine"})
    assert answer.headers["x-ms-error-code"] == "ServerBusy"
    assert answer.headers["x-ms-client-request-id"] == "mine" and answer.headers["x-ms-version"]
    assert running.send("GET", "/sales/x").status == 401, "who asks is known before there is room for it"
    for path in ("/livez", "/readyz", "/metrics"):
        assert running.send("GET", path, headers=secret).status == 200


@pytest.mark.parametrize(
    ("target", "plane"),
    [
        ("/", "operating"), ("/?comp=list", "storage"), ("/metrics", "operating"), ("/metrics?x", "storage"),
        ("/v1", "rest"), ("/v1/x?y", "rest"), ("/v1x", "storage"), ("/ui/x", "operating"), ("/ui", "storage"),
        ("/adfs/oauth2/token", "authority"), ("/x/oauth2/v2.0/token", "authority"), ("/x/oauth2", "storage"),
        ("/x/.well-known/openid-configuration", "authority"), ("/x/discovery/v2.0/keys", "authority"),
        ("/common/discovery/instance?api-version=1.1", "authority"), ("/sales/shop/Files", "storage"),
        ("https://localhost/v1/workspaces", "rest"),
    ],
)  # fmt: skip
def test_which_plane_answers(target: str, plane: str) -> None:
    assert plane_of(target) == plane


def test_the_made_certificate(tmp_path: Path) -> None:
    first = made_certificate(tmp_path / "tls", ["lake.example"])
    assert first.authority is not None
    authority, leaf = first.authority.read_bytes(), first.chain.read_bytes()
    assert made_certificate(tmp_path / "tls", ["lake.example"]).chain.read_bytes() == leaf
    more = made_certificate(tmp_path / "tls", ["other.example"])
    assert more.chain.read_bytes() != leaf
    assert first.authority.read_bytes() == authority
    for name in ("key.pem", "ca-key.pem"):
        assert (tmp_path / "tls" / name).stat().st_mode & 0o777 == 0o600
    other = made_certificate(tmp_path / "other")
    with pytest.raises(LakemirrorError) as caught:
        tls_context(Certificate(first.chain, other.key))
    assert caught.value.code == "service-option-invalid"
    with pytest.raises(LakemirrorError):
        tls_context(Certificate(tmp_path / "none", other.key))


def test_names_of_the_certificate(running: Running) -> None:
    context = ssl.create_default_context(cafile=str(running.ca))
    for name in ("localhost", "x.dfs.localhost", "x.blob.localhost", "127.0.0.1", socket.gethostname()):
        with socket.create_connection(("127.0.0.1", running.port), timeout=10) as plain:
            context.wrap_socket(plain, server_hostname=name).close()
    with socket.create_connection(("127.0.0.1", running.port), timeout=10) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain, server_hostname="elsewhere.example")


def test_one_service_for_a_root(running: Running, root: Path) -> None:
    with pytest.raises(LakemirrorError) as caught:
        Service(root, Options())
    assert caught.value.code == "root-in-use"


@pytest.mark.parametrize(
    "options",
    [
        ["--http", "--host", "0.0.0.0"], ["--http", "--tls-cert", "x", "--tls-key", "y"], ["--tls-cert", "x"],
        ["--tls-key", "y"], ["--max-body", "much"], ["--max-body", "0"], ["--log-format", "xml"],
        ["--tls-cert", "/none", "--tls-key", "/none"], ["--tls-name", "münchen"],
    ],
)  # fmt: skip
def test_options_that_are_refused(tmp_path: Path, options: list[str]) -> None:
    found = CliRunner().invoke(app, ["serve", str(tmp_path), "--port", "0", *options])
    assert isinstance(found.exception, LakemirrorError)
    assert found.exception.code == "service-option-invalid"
    assert found.exception.exit_code == 2


def test_a_root_or_port_that_cannot_be_served(tmp_path: Path, running: Running) -> None:
    missing = CliRunner().invoke(app, ["serve", str(tmp_path / "none")])
    assert isinstance(missing.exception, LakemirrorError)
    assert missing.exception.exit_code == 2
    taken = CliRunner().invoke(app, ["serve", str(tmp_path), "--port", str(running.port)])
    assert isinstance(taken.exception, LakemirrorError)
    assert taken.exception.code == "listen-failed"


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cli_serve, "_NEEDED", ("aiohttp", "no_such_package"))
    with pytest.raises(LakemirrorError) as caught:
        cli_serve.require_extra()
    assert caught.value.code == "service-extra-missing"
    assert "pip install" in caught.value.hint
    script = (
        "import sys, lakemirror; from lakemirror.cli import app;"
        "sys.exit(any(m in sys.modules for m in ('aiohttp', 'jwt', 'cryptography', 'lakemirror.service')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_command_in_clear_until_sigterm(tmp_path: Path) -> None:
    Principals(tmp_path).add("shop", ["sales=contribute"])
    command = [sys.executable, "-m", "lakemirror.cli", "serve", str(tmp_path), "--http", "--port", "0"]
    process = preloaded.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("serving ")
        port = int(line.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(head("GET /readyz HTTP/1.1"))
            assert b" 200 " in connection.recv(1000)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert until(lambda: connection.recv(1000) == b"")
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=2)
    finally:
        process.kill()
        process.stderr.close()


def test_a_body_whose_rest_comes_after_sigterm_is_answered(tmp_path: Path) -> None:
    issued = Principals(tmp_path).add("shop", ["sales=contribute"])
    command = [sys.executable, "-m", "lakemirror.cli", "serve", str(tmp_path), "--http", "--port", "0"]
    process = preloaded.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
    assert process.stderr is not None
    try:
        port = int(process.stderr.readline().rpartition(":")[2])
        form = urlencode({
            "grant_type": "client_credentials", "client_id": "shop", "client_secret": issued.client_secret,
            "scope": "https://storage.azure.com/.default",
        }).encode()  # fmt: skip
        with contextlib.ExitStack() as stack:
            body, headers, idle = (
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20)) for _ in range(3)
            )
            ask = head("POST /adfs/oauth2/v2.0/token HTTP/1.1", f"Content-Length: {len(form)}", "Expect: 100-continue")
            body.sendall(ask)
            assert body.recv(1000).startswith(b"HTTP/1.1 100")
            body.sendall(form[:10])
            idle.sendall(head("GET /livez HTTP/1.1"))
            assert b" 200 " in idle.recv(1000)
            headers.sendall(b"GET /livez HTTP/1.1\r\nHo")
            idle.sendall(head("GET /livez HTTP/1.1"))  # when this is answered, the bytes before have been read
            assert b" 200 " in idle.recv(1000)
            process.send_signal(signal.SIGTERM)
            assert process.stderr.readline().startswith("stopping")
            assert idle.recv(1000) == b"", "an idle connection ends at once"
            body.sendall(form[10:])
            assert b" 200 " in body.recv(1000).split(b"\r\n")[0]
            headers.sendall(b"st: localhost\r\n\r\n")
            assert b" 200 " in headers.recv(1000).split(b"\r\n")[0]
            assert process.wait(30) == 0
    finally:
        process.kill()
        process.stderr.close()


def test_a_request_under_way_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    issued: Issued = Principals(tmp_path).add("late", ["sales=contribute"])
    service = Running(tmp_path)
    token = service.token(issued)
    rest = service.service.registry.create

    begun = threading.Event()

    def slow(*arguments: Any) -> Any:
        begun.set()
        time.sleep(1.0)
        return rest(*arguments)

    monkeypatch.setattr(service.service.registry, "create", slow)
    made: list[str] = []
    asking = threading.Thread(target=lambda: made.append(service.create(token, "late")))
    asking.start()
    assert begun.wait(60)
    service.stop()
    asking.join(10)
    assert len(made) == 1
    assert (tmp_path / "sales/late").is_dir()
