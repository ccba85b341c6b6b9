"""What Debezium is told of a PostgreSQL database."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from lakemirror.publisher.capture.postgresql.change_log import ChangeLog


def test_only_the_tables_that_are_followed_are_named() -> None:
    """Else it reads the definitions of all tables of the database at each start."""
    info = SimpleNamespace(host="h", hostaddr="", port=1, user="u", password="p", dbname="d", get_parameters=dict)
    connection: Any = SimpleNamespace(info=info)
    log = ChangeLog(connection, "slot")
    tables = [("public", "orders"), ("my schema", "a.b,c")]
    patterns = log.properties(tables)["table.include.list"].split(",")
    assert [re.fullmatch(each, ".".join(table)) is not None for each, table in zip(patterns, tables, strict=True)] == [
        True,
        True,
    ]
    assert not re.fullmatch(patterns[1], "my schema.axb,c") and len(patterns) == 2
    assert "table.include.list" not in log.properties([])
