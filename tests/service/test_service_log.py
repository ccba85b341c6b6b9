"""What a user sees of broken requests: lines of one line each, never a traceback."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import sys
import time
from pathlib import Path

import pytest
from running_service import until
from tests import preloaded

from lakemirror.service.auth.principals import Principals

BROKEN = [
    b"\x00\xff\xfe garbage\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /%zz HTTP/1.1\r\nHost: \xff\r\n\r\n",
    b"PUT /sales/x/Files/a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
    b"PUT /sales/x/Files/a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
    b"PUT /sales/x/Files/a HTTP/1.1\r\nHost: h\r\nContent-Length: -3\r\n\r\nabc",
    b"PUT /sales/x/Files/a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    b"POST /adfs/oauth2/v2.0/token HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nshort",
    b"GET " + b"/x" * 20_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\n" + b"A: b\r\n" * 500 + b"\r\n",
    b"GET / HTTP/1.1\r\nBad Header\r\n\r\n",
    b"POST /v1/workspaces HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


def send(port: int, data: bytes, tls: bool, *, reset: bool) -> None:
    """Sends the bytes and goes away, by a reset or after what is answered."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            raw = context.wrap_socket(raw)
        raw.sendall(data)
        if reset:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            raw.settimeout(0.3)
            try:
                while raw.recv(65536):
                    pass
            except OSError:
                pass
        raw.close()


@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
def test_broken_requests_leave_no_traceback(tmp_path: Path, tls: bool) -> None:
    root = tmp_path / "root"
    root.mkdir()
    Principals(root).add("shop", ["sales=contribute"])
    log = tmp_path / "log"
    words = [sys.executable, "-m", "lakemirror.cli", "serve", str(root), "--port", "0", *([] if tls else ["--http"])]
    with log.open("wb") as said:
        process = preloaded.Popen(words, stderr=said, stdout=said)
    try:
        found = until(lambda: re.search(r"serving .*:(\d+)\n", log.read_text()), 60)
        port = int(found[1])
        for data in BROKEN:
            send(port, data, tls, reset=False)
            send(port, data, tls, reset=True)
        if tls:
            for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01", b""):
                send(port, data, False, reset=False)
        time.sleep(0.2)
        assert process.poll() is None
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    text = log.read_text()
    assert "Traceback" not in text and "  File " not in text, text[-3000:]
    assert " error " not in text, text[-3000:]
