"""What happened in a database in an object store: spooled on this machine, and in the store after a pass."""

from __future__ import annotations

from pathlib import Path

from tests.databases import Database
from tests.object_stores import StoreServer

from lakemirror.executions.execution_log import read_executions
from lakemirror.executions.executions_table import EXECUTIONS
from lakemirror.readers.table_readers import readable_tables


def test_a_pass_ends_with_its_executions_in_the_store(s3: StoreServer, tmp_path: Path) -> None:
    database = Database(f"{s3.bucket()}/shop", s3.options)
    database.put("t", 1, {"n": [1, 2]})
    first = database.opened(cache_dir=str(tmp_path / "here"))
    first.sync()
    database.put("t", 2, {"n": [3]})
    first.sync()  # soon after: its line waits on this machine
    assert [each.last for each in first.log()] == [1, 2]
    elsewhere = database.opened(cache_dir=str(tmp_path / "there"))
    assert [each.last for each in elsewhere.log()] == [1], "another machine sees what is in the store"
    del first
    database.put("t", 3, {"n": [4]})
    again = database.opened(cache_dir=str(tmp_path / "here"))
    again.sync()
    assert [each.last for each in elsewhere.log()] == [1, 2, 3], "the next process takes the lines that were left"
    assert [each.last for each in read_executions(again.storage, again.settings, "t")] == [1, 2, 3]
    assert [table.name for table in readable_tables(again.storage.uri())] == ["t"]
    assert not again.storage.exists("Files/Monitoring/executions")
    assert again.storage.exists(f"{EXECUTIONS}/_delta_log/00000000000000000001.json")
