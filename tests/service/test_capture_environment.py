"""What the process of a capture gets of the service's environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from lakemirror.service.captures.capture_declaration import CaptureDeclaration, declared
from lakemirror.service.captures.capture_process import command, environment
from lakemirror.service.refused import Refused
from lakemirror.storage import connections

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "of S3", "AZURE_STORAGE_ACCOUNT_KEY": "of Azure",
    "GOOGLE_SERVICE_ACCOUNT_KEY": "of Google",
    "LAKEMIRROR_CREDENTIAL": "of a principal", "LAKEMIRROR_CAPTURE_SHOP": "of a source", "PGPASSWORD": "of PostgreSQL",
    "MYSQL_PWD": "of MariaDB", "GITHUB_TOKEN": "of others", "https_proxy": "http://me:word@proxy",
}  # fmt: skip
NEEDED = {"PATH": "/bin", "HOME": "/home/me", "TZ": "UTC", "LAKEMIRROR_CACHE_FOLDER": "/cache", "LC_ALL": "C.UTF-8"}
OF_STORES = {"AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_SERVICE_ACCOUNT_KEY", "https_proxy"}


@pytest.fixture(autouse=True)
def of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (SECRETS | NEEDED).items():
        monkeypatch.setenv(name, value)


def test_no_secret_is_passed_on(tmp_path: Path) -> None:
    found = environment(tmp_path, tmp_path / "shop")
    assert found.items() >= NEEDED.items() and not found.keys() & SECRETS.keys()
    assert found["PGPASSFILE"] == str(tmp_path / "secrets/.pgpass")
    assert not any(value in text for value in SECRETS.values() for text in found.values())


def test_those_of_a_store_are_passed_on_to_a_capture_into_it(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    connections.give_options("s3://lake", {"aws_endpoint_url": "http://127.0.0.1:1", "aws_session_token": "given"})
    try:
        folder: Any = "s3://lake/shop"  # as its place is written
        found = environment(tmp_path, folder)
        assert found.keys() & SECRETS.keys() == OF_STORES
        assert found["aws_endpoint_url"] == "http://127.0.0.1:1" and found["aws_session_token"] == "given"
        words = command("follow", folder, CaptureDeclaration("shop", "postgresql://me@h/db"), "word")
        assert "--storage=aws_session_token" in words and not any("given" in each for each in words)
    finally:
        connections.forget_all()


@pytest.mark.parametrize(
    "source",
    [
        "sqlserver://me@h/db?encrypt=true&trustServerCertificate=true",
        "mysql://me@h/db?ssl_ca=/etc/ca.pem",
        "mariadb://me@h/db",
        "postgres://me@h/db",
    ],
)
def test_the_databases_that_a_service_captures(source: str) -> None:
    words = declared("shop", {"source": source, "tables": ["dbo.*"]}).words()
    assert words == [f"--from={source}", "--name=shop", "--tables=dbo.*"]


@pytest.mark.parametrize(
    "source",
    [
        "sqlserver://me@h/db?trustStore=/etc/x",
        "sqlserver://me@h/db?accessToken=x",
        "kafka://h/p.*",
        "mysql://me@h/db?x=1",
    ],
)
def test_sources_that_a_service_does_not_capture(source: str) -> None:
    with pytest.raises(Refused, match="source") as refused:
        declared("shop", {"source": source})
    assert refused.value.status == 400
