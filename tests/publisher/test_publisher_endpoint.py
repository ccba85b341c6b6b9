"""What only a landing zone behind a service has: answers that are lost, late numbers, credentials, large files."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from doors import Doors, Loader
from published_contents import change_files, changes
from tests.commands import CommandRunner

from lakemirror.cli import app
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing, LandingTable
from lakemirror.publisher.folders import endpoint, endpoint_folder
from lakemirror.publisher.folders.endpoint import Answer, Endpoint

sys.path.insert(0, str(Path(__file__).parents[1] / "service"))

from running_service import Running, until

from lakemirror.service.auth.principals import Issued, Principals


@pytest.fixture
def orders(doors: Doors, tmp_path: Path) -> LandingTable:
    return doors.landing(tmp_path).table("orders", keys=["id"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "Files/LandingZone/orders"


def kept(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "Files/_publishing").iterdir()]


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("method", ["insert", "publish_snapshot"])
def test_a_lost_answer_is_asked_for_again_and_nothing_is_there_twice(
    orders: LandingTable, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, lost: int
) -> None:
    """Every single answer is lost, `lost` times, after the service has done what was asked for."""
    real: Any = Endpoint._sent
    left: dict[Any, int] = {}

    def sent(self: Endpoint, *request: Any) -> Answer:
        answer: Answer = real(self, *request)
        name = (request[0], request[1])
        left[name] = left.get(name, lost) - 1
        if left[name] >= 0:
            raise ConnectionResetError
        return answer

    monkeypatch.setattr(Endpoint, "_sent", sent)
    monkeypatch.setattr(endpoint.random, "uniform", lambda *_: 0.01)
    for number in (1, 2, 3):
        getattr(orders, method)([{"id": n} for n in range(number)])
    assert list(change_files(folder)) == [1, 2, 3]
    rows = sorted(row["id"] for _, row in changes(folder))
    assert rows == ([0, 0, 0, 1, 1, 2] if method == "insert" else [0, 1, 2])
    assert kept(tmp_path) == []


@pytest.mark.parametrize("repeated", [False, True], ids=["in the folder", "set aside"])
def test_a_number_that_was_applied_meanwhile_is_not_taken(
    orders: LandingTable, folder: Path, tmp_path: Path, doors: Doors, monkeypatch: pytest.MonkeyPatch, repeated: bool
) -> None:
    """Between counting and the rename of one publisher another publishes, and the engine applies and moves its file."""
    real = endpoint_folder.EndpointFolder._rename
    slept = []

    def rename(self: Any, source: str, target: str) -> None:
        late = not slept and target.endswith("1.parquet")
        if late:
            slept.append(target)
            other = Landing(tmp_path).table("orders", keys=["id"])
            other.insert([{"id": 1}])
            other.insert([{"id": 2}])
            (folder / "_ProcessedFiles").mkdir()
            (folder / f"{1:020d}.parquet").rename(folder / "_ProcessedFiles" / f"{1:020d}.parquet")
        real(self, source, target)
        if late and repeated:  # as the engine does with a number that it knows
            (folder / f"{1:020d}.parquet").rename(folder / "_ProcessedFiles" / f"{1:020d}.parquet.1")

    monkeypatch.setattr(endpoint_folder.EndpointFolder, "_rename", rename)
    published = orders.insert([{"id": 3}])
    assert slept and published is not None and published.number == 3
    assert changes(folder) == [(0, {"id": 1}), (0, {"id": 2}), (0, {"id": 3})]
    assert sorted(path.name for path in (folder / "_ProcessedFiles").iterdir()) == [f"{1:020d}.parquet"]
    assert kept(tmp_path) == []


def test_a_folder_that_is_dropped_before_the_rename(
    orders: LandingTable, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.insert([{"id": 1}])
    real = endpoint_folder.EndpointFolder._rename

    def rename(self: Any, source: str, target: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        real(self, source, target)

    monkeypatch.setattr(endpoint_folder.EndpointFolder, "_rename", rename)
    with pytest.raises(LakemirrorError) as caught:
        orders.insert([{"id": 2}])
    assert caught.value.code == "publish-conflict"
    assert not folder.exists() and kept(tmp_path) == []


def test_a_large_file_goes_in_blocks(
    orders: LandingTable, folder: Path, monkeypatch: pytest.MonkeyPatch, doors: Doors, tmp_path: Path
) -> None:
    monkeypatch.setattr(endpoint_folder, "_BLOCK", 10_000)
    rows = pa.table({"id": range(20_000)})
    orders.load(rows)
    path = change_files(folder)[1]
    assert path.stat().st_size > 30_000
    assert pq.read_table(path)["id"].to_pylist() == list(range(20_000))
    again = doors.landing(tmp_path).table("orders", ["id"])
    assert again.publish_snapshot(rows) is None or True
    assert again.publish_snapshot(rows) is None  # its state is read back by ranges


def test_another_publisher_declares_its_keys_first(
    orders: LandingTable, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = endpoint_folder.EndpointFolder.replace

    def replace(self: Any, staged: Path, name: str, *, new: bool = False) -> None:
        if new:
            (folder / "_metadata.json").write_text('{"keyColumns": ["other"]}')
        real(self, staged, name, new=new)

    monkeypatch.setattr(endpoint_folder.EndpointFolder, "replace", replace)
    with pytest.raises(LakemirrorError, match="key-columns-changed"):
        orders.insert([{"id": 1}])
    assert json.loads((folder / "_metadata.json").read_text()) == {"keyColumns": ["other"]}
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("https://host/workspace", "input-invalid"),
        ("https://host/a/b/c", "input-invalid"),
        ("https://name:secret@host/a/b", "input-invalid"),
        ("http://lake.example/a/b", "input-invalid"),
        ("ftp://host/db", "not-supported"),
    ],
)
def test_addresses_that_are_refused(address: str, code: str) -> None:
    with pytest.raises(LakemirrorError) as caught:
        Landing(address, Loader())
    assert caught.value.code == code
    assert "secret" not in str(caught.value)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Issued]]:
    root = tmp_path_factory.mktemp("root")
    issued = Principals(root).add("shop", ["sales=contribute"])
    service = Running(root)
    yield service, issued
    service.stop()


def test_the_command_line_publishes_with_the_file_that_access_printed(
    shop: tuple[Running, Issued], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, issued = shop
    database = running.create(running.token(issued), "shop", start=True)
    (tmp_path / "shop.json").write_text(json.dumps(issued.shown()))
    (tmp_path / "orders.csv").write_text("id,name\n1,a\n2,b\n")
    url = f"{running.url}/sales/shop"
    command = ["publish", url, "orders", "--from", str(tmp_path / "orders.csv"), "--keys", "id"]
    monkeypatch.setenv("LAKEMIRROR_CA", str(running.ca))
    done = CommandRunner().invoke(app, [*command, "--credential", str(tmp_path / "shop.json")])
    assert (done.exit_code, done.stdout) == (0, f"orders: {1:020d}.parquet, 2 rows\n"), done.output

    def status() -> Any:
        path = f"/v1/workspaces/sales/mirroredDatabases/{database}/getTablesMirroringStatus"
        found = running.send("POST", path, token=running.token(issued)).json["data"]
        return found and found[0]["metrics"]["processedRows"] == 2

    until(status)
    # and what is refused, each with its code and never with the secret
    refused = json.dumps({**issued.shown(), "client_secret": "wrong"})
    (tmp_path / "wrong.json").write_text(refused)
    (tmp_path / "broken.json").write_text("{")
    for words, environment, reason in (
        (["--credential", str(tmp_path / "wrong.json")], {}, "invalid_client"),
        (["--credential", str(tmp_path / "broken.json")], {}, "it is not JSON"),
        (["--credential", str(tmp_path / "none.json")], {}, "No such file"),
        ([], {}, "LAKEMIRROR_CREDENTIAL is not set"),
        (["--credential", str(tmp_path / "shop.json")], {"LAKEMIRROR_CA": ""}, "the certificate is not trusted"),
    ):
        done = CommandRunner().invoke(app, [*command, *words], env=environment)
        assert done.exit_code == 2 and "credential-invalid" in done.output and reason in done.output, done.output
        assert issued.client_secret not in done.output and "Traceback" not in done.output
    for wrong, code in (
        (f"{running.url}/sales/none", "database-missing"),
        (f"{running.url}/other/x", "credential-invalid"),
    ):
        done = CommandRunner().invoke(
            app, ["publish", wrong, *command[2:], "--credential", str(tmp_path / "shop.json")]
        )
        assert code in done.output, done.output


def test_a_service_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "PATIENCE", 0.3)
    with pytest.raises(LakemirrorError) as caught:
        Landing("http://127.0.0.1:9/ws/db", Loader()).table("t").insert([{"id": 1}])
    assert caught.value.code == "storage-unavailable"


def test_a_file_without_a_number_for_a_database_that_is_not_there(
    shop: tuple[Running, Issued], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, issued = shop
    monkeypatch.setenv("LAKEMIRROR_CA", str(running.ca))
    landing = Landing(f"{running.url}/sales/nothing", issued.shown())
    with pytest.raises(LakemirrorError) as caught:
        landing.table("orders", ["id"]).prepare([{"id": 1}])
    assert caught.value.code == "database-missing"
