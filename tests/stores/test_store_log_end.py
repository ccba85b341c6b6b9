"""The end of a log in a store is listed from a checkpoint on that was listed before; any doubt lists all of it."""

from __future__ import annotations

import json

import pytest
from tests.object_stores import StoreServer
from tests.unit.delta.test_delta_log import METADATA, PROTOCOL, add

from lakemirror.delta.checkpoint import write_checkpoint
from lakemirror.delta.log import Action, read_snapshot
from lakemirror.delta.log_folder import Log, list_log
from lakemirror.mirror.table_log import LogCache
from lakemirror.storage.connections import give_options
from lakemirror.storage.object_store import ObjectStore
from lakemirror.storage.place import etag_of, place


@pytest.fixture(
    params=["s3", *(pytest.param(each, marks=pytest.mark.full) for each in ("minio_server", "azurite_server"))]
)
def table(request: pytest.FixtureRequest) -> str:
    server: StoreServer = request.getfixturevalue(request.param)
    bucket = server.bucket()
    give_options(bucket, server.options)
    return f"{bucket}/shop/Tables/orders"


def commit(table: str, version: int, *actions: Action) -> None:
    path = place(table) / f"_delta_log/{version:020}.json"
    path.store.put(path.key, "".join(json.dumps(each) + "\n" for each in actions).encode())  # type: ignore[union-attr]


def grown(table: str, last: int) -> None:
    """A table with a file from each of its commits, and a checkpoint after every tenth."""
    commit(table, 0, PROTOCOL, METADATA)
    for version in range(1, last + 1):
        commit(table, version, add(f"{version}"))
        if version % 10 == 0:
            snapshot = read_snapshot(table)
            assert snapshot is not None
            write_checkpoint(snapshot)


def check(table: str, log: LogCache) -> Log:
    known = log.read()
    assert known is not None
    expected, found = read_snapshot(table), read_snapshot(table, listed=known)
    assert expected is not None and found is not None
    assert (found.version, found.metadata) == (expected.version, expected.metadata)
    assert found.files.keys() == expected.files.keys()
    return known


def test_the_end_is_listed_and_is_what_a_listing_of_all_gives(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begins: list[str] = []
    entries = ObjectStore.entries

    def noted(self: ObjectStore, prefix: str, after: str = "") -> object:
        begins.append(after.rpartition("/")[2])
        return entries(self, prefix, after)

    grown(table, 50)
    log = LogCache(table, 1e-9)
    check(table, log)
    for version in range(51, 56):
        commit(table, version, add(f"{version}"))
    monkeypatch.setattr(ObjectStore, "entries", noted)
    known = log.read()
    assert known is not None and not known.is_whole and begins == [f"{30:020}"]
    assert sorted(known.commits) == list(range(30, 56)) and known.listed == 56
    log.forget()
    commit(table, 56, add("56"))
    assert check(table, log).version == 56
    longer, listed = known.with_commits_to(56), list_log(table)
    assert listed is not None and longer.listed == 57
    assert etag_of(longer.commits[56]) == etag_of(listed.commits[56]) != "", "as this process wrote it"


def test_another_table_in_its_place_is_listed_as_a_whole(table: str) -> None:
    grown(table, 45)
    log = LogCache(table, 1e-9)
    assert not check(table, log).is_whole
    commit(table, 45, add("other"))
    assert check(table, log).version == 45
    whole = list_log(table)
    assert whole is not None
    for version in range(46):
        path = place(table) / f"_delta_log/{version:020}"
        for end in (".json", ".checkpoint.parquet"):
            (path.parent / f"{path.name}{end}").unlink(missing_ok=True)
    commit(table, 0, PROTOCOL, METADATA, add("new"))
    found = check(table, log)
    assert found.is_whole and found.version == 0
