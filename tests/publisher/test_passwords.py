"""No part of a password is in a message, in its hint, or in what an error was caused by."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from tests.commands import CommandRunner

from lakemirror.cli import app
from lakemirror.errors import LakemirrorError
from lakemirror.passwords import without_passwords
from lakemirror.publisher import Landing
from lakemirror.publisher.sources.files import read_file
from lakemirror.publisher.sql import publish_sql
from lakemirror.storage.place import storage_of
from lakemirror.verify.source_rows import Source

DELIMITERS = "/?#@:%&=;, []'\""
URLS = (
    "postgresql://bob:{}@127.0.0.1:1/db?connect_timeout=1", "postgres://bob:{}@127.0.0.1:1,127.0.0.1:2/db",
    "postgresql://127.0.0.1:1/db?user=bob&password={}", "postgresql://127.0.0.1:1/db?password={}&connect_timeout=1",
    "postgresql://bob:{}@[::1/db", "postgresql://bob:{}@",
)  # fmt: skip
NO_URLS = (
    "host=127.0.0.1 user=bob password={}", "bob:{}@127.0.0.1/db", "mysql://bob:{}@127.0.0.1/db",
    "postgresql+psycopg2://bob:{}@127.0.0.1/db", "Server=h;Uid=bob;Pwd={};", "sqlite://bob:{}@127.0.0.1/db",
    "duckdb://bob:{}@h/db", "sqlite:///x.db?password={}",
)  # fmt: skip
PASSWORDS = [f"kxq{mark}wvz" for mark in DELIMITERS] + [
    "kxq/wvz@kxq:wvz",
    "%zzkxq%wvz",
    "kxq wvz%2",
    "@kxqwvz@",
    "/kxqwvz/",
]


def leaks(error: BaseException) -> list[str]:
    """What an error and those behind it show of a password; its frames are not shown to users."""
    shown, at = [], error
    while at is not None:
        shown += [str(at), repr(at), str(getattr(at, "hint", "")), str(getattr(at, "file", ""))]
        at = at.__cause__ or at.__context__  # type: ignore[assignment]
    shown += traceback.format_exception_only(error)
    return [text for text in shown if "kxq" in text or "wvz" in text]


def refused(act: Callable[[], object]) -> LakemirrorError:
    with pytest.raises(LakemirrorError) as caught:
        act()
    assert leaks(caught.value) == []
    return caught.value


@pytest.mark.parametrize("password", [*PASSWORDS, quote("kxq/wvz", safe="")])
@pytest.mark.parametrize("url", URLS)
def test_what_the_driver_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, password: str) -> None:
    """A driver that quotes all of the URL, and each part of it."""
    from lakemirror.publisher.sources.sql_databases import DRIVERS

    given = url.format(password)

    class Failed(Exception):
        pass

    def connect(target: str, **_: object) -> None:
        pieces = target
        for mark in DELIMITERS:
            pieces = pieces.replace(mark, '" "')
        raise Failed(f'cannot read "{target}": invalid integer value "{pieces}"') from ValueError(target)

    monkeypatch.setitem(sys.modules, DRIVERS["postgresql"], SimpleNamespace(connect=connect, Error=Failed))
    error = refused(lambda: publish_sql(Landing(tmp_path).table("t", ["id"]), given, "select 1"))
    assert error.code == "sql-failed" and "cannot read" in error.message
    assert "PGPASSWORD" in error.hint


@pytest.mark.parametrize("password", ["kxq/wvz", "kxq%zzwvz", "kxq wvz", "kxq@wvz", "kxq&wvz", "kxq]wvz["])
@pytest.mark.parametrize("url", URLS[:3])
def test_what_libpq_says(tmp_path: Path, url: str, password: str) -> None:
    pytest.importorskip("adbc_driver_postgresql")
    given = url.format(password)
    error = refused(lambda: publish_sql(Landing(tmp_path).table("t", ["id"]), given, "select 1"))
    assert error.code == "sql-failed"


@pytest.mark.parametrize("url", [*URLS, *NO_URLS])
def test_addresses_that_are_no_place(tmp_path: Path, url: str) -> None:
    given = url.format("kxq/wvz")
    table = Landing(tmp_path).table("t", ["id"])
    if url in NO_URLS:
        assert refused(lambda: publish_sql(table, given, "select 1")).code == "input-invalid"
    assert refused(lambda: Source(given).rows({}).__enter__()).code == "input-invalid"
    assert refused(lambda: read_file(given)).code == "input-invalid"
    found = CommandRunner().invoke(app, ["publish", str(tmp_path), "t", "--from", given, "--create"])
    assert found.exit_code == 2
    assert "kxq" not in found.output and "wvz" not in found.output


@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs", "az", "abfss", "postgresql", "hdfs"])
@pytest.mark.parametrize("secret", ["kxqwvz", "kxq/wvz", "kxq@wvz"])
def test_addresses_of_databases(scheme: str, secret: str) -> None:
    error = refused(lambda: storage_of(f"{scheme}://key:{secret}@bucket/shop"))
    assert error.code == "address-unsupported"


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ('FATAL: no role "bob"', "postgresql://bob@h/db", 'FATAL: no role "bob"'),
        ("host h, port 5432", "postgresql://bob:pw@h:5432/db", "host h, port 5432"),
        ("user postgres", "postgresql://u:post@h/db", "user postgres"),
        ("a/b and b", "postgresql://u:a/b@h/db", "*** and ***"),
        ("nothing", "shop.db", "nothing"),
    ],
)
def test_what_is_left(text: str, address: str, shown: str) -> None:
    assert without_passwords(text, address) == shown
