"""What MySQL alone has, through a real server: JSON, compressed transactions, cascades, ways to log in, a failover."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.capture.test_mariadb_types import capture, files
from tests.mariadb import LOGGED, MariaDb, execute
from tests.table_rows import read_table

from lakemirror import MirroredDatabase

pytestmark = [pytest.mark.full, pytest.mark.parametrize("server_kind", ["mysql"])]


def rows(db: Path, url: str, table: str) -> list[dict[str, Any]]:
    result = MirroredDatabase(db, engine="local").sync()
    assert not result.failed, result.failed
    found = read_table(db / "Tables" / url.rpartition("/")[2] / table).to_pylist()
    return sorted(found, key=lambda row: int(row["id"]))


def document(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON value; some in the large form, above 64 KiB."""
    what = rng.randrange(9 if depth < 5 else 6)
    if what < 2:
        large = [2**15, -(2**15) - 1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1]
        return rng.choice([0, 1, -1, *large, rng.randrange(-(10**6), 10**6)])
    if what == 2:
        found = struct.unpack("<d", rng.randbytes(8))[0]
        return rng.choice([1.0, -0.0, 1e15, 1e16, 0.1, 1e-15, 1e-16, found if abs(found) < 1e300 else 2.5])
    if what == 3:
        return rng.choice([True, False, None])
    if what < 6:
        return rng.choice(["", "ü€😀", 'a"b\\c/\n\t\x01\x7f', "x" * rng.choice([127, 128, 20000])])
    if what == 6:
        return [document(rng, depth + 1) for _ in range(rng.randrange(6))]
    return {rng.choice("abü") * rng.randrange(4): document(rng, depth + 1) for _ in range(rng.randrange(6))}


def test_json_has_the_same_text_loaded_and_logged(mariadb_server: MariaDb, tmp_path: Path) -> None:
    url, seed = mariadb_server.database(), random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    texts = [json.dumps(document(rng)) for _ in range(200)] + [json.dumps(["x" * 20000] * 4 + [{"a": -40000}])]
    own = ("json_object('d', date'2020-01-02', 'm', timestamp'1969-12-31 03:04:05.6')",
           "json_object('t', cast('-12:03:04.5' as time(6)), 'u', cast('100:00:00' as time))",
           "json_array(1.50, -0.5, cast(1 as decimal(65, 30)), cast(1999 as year), b'101', repeat(x'00ff', 100))",
           "json_object('g', st_geomfromtext('point(1 2)'), 'f', cast(1.1 as float))")  # fmt: skip
    execute(url, "create table t (id int primary key, j json)")
    capture(tmp_path, url)
    quoted = ["'" + text.replace("\\", "\\\\").replace("'", "''") + "'" for text in texts]
    execute(url, *(f"insert into t values ({number}, {value})" for number, value in enumerate([*quoted, *own])))
    capture(tmp_path, url)
    loaded = execute(url, "select id, cast(j as char) from t order by id")
    streamed = files(tmp_path, url, "t")[-1]
    assert len(loaded) == len(texts) + len(own)
    assert dict(zip(streamed["id"].to_pylist(), streamed["j"].to_pylist(), strict=True)) == dict(loaded)


def test_compressed_transactions_partial_json_cascades_and_tags(mariadb_server: MariaDb, tmp_path: Path) -> None:
    url = mariadb_server.database()
    cascades = "foreign key (p) references parent (id) on delete cascade on update cascade"
    execute(
        url,
        "create table parent (id int primary key, j json, rest longtext)",
        f"create table child (id int primary key, p int, {cascades})",
        "insert into parent (id) values (1), (2), (3)",
        "insert into child values (1, 1), (2, 2), (3, 3)",
    )
    capture(tmp_path, url)
    execute(
        url,
        "set session binlog_transaction_compression = ON",
        "begin",
        *(f"insert into parent values ({number}, '[1]', repeat('x', 2000000))" for number in range(10, 30)),
        "update parent set id = 4, j = '{}' where id = 1",
        "delete from parent where id = 2",
        "commit",
        "set gtid_next = 'automatic:tagged'",
        "insert into parent (id) values (5)",
    )
    capture(tmp_path, url)
    execute(
        url,
        "set session binlog_row_value_options = PARTIAL_JSON",
        "update parent set j = json_set(j, '$[0]', 2) where id = 10",
    )
    said = capture(tmp_path, url)
    assert any("PARTIAL_JSON" in each and "loaded again" in each for each in said), said
    found = rows(tmp_path, url, "parent")
    assert [row["id"] for row in found] == [3, 4, 5, *range(10, 30)]
    assert [row["j"] for row in found[:5]] == [None, "{}", None, "[2]", "[1]"] and len(found[4]["rest"]) == 2_000_000
    assert rows(tmp_path, url, "child") == [{"id": 1, "p": 4}, {"id": 3, "p": 3}]


@pytest.mark.parametrize("tls", [True, False])
def test_a_password_in_the_cache_of_the_server_and_not(
    own_server: Callable[..., MariaDb], tmp_path: Path, tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first login sends the password by TLS, or by the server's public key; later ones send its hash."""
    server = own_server(*LOGGED, *([] if tls else ["--tls-version="]))
    url = server.database()
    execute(url, "create table t (id int primary key)", "insert into t values (1)",
            "create user keeper@'%' identified with caching_sha2_password by 'tulip'",
            "grant all on *.* to keeper@'%'")  # fmt: skip
    monkeypatch.setenv("MYSQL_PWD", "tulip")
    keeper = server.url(url.rpartition("/")[2], "keeper")
    for number in (2, 3):
        capture(tmp_path, keeper)
        execute(url, f"insert into t values ({number})", "flush privileges")
    capture(tmp_path, keeper)
    assert [row["id"] for row in rows(tmp_path, url, "t")] == [1, 2, 3]
