"""What Debezium is told of a PostgreSQL database, and which slot is made there."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from lakemirror.publisher.capture.postgresql import change_log
from lakemirror.publisher.capture.postgresql.change_log import ChangeLog


def test_no_table_is_left_out_but_those_with_changes_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debezium takes changes under a name that it leaves out for those of the name that the table had before."""
    info = SimpleNamespace(host="h", hostaddr="", port=1, user="u", password="p", dbname="d", get_parameters=dict)
    connection: Any = SimpleNamespace(info=info)
    log = ChangeLog(connection, "slot")
    assert not [name for name in log.properties() if name.startswith("table.")]
    tables = [("my schema", "a.b,c"), ("public", "orders")]
    large = change_log._TooLarge(frozenset(tables), 1, 1)
    monkeypatch.setattr(change_log, "_LEFT_OUT", {7: large})
    patterns = log.properties()["table.exclude.list"].split(",")
    assert all(re.fullmatch(each, ".".join(table)) for each, table in zip(patterns, tables, strict=True))
    assert not re.fullmatch(patterns[0], "my schema.axb,c")


@pytest.mark.parametrize(("version", "is_kept"), [(160000, False), (170000, True), (180001, True)])
def test_a_slot_goes_on_after_a_failover_where_the_server_can_do_it(version: int, is_kept: bool) -> None:
    said: list[str] = []

    class Server:
        """It has a publication, and a slot once it was made."""

        info = SimpleNamespace(server_version=version)

        def execute(self, query: str, _: Any = None) -> Any:
            said.append(query)
            made = any("pg_create_logical_replication_slot" in each for each in said)
            row = (False, "reserved", 0, 7) if made else None
            return SimpleNamespace(fetchone=lambda: (1,) if "pg_publication " in query else row)

    connection: Any = Server()
    assert ChangeLog(connection, "slot").make().confirmed == 7
    (made,) = (each for each in said if "pg_create_logical_replication_slot" in each)
    assert ("failover => true" in made) is is_kept
