"""The Delta Sharing protocol over the wire, by a reader that knows the protocol and nothing of lakemirror's code."""

from __future__ import annotations

import gc
import http.client
import io
import json
import random
import re
import shutil
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_service import Answer, Running, until
from tests.landing import declare, put

from lakemirror.api import MirroredDatabase
from lakemirror.delta.deletion_vectors import VectorReader
from lakemirror.delta.log import Metadata, Protocol, read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.service.auth.principals import Issued, Principals
from lakemirror.service.auth.tokens import Tokens
from lakemirror.service.interface import DatabaseEntry
from lakemirror.service.refused import Refused
from lakemirror.service.sharing import file_links
from lakemirror.service.sharing.file_predicates import FileBounds, files_that_may_match
from lakemirror.service.sharing.linked_lines import LinkedLines
from lakemirror.service.sharing.profile import write_profile
from lakemirror.service.sharing.response_format import client_of, format_for, reader_features, shared_protocol
from lakemirror.service.sharing.response_lines import FileLine
from lakemirror.service.sharing.shared_tables import SharedTable
from lakemirror.service.sharing.table_queries import TableQueries

BASE = "/delta-sharing"
DELTA = {"delta-sharing-capabilities": "responseformat=delta;readerfeatures=deletionvectors,columnmapping,timestampntz"}
BOTH = {"delta-sharing-capabilities": DELTA["delta-sharing-capabilities"].replace("delta;", "delta,parquet;")}


def load(database: Path, table: str, rows: int, files: int = 1, **settings: Any) -> None:
    declare(database, table, ["id"])
    for number in range(1, files + 1):
        ids = range((number - 1) * rows, number * rows)
        put(database, table, number, {"id": list(ids), "name": [f"n{i}" for i in ids], "__rowMarker__": [0] * rows})
        MirroredDatabase(database, engine="local", **settings).sync()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`vectors`: upserted, so it has deletion vectors; `plain`: without the feature; `fed`: with a change feed."""
    made = tmp_path_factory.mktemp("shared")
    database = made / "sales/shop"
    load(database, "vectors", 100)
    load(database, "crm.people", 10)
    put(database, "vectors", 2, {"id": [1, 2, 900], "name": ["x", "", "new"], "__rowMarker__": [4, 2, 4]})
    MirroredDatabase(database, engine="local").sync()
    load(made / "sales/flat", "plain", 50, 4, deletion_vectors=False)
    fed = made / "sales/fed"
    load(fed, "fed", 5, 1, change_data_feed=True)
    put(fed, "fed", 2, {"id": [1, 2, 9], "name": ["x", "", "new"], "__rowMarker__": [4, 2, 4]})
    MirroredDatabase(fed, engine="local", change_data_feed=True).sync()
    return made


@pytest.fixture(scope="module")
def share_token(running: Running, reader: Issued) -> str:
    """What a profile file holds."""
    tokens = Tokens(running.root / ".lakemirror/keys")
    return tokens.issue_for_sharing(reader.principal, reader.tenant_id, 3600)[0]


class Reader:
    """A client of the protocol."""

    def __init__(self, running: Running, token: str) -> None:
        self.running, self.token = running, token

    def get(self, path: str, **headers: str) -> Answer:
        return self.running.send("GET", BASE + path, token=self.token, headers=headers)

    def query(self, table: str, body: Any = None, headers: Any = None) -> Answer:
        return self.running.send("POST", f"{BASE}{table}/query", body or {}, token=self.token, headers=headers)

    def fetch(self, url: str, **headers: str) -> Answer:
        """Opens a link, as any HTTP client does: without a token."""
        parts = urlsplit(url)
        return self.running.send("GET", f"{parts.path}?{parts.query}", headers=headers)

    def rows(self, answer: Answer) -> dict[int, str]:
        """The live rows of an answer in either format."""
        found: dict[int, str] = {}
        for line in lines(answer)[2:]:
            action = line["file"].get("deltaSingleAction", {}).get("add") or line["file"]
            read = pq.read_table(io.BytesIO(self.fetch(action.get("url") or action["path"]).body)).to_pylist()
            dead = self.dead(action.get("deletionVector"))
            found |= {row["id"]: row["name"] for number, row in enumerate(read) if number not in dead}
        return found

    def dead(self, vector: Any) -> set[int]:
        if not vector:
            return set()
        if vector["storageType"] == "p":
            path = Path(self.running.root, "vector.bin")
            path.write_bytes(self.fetch(vector["pathOrInlineDv"]).body)
            vector = {**vector, "pathOrInlineDv": path.as_uri()}
        with VectorReader(self.running.root) as reader:
            return set(reader.read(vector))


def lines(answer: Answer) -> list[Any]:
    assert answer.status == 200, answer.body
    return [json.loads(line) for line in answer.body.splitlines()]


@pytest.fixture(scope="module")
def client(running: Running, share_token: str) -> Reader:
    until(lambda: len(running.service.registry.all_databases()) == 3)
    return Reader(running, share_token)


def table(database: str, name: str) -> str:
    return f"/shares/sales/schemas/{quote(database)}/tables/{name}"


def test_lists_name_what_the_caller_may_read(client: Reader) -> None:
    assert [each["name"] for each in client.get("/shares").json["items"]] == ["sales"]
    assert client.get("/shares/SALES").json["share"]["name"] == "sales"
    assert [each["name"] for each in client.get("/shares/sales/schemas").json["items"]] == [
        "fed", "flat", "shop", "shop.crm",
    ]  # fmt: skip
    assert [each["name"] for each in client.get("/shares/sales/schemas/shop/tables").json["items"]] == ["vectors"]
    everything = [(each["schema"], each["name"]) for each in client.get("/shares/sales/all-tables").json["items"]]
    assert everything == [("fed", "fed"), ("flat", "plain"), ("shop", "vectors"), ("shop.crm", "people")]


def test_lists_come_in_pages_that_hold_every_table_once(client: Reader) -> None:
    seen, token = [], ""
    while True:
        page = client.get(f"/shares/sales/all-tables?maxResults=1&pageToken={quote(token)}").json
        seen += [each["name"] for each in page["items"]]
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert seen == ["fed", "plain", "vectors", "people"]
    assert client.get("/shares/sales/all-tables?pageToken=abc").status == 400
    assert client.get("/shares/sales/all-tables?maxResults=-1").status == 400
    assert client.get("/shares/sales/all-tables?maxResults=0").json["items"] == []


@pytest.mark.parametrize("schema", ["shop.crm", "shop:crm", "SHOP:CRM"])
def test_a_schema_of_a_database_has_two_spellings(client: Reader, schema: str) -> None:
    assert len(client.rows(client.query(table(schema, "people"), headers=DELTA))) == 10


def test_what_is_not_there_is_not_found_and_what_is_not_allowed_says_nothing(client: Reader) -> None:
    assert client.get("/shares/other").status == 403
    assert client.get("/shares/sales/schemas/none/tables").status == 404
    assert client.get(f"{table('shop', 'none')}/version").code == "TableNotFound"
    assert client.get("/nothing").status == 404
    assert client.running.send("POST", f"{BASE}/shares", {}, token=client.token).status == 405
    assert client.running.send("GET", f"{BASE}/shares").status == 401


def test_both_formats_give_the_rows(client: Reader) -> None:
    expected = {i: f"n{i}" for i in range(100)} | {1: "x", 900: "new"}
    del expected[2]
    answer = client.query(table("shop", "vectors"), headers=DELTA)
    assert client.rows(answer) == expected
    assert "responseformat=delta" in answer.headers["delta-sharing-capabilities"]
    assert client.rows(client.query(table("flat", "plain"))) == {i: f"n{i}" for i in range(200)}
    assert client.rows(client.query(table("flat", "plain"), headers=DELTA)) == {i: f"n{i}" for i in range(200)}


def test_a_client_that_knows_both_formats_gets_what_the_table_needs(client: Reader) -> None:
    def told(name: str) -> str:
        return str(client.get(f"{name}/metadata", **BOTH).headers["delta-sharing-capabilities"])

    assert told(table("shop", "vectors")) == "responseformat=delta"
    assert told(table("flat", "plain")) == "responseformat=parquet"


def test_a_client_that_cannot_read_the_table_is_told_the_feature(client: Reader) -> None:
    for headers in ({}, {"delta-sharing-capabilities": "responseformat=delta"}):
        answer = client.query(table("shop", "vectors"), headers=headers)
        assert (answer.status, answer.code) == (400, "UnsupportedTableFeatures")
        assert "deletionVectors" in answer.json["message"] and "features drop" in answer.json["message"]
    assert len(client.rows(client.query(table("shop.crm", "people")))) == 10, "the feature, but no vector yet"


def features(mode: str) -> tuple[Protocol, Metadata]:
    names = frozenset({"columnMapping", "timestampNtz", "v2Checkpoint"})
    schema = json.dumps({"type": "struct", "fields": []})
    value = {"id": "x", "schemaString": schema, "configuration": {"delta.columnMapping.mode": mode}}
    return Protocol(3, 7, names, names), Metadata(value)


@pytest.mark.parametrize(("mode", "needed"), [("none", {"timestampNtz"}), ("name", {"timestampNtz", "columnMapping"})])
def test_a_client_needs_the_features_that_concern_data_alone(mode: str, needed: set[str]) -> None:
    """A checkpoint's form concerns those who read the log, and column mapping a table that uses it."""
    protocol, metadata = features(mode)
    assert reader_features(protocol, metadata) == needed
    snapshot: Any = SimpleNamespace(protocol=protocol, metadata=metadata, files={})
    told = ",".join(needed).lower()
    assert format_for(client_of(f"responseformat=delta;readerfeatures={told}"), snapshot, "t") == "delta"
    for lacking in sorted(needed):
        rest = ",".join(needed - {lacking}).lower()
        with pytest.raises(Refused, match=f"{lacking}.*features drop TABLE {lacking}"):
            format_for(client_of(f"responseformat=delta;readerfeatures={rest}"), snapshot, "t")
    shown = shared_protocol(protocol)
    assert set(shown["readerFeatures"]) == set(shown["writerFeatures"]) == {"columnMapping", "timestampNtz"}


def test_time_travel(client: Reader) -> None:
    name = table("shop", "vectors")
    then = client.query(name, {"version": 0}, DELTA)
    assert client.rows(then) == {i: f"n{i}" for i in range(100)}
    assert lines(then)[2]["file"]["version"] == 0 and lines(then)[1]["metaData"]["version"] == 0
    assert client.query(name, {"version": 9}, DELTA).code == "VersionNotFound"
    assert client.query(name, {"version": 0, "timestamp": "2026-01-01T00:00:00Z"}, DELTA).status == 400
    assert client.query(name, {"version": True}, DELTA).status == 400
    assert client.query(name, {"timestamp": "1999-01-01T00:00:00Z"}, DELTA).code == "VersionNotFound"
    assert client.rows(client.query(name, {"timestamp": "2999-01-01T00:00:00Z"}, DELTA)).keys() >= {900}
    assert client.get(f"{name}/version").headers["Delta-Table-Version"] == "1"
    early = client.get(f"{name}/version?startingTimestamp=1999-01-01T00:00:00Z")
    assert early.headers["Delta-Table-Version"] == "0"
    assert client.get(f"{name}/version?startingTimestamp=2999-01-01T00:00:00Z").status == 400


def test_an_etag_tells_that_nothing_changed(client: Reader) -> None:
    first = client.get(f"{table('flat', 'plain')}/metadata")
    again = client.get(f"{table('flat', 'plain')}/metadata", **{"If-None-Match": first.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")


def test_hints_leave_files_out_and_limits_end_early(client: Reader) -> None:
    name = table("flat", "plain")
    assert len(lines(client.query(name))) == 2 + 4
    assert len(lines(client.query(name, {"limitHint": 60}))) == 2 + 2
    assert len(lines(client.query(name, {"predicateHints": ["id >= 150"]}))) == 2 + 1
    assert len(lines(client.query(name, {"predicateHints": ["id >= 50", "99 >= id"]}))) == 2 + 1
    assert len(lines(client.query(name, {"predicateHints": ["f(id) = 3", 5]}))) == 2 + 4
    column, literal = {"op": "column", "name": "id", "valueType": "long"}, {"op": "literal", "value": "7"}
    tree = {"op": "equal", "children": [column, literal]}
    assert len(lines(client.query(name, {"jsonPredicateHints": json.dumps(tree)}))) == 2 + 1
    assert len(lines(client.query(name, {"jsonPredicateHints": tree}))) == 2 + 1
    assert len(lines(client.query(name, {"jsonPredicateHints": "{"}))) == 2 + 4
    many = {"op": "and", "children": [tree] * 1000}
    for hints in ({"jsonPredicateHints": many}, {"predicateHints": ["id >= 0"] * 100 + ["id = 7"]}):
        assert len(lines(client.query(name, hints))) == 2 + 4, "so many that they would cost more than they save"


def test_an_answer_says_that_it_is_complete(client: Reader) -> None:
    answer = client.query(table("flat", "plain"), headers={"delta-sharing-capabilities": "includeEndStreamAction=true"})
    assert "includeEndStreamAction=true" in answer.headers["delta-sharing-capabilities"]
    assert lines(answer)[-1]["endStreamAction"]["minUrlExpirationTimestamp"] > time.time() * 1000


def test_changes(client: Reader) -> None:
    answer = client.get(f"{table('fed', 'fed')}/changes?startingVersion=0", **DELTA)
    found = lines(answer)
    assert "deltaProtocol" in found[0]["protocol"] and found[1]["metaData"]["version"] == 0
    kinds = [(each["file"]["version"], *each["file"]["deltaSingleAction"]) for each in found[2:]]
    assert kinds[0] == (0, "add") and {kind for version, kind in kinds if version == 1} == {"cdc"}
    changed = [each["file"]["deltaSingleAction"]["cdc"] for each in found[2:] if each["file"]["version"] == 1]
    rows = [row for each in changed for row in pq.read_table(io.BytesIO(client.fetch(each["path"]).body)).to_pylist()]
    assert sorted((row["_change_type"], row["id"]) for row in rows) == [
        ("delete", 2), ("insert", 9), ("update_postimage", 1), ("update_preimage", 1),
    ]  # fmt: skip
    assert client.get(f"{table('shop', 'vectors')}/changes?startingVersion=0", **DELTA).code == "ChangeDataFeedDisabled"
    assert client.get(f"{table('fed', 'fed')}/changes", **DELTA).status == 400
    assert client.get(f"{table('fed', 'fed')}/changes?startingVersion=7", **DELTA).code == "VersionNotFound"
    assert client.get(f"{table('fed', 'fed')}/changes?startingVersion=1&endingVersion=0", **DELTA).status == 400


def test_a_stream_reads_the_files_since_a_version(client: Reader) -> None:
    found = lines(client.query(table("flat", "plain"), {"startingVersion": 2}))
    assert [each["add"]["version"] for each in found[2:]] == [2, 3]


def show(client: Reader, made: Path, name: str) -> Path:
    """Shares the tables that were made in a folder. They have no landing zone, so no engine changes them."""
    database = client.running.root / "sales" / name
    (database / "Files/LandingZone").mkdir(parents=True)
    (made / "Tables").rename(database / "Tables")
    until(lambda: client.get(f"{table(name, 't')}/version").status == 200)
    return database


def commit(database: Path, *actions: dict[str, Any]) -> None:
    """Appends a commit, as another writer of the table does."""
    log = database / "Tables/t/_delta_log"
    version = len(list(log.glob("*.json")))
    info = {"commitInfo": {"timestamp": 1, "operation": "X"}}
    (log / f"{version:020}.json").write_text("\n".join(json.dumps(each) for each in (info, *actions)))


def metadata_with(database: Path, configuration: dict[str, str], *columns: str) -> dict[str, Any]:
    snapshot = read_snapshot(database / "Tables/t")
    assert snapshot is not None
    fields = [
        *snapshot.metadata.schema["fields"],
        *({"name": name, "type": "long", "nullable": True, "metadata": {}} for name in columns),
    ]
    return {
        "metaData": {
            **snapshot.metadata.value,
            "configuration": {**snapshot.metadata.configuration, **configuration},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
        }
    }


def test_changes_of_versions_that_one_client_cannot_read_together_are_refused(client: Reader, tmp_path: Path) -> None:
    database = tmp_path / "made"
    load(database, "t", 5, 1, change_data_feed=True)
    name = table("torn", "t")
    feed = "delta.enableChangeDataFeed"
    commit(database, metadata_with(database, {}, "more"))
    commit(database, metadata_with(database, {feed: "false"}))
    commit(database, metadata_with(database, {feed: "true"}))
    commit(database, metadata_with(database, {"delta.columnMapping.mode": "name"}))
    other = {"type": "struct", "fields": [{"name": "id", "type": "string", "nullable": True, "metadata": {}}]}
    recreated = metadata_with(database, {})
    recreated["metaData"]["schemaString"] = json.dumps(other)
    commit(database, recreated)
    show(client, database, "torn")

    def changes(first: int, last: int, more: str = "") -> Answer:
        return client.get(f"{name}/changes?startingVersion={first}&endingVersion={last}{more}", **DELTA)

    told = json.loads(lines(changes(0, 1))[1]["metaData"]["deltaMetadata"]["schemaString"])
    assert "more" in [each["name"] for each in told["fields"]], "columns that come later are told"
    every = lines(changes(0, 1, "&includeHistoricalMetadata=true"))
    assert [each["metaData"]["version"] for each in every if "metaData" in each] == [0, 1]
    assert changes(0, 3).code == "ChangeDataFeedDisabled", "off at version 2"
    assert changes(3, 4).code == changes(3, 4, "&includeHistoricalMetadata=true").code == "TableChanged"
    assert changes(4, 5).code == "TableChanged" and "version 5" in changes(4, 5).json["message"]
    assert changes(4, 5, "&includeHistoricalMetadata=true").status == 200, "the client compares the columns"


def test_changes_that_begin_where_a_table_was_made_again(client: Reader, tmp_path: Path) -> None:
    """Its deletes are rows of the columns before: they are told only if the columns of the version hold them."""
    database = tmp_path / "made"

    def load_again(rows: dict[str, list[Any]]) -> None:
        shutil.rmtree(database / "Files/LandingZone/t", ignore_errors=True)
        declare(database, "t", ["id"])
        put(database, "t", 1, {**rows, "__rowMarker__": [0]})
        MirroredDatabase(database, engine="local", change_data_feed=True, deletion_vectors=False).sync()

    for rows in (
        {"id": [1], "name": ["a"]},
        {"id": [2], "name": ["b"], "more": [1]},
        {"id": [3], "other": [1.5]},
        {"id": ["x"], "other": [1.5]},
    ):
        load_again(rows)
    show(client, database, "anew")
    for first, status in ((0, 200), (1, 200), (2, 400), (3, 400)):
        for way in ("changes", "query"):
            name = table("anew", "t")
            if way == "query":
                answer = client.query(name, {"startingVersion": first, "endingVersion": first}, DELTA)
            else:
                answer = client.get(f"{name}/changes?startingVersion={first}&endingVersion={first}", **DELTA)
            assert answer.status == status, (first, answer.body)
            if status == 400:
                assert answer.code == "TableChanged" and f"at version {first}" in answer.json["message"]
    found = lines(client.get(f"{table('anew', 't')}/changes?startingVersion=1&endingVersion=1", **DELTA))
    assert sorted(kind for each in found[2:] for kind in each["file"]["deltaSingleAction"]) == ["add", "remove"]


def test_an_answer_that_cannot_go_on_ends_the_connection(
    client: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(tmp_path / "made", "t", 5, 1, change_data_feed=True)
    log = tmp_path / "made/Tables/t/_delta_log/00000000000000000000.json"
    (add,) = [each["add"] for each in map(json.loads, log.read_text().splitlines()) if "add" in each]
    commit(tmp_path / "made", *({"add": {**add, "path": f"{number}.parquet"}} for number in range(1500)))
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    commit(tmp_path / "made", {"add": {**add, "path": "last.parquet", "deletionVector": vector}})
    commit(tmp_path / "made", {"remove": {**add, "path": "last.parquet", "deletionVector": vector}})
    show(client, tmp_path / "made", "long")
    name = f"{table('long', 't')}/changes?startingVersion=0"
    assert len(lines(client.get(f"{name}&endingVersion=1"))) == 2 + 1501
    assert client.get(name).code == "UnsupportedTableFeatures", "said before the first line"

    def gone(*_: Any) -> Any:
        raise FileNotFoundError("the commit was cleaned up")

    monkeypatch.setattr("lakemirror.service.sharing.sharing_endpoints.islice", only_first(gone))
    with pytest.raises((http.client.IncompleteRead, ConnectionError)) as cut:
        client.get(f"{name}&endingVersion=1")
    if isinstance(cut.value, http.client.IncompleteRead):
        assert b"HTTP/1.1" not in cut.value.partial


def only_first(later: Callable[..., Any]) -> Callable[..., Any]:
    """`islice`, and `later` from its second call on."""
    calls = iter([islice])
    return lambda *given: next(calls, later)(*given)


def test_a_table_made_again_has_another_etag(client: Reader, tmp_path: Path) -> None:
    load(tmp_path / "one", "t", 5)
    declare(tmp_path / "two", "t", ["id"])
    put(tmp_path / "two", "t", 1, {"id": [1], "price": [2.5], "__rowMarker__": [0]})
    MirroredDatabase(tmp_path / "two", engine="local").sync()
    name = f"{table('again', 't')}/metadata"
    shown = show(client, tmp_path / "one", "again")
    tag = client.get(name).headers["ETag"]
    assert client.get(name, **{"If-None-Match": tag}).status == 304
    (shown / "Tables/t").rename(tmp_path / "before")
    (tmp_path / "two/Tables/t").rename(shown / "Tables/t")
    answer = client.get(name, **{"If-None-Match": tag})
    assert answer.status == 200 and "price" in lines(answer)[1]["metaData"]["schemaString"]


def test_what_is_kept_of_many_tables_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemirror.service.sharing.snapshots._MOST_LINES", 10)
    load(tmp_path / "made", "t", 5, 4)
    database = DatabaseEntry("id", "shop", tmp_path)
    snapshots, queries = [], TableQueries()
    for number in range(6):
        shutil.copytree(tmp_path / "made/Tables/t", tmp_path / f"Tables/{number}")
        shared = SharedTable("sales", "shop", str(number), database, f"Tables/{number}")
        answer = queries.metadata(shared, client_of("responseformat=delta;readerfeatures=deletionvectors"), {})
        assert len(list(answer.head)) == 2
        snapshots.append(weakref.ref(queries._snapshots.newest(shared)))
    gc.collect()
    alive = [each() for each in snapshots]
    assert sum(each is not None for each in alive) <= 3, "tables of four files, of which ten may be in memory"
    assert alive[-1] is not None


def test_two_tables_of_one_name_are_never_taken_for_each_other(client: Reader) -> None:
    load(client.running.root / "sales/two.crm", "people", 3)
    load(client.running.root / "sales/two", "crm.people", 10)
    both = ["two.crm", "two.crm"]
    until(
        lambda: [each["schema"] for each in client.get("/shares/sales/all-tables").json["items"]].count("two.crm") == 2
    )
    assert [each["schema"] for each in client.get("/shares/sales/schemas/two.crm/tables").json["items"]] == both
    assert client.query(table("two.crm", "people")).code == "TableAmbiguous"
    assert len(client.rows(client.query(table("two:crm", "people"), headers=DELTA))) == 10


def test_an_answer_that_is_kept_is_for_one_question_of_one_reader(client: Reader, tmp_path: Path) -> None:
    """Each difference of the question, the asker, the address, the table and its version makes another answer."""
    database = tmp_path / "made"
    load(database, "t", 4, 2, deletion_vectors=False)
    database = show(client, database, "kept")
    other = Principals(client.running.root).add("other", ["sales=read"])
    until(lambda: client.running.ask_token(other).status == 200)
    others, name = Reader(client.running, client.running.token(other)), table("kept", "t")

    def files(answer: Answer) -> list[tuple[str, str]]:
        urls = [
            each["file"].get("url") or each["file"]["deltaSingleAction"]["add"]["path"] for each in lines(answer)[2:]
        ]
        return [(urlsplit(url).netloc, re.findall("by=([a-z]+)", url)[0]) for url in urls]

    here = f"localhost:{client.running.port}"
    for _ in range(2):
        assert files(client.query(name)) == [(here, "reader")] * 2
        assert files(others.query(name)) == [(here, "other")] * 2
        assert files(client.query(name, {"limitHint": 1})) == [(here, "reader")]
        assert files(client.query(name, headers={"Host": "elsewhere:1"})) == [("elsewhere:1", "reader")] * 2
        assert "deltaProtocol" in lines(client.query(name, headers=DELTA))[0]["protocol"]
        ended = client.query(name, headers={"delta-sharing-capabilities": "includeEndStreamAction=true"})
        assert "endStreamAction" in lines(ended)[-1]
    assert client.query(name).body == client.query(name).body
    remove = next(iter(read_snapshot(database / "Tables/t").files.values()))  # type: ignore[union-attr]
    commit(database, {"remove": {"path": remove["path"], "dataChange": True, "deletionTimestamp": 1}})
    assert files(client.query(name)) == [(here, "reader")]


def test_lines_are_made_once_for_each_caller_and_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemirror.service.sharing.linked_lines._MOST", 10)
    kept, made = LinkedLines(), list[str]()

    def link(path: str) -> str:
        made.append(path)
        return f"https://here/{path}"

    files = [FileLine({}, ('{"url":"', name, '"')) for name in "abcd"]
    first = kept.of(files[:2], "me", link, 60)
    assert first == [b'{"url":"https://here/%s","expirationTimestamp":60000}}\n' % name for name in (b"a", b"b")]
    assert kept.of(files, "me", link, 60) == [*first, *(each.line(str, 60).replace(b'"c', b'"https://here/c')
        .replace(b'"d', b'"https://here/d') for each in files[2:])] and made == list("abcd")  # fmt: skip
    assert kept.of(files, "other", link, 60) is not None and made == list("abcdabcd"), "another caller"
    assert b":120000}" in (kept.of(files[:1], "me", link, 120) or [b""])[0] and made.pop() == "a", "another minute"
    for number in range(50):
        kept.of([FileLine({}, ("", "x", "")) for _ in range(3)], number, link, 120)
        assert sum(map(len, kept._known.values())) <= 10
    assert kept.of(files * 3, "me", link, 120) is None, "more than may be kept"
    many = [FileLine({}, ("", name, "")) for name in "abcdefgh"]
    for _ in range(2):
        assert kept.of(many, "many", link, 180) is not None
    assert made[-8:] == list("abcdefgh") and made[-9] != "h", "more than half of what may be kept, made once"


def test_a_link_opens_one_file_and_nothing_else(client: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [each["file"]["url"] for each in lines(client.query(table("flat", "plain")))[2:]]
    assert client.fetch(found[0]).status == 200
    part = client.fetch(found[0], Range="bytes=0-3")
    assert (part.status, part.body) == (206, b"PAR1")
    assert client.running.send("HEAD", found[0].partition(str(client.running.port))[2]).headers["Content-Length"]
    other = urlsplit(found[1]).path + "?" + urlsplit(found[0]).query
    log = re.sub(r"[^/]*\.parquet", "_delta_log/00000000000000000000.json", found[0])
    for changed in (other, log, found[0].replace("by=reader", "by=writer"), re.sub("se=\\d", "se=9", found[0])):
        assert client.fetch(changed).code == "LinkInvalid", changed
    assert client.fetch(found[0].partition("?")[0]).code == "LinkInvalid"
    assert client.fetch(found[0].replace("sig=", "sig=%C3%A4")).code == "LinkInvalid"
    assert client.running.send("PUT", urlsplit(found[0]).path + "?" + urlsplit(found[0]).query, b"x").status == 405
    later = time.time() + file_links.LIFETIME + 1
    monkeypatch.setattr(file_links.time, "time", lambda: later)
    assert client.fetch(found[0]).code == "LinkExpired"


def test_a_file_name_that_looks_like_another_path_is_not_followed(client: Reader) -> None:
    secret = client.running.root / "sales/flat/Tables/plain/../../../../.lakemirror/tls/key.pem"
    assert secret.exists()
    key = client.running.service.tokens.derived_key("links")
    database = next(each for each in client.running.service.registry.all_databases() if each.display_name == "flat")
    assert database.workspace is not None
    maker = file_links.FileLinks(key).maker(
        client.running.url, "reader", (database.workspace.id, database.id), int(time.time()) + 60
    )
    assert client.fetch(maker("Tables/plain/part.parquet")).code == "FileNotFound"
    assert client.fetch(maker("Tables/../../../.lakemirror/tls/key.pem")).status in (403, 404)


def test_the_token_of_a_profile_opens_nothing_but_shares(client: Reader) -> None:
    assert client.running.send("GET", "/v1/workspaces", token=client.token).status == 401
    assert client.running.send("GET", "/sales/flat/Tables", token=client.token).status == 401
    assert client.running.send("GET", "/metrics", token=client.token).status == 401


def test_any_token_of_the_service_opens_shares(running: Running, token: str) -> None:
    assert Reader(running, token).get("/shares").status == 200


def test_a_profile_ends_with_rotate_and_links_end_with_the_principal(running: Running, tmp_path: Path) -> None:
    principals = Principals(running.root)
    principals.add("guest", ["sales=read"])
    command = [sys.executable, "-m", "lakemirror.cli", "access", str(running.root), "share", "guest"]
    command += ["--to", str(tmp_path / "guest.share"), "--endpoint", running.url, "--expires", "1h"]
    assert subprocess.run(command, capture_output=True).returncode == 0
    profile = json.loads((tmp_path / "guest.share").read_text())
    assert (tmp_path / "guest.share").stat().st_mode & 0o777 == 0o600
    assert profile["endpoint"] == f"{running.url}{BASE}" and profile["shareCredentialsVersion"] == 1
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 2 and "cannot be made" in again.stderr and "Traceback" not in again.stderr
    for lifetime in (0, 36_501 * 86_400, 10**20):
        with pytest.raises(LakemirrorError, match="--expires"):
            write_profile(Principals(running.root), "guest", tmp_path / "other.share", running.url, lifetime)
    guest = Reader(running, profile["bearerToken"])
    until(lambda: guest.get("/shares").status == 200)
    url = lines(guest.query(table("flat", "plain")))[2]["file"]["url"]
    principals.rotate("guest")
    until(lambda: guest.get("/shares").status == 401)
    assert guest.fetch(url).status == 200
    principals.remove("guest")
    until(lambda: guest.fetch(url).status == 403)


def test_no_link_and_no_token_is_in_the_audit_log(client: Reader) -> None:
    url = lines(client.query(table("flat", "plain")))[2]["file"]["url"]
    client.fetch(url.replace("sig=", "sig=A"))
    log = client.running.audit()
    assert "ReadSharedFile" in log and "sig=" not in log and client.token not in log


def test_every_answer_is_one_version_while_changes_are_applied(client: Reader) -> None:
    database = client.running.root / "sales/live"
    declare(database, "counts", ["id"])

    def write(number: int) -> None:
        names = [str(number)] * 20
        put(database, "counts", number, {"id": list(range(20)), "name": names, "__rowMarker__": [4] * 20})

    write(1)
    until(lambda: client.query(table("live", "counts"), headers=DELTA).status == 200)
    for number in range(2, 8):
        write(number)

        def is_there(number: int = number) -> bool:
            rows = client.rows(client.query(table("live", "counts"), headers=DELTA))
            assert len(rows) == 20 and len(set(rows.values())) == 1, "rows of two versions"
            return set(rows.values()) == {str(number)}

        until(is_there)


@pytest.mark.full
def test_a_reader_during_a_thousand_applies(client: Reader) -> None:
    """Each apply moves an amount from one of ten accounts to another. Each answer has the balances of one apply whole,
    none fails, and none is older than the one before."""
    database, name, chance = client.running.root / "sales/bank", table("bank", "accounts"), random.Random(5)
    states = {1: {**dict.fromkeys(range(10), 100), 999: 1}}  # by the number of the apply, which row 999 has, too
    declare(database, "accounts", ["id"])

    def apply(number: int, changed: dict[int, int]) -> None:
        rows = {"id": list(changed), "name": [str(each) for each in changed.values()]}
        put(database, "accounts", number, {**rows, "__rowMarker__": [4] * len(changed)})
        MirroredDatabase(database, engine="local").sync()

    def apply_all() -> None:
        for number in range(2, 1001):
            before = states[number - 1]
            (giver, taker), amount = chance.sample(range(10), 2), chance.randrange(1, 50)
            changed = {giver: before[giver] - amount, taker: before[taker] + amount, 999: number}
            states[number] = {**before, **changed}
            apply(number, changed)

    def version() -> int:
        answer = client.get(f"{name}/version")
        assert answer.status == 200, answer.body
        return int(answer.headers["Delta-Table-Version"])

    apply(1, states[1])
    until(lambda: client.query(name, headers=DELTA).status == 200)
    seen: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        applying = pool.submit(apply_all)
        while not seen or seen[-1] < 1000:
            if applying.done():
                applying.result()
            before, answer = version(), client.query(name, headers=DELTA)
            assert before <= int(answer.headers["Delta-Table-Version"]) <= version()
            balances = {id_: int(text) for id_, text in client.rows(answer).items()}
            assert balances == states[balances[999]], "rows of two versions"
            seen.append(balances[999])
    assert seen == sorted(seen) and version() >= 999
    print(f"{len(seen)} answers, of {len(set(seen))} versions")
    assert len(set(seen)) > 50


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b, "<": lambda a, b: a < b, ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def test_no_hint_leaves_out_a_file_with_a_row_that_matches(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    database = tmp_path / "db"
    declare(database, "t", ["id"])
    files: list[list[tuple[int | None, str | None]]] = []
    for number in range(1, 7):
        values = [
            (chance.choice([None, chance.randint(-5, 5)]), chance.choice([None, "", "a", "b" * 40, "é", "zz"]))
            for _ in range(4)
        ]
        files.append(values)
        columns = {
            "id": pa.array([number * 10 + i for i in range(4)]), "n": pa.array([n for n, _ in values], pa.int64()),
            "s": pa.array([s for _, s in values], pa.string()), "__rowMarker__": [0] * 4,
        }  # fmt: skip
        put(database, "t", number, pa.table(columns))
        MirroredDatabase(database, engine="local").sync()
    snapshot = read_snapshot(database / "Tables/t")
    assert snapshot is not None
    bounds, left_out = FileBounds(snapshot), 0
    for _ in range(300):
        operator = chance.choice([*OPERATORS, "is null", "is not null"])
        column = chance.choice("ns")
        literal: Any = chance.randint(-6, 6) if column == "n" else chance.choice(["", "a", "b" * 35, "b", "ü", "zzz"])
        text = f"{column} {operator}" + ("" if "null" in operator else f" {literal!r}")
        matching = files_that_may_match(bounds, [text], None)
        assert matching is not None, text
        for add, may_match in zip(snapshot.files.values(), matching, strict=True):
            rows = pq.read_table(database / "Tables/t" / add["path"]).to_pylist()
            if operator == "is null":
                matches = any(row[column] is None for row in rows)
            elif operator == "is not null":
                matches = any(row[column] is not None for row in rows)
            else:
                matches = any(row[column] is not None and OPERATORS[operator](row[column], literal) for row in rows)
            assert may_match or not matches, (text, rows)
            left_out += not may_match
    assert left_out > 100
