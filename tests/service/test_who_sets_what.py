"""Every setting, by every way in which it can arrive: taken, refused, or without effect (service.md, section 4).

A setting without a row in `TABLE` fails a test.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from running_service import Answer, Running, new, until
from tests.rounds import rounds

from lakemirror.api import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.metadata import Warned
from lakemirror.mirror.loop import Runner
from lakemirror.service import host as host_module
from lakemirror.service.auth.principals import Issued
from lakemirror.service.interface import DatabaseEntry
from lakemirror.service.operator_settings import RETENTIONS, OperatorSettings, warnings_of
from lakemirror.service.refused import Refused
from lakemirror.service.rest.database_status import status_of
from lakemirror.service.rest.definition import stored_definition
from lakemirror.settings.settings import (
    DATABASE,
    OPERATOR,
    OWNERS,
    PROCESS,
    DatabaseSettings,
    ProcessSettings,
    Settings,
    converted,
    variable,
)
from lakemirror.status.status_reader import read_status
from lakemirror.storage import LocalStorage

TAKEN, NO_EFFECT = "taken", "setting-without-effect"
WAYS = (
    "flag", "environment", "environment of a service", "file of sync and run", "file in a service, by hand",
    "adopted folder", "REST create", "REST update", "storage endpoint",
)  # fmt: skip
_LAST = "AuthorizationPermissionMismatch"  # mirroring.json cannot be written over the storage endpoint at all
ANYBODY = dict(zip(WAYS, [TAKEN] * 8 + [_LAST], strict=True))
BY_HAND = dict(zip(WAYS, [TAKEN] * 6 + ["InvalidDefinition"] * 2 + [_LAST], strict=True))
NOT_IN_A_FILE = dict(
    zip(WAYS, [TAKEN] * 4 + [NO_EFFECT] * 2 + ["InvalidDefinition"] * 2 + [_LAST], strict=True)
)  # fmt: skip

TABLE: dict[str, tuple[Any, Mapping[str, str]]] = {
    "default_schema": ("dbo", ANYBODY),
    "retention_in_days": (3, ANYBODY),
    "change_data_feed": (True, ANYBODY),
    "processed_retention": (2.5, ANYBODY),
    "dropped_retention": (1, ANYBODY),
    "settle": (5, BY_HAND),
    "drop_after": (60, BY_HAND),
    "on_bad_file": ("quarantine", ANYBODY),
    "on_type_change": ("widen", ANYBODY),
    "row_marker_misspelt": ("column", ANYBODY),
    "partial_row_missing": ("null", ANYBODY),
    "undeclared_columns": ("string", ANYBODY),
    "zoneless": ("ntz", BY_HAND),
    "trust_footers": (True, BY_HAND),
    "deletion_vectors": (False, ANYBODY),
    "column_mapping": (False, ANYBODY),
    "readers": (["delta-rs"], ANYBODY),
    "tables": ({"sales.*": {"deletes": "soft"}}, ANYBODY),
    "durability": ("process", BY_HAND),
    "batch_files": (10, BY_HAND),
    "batch_bytes": (1000, BY_HAND),
    "poll": (2, BY_HAND),
    "poll_idle": (3, BY_HAND),
    "retry_limit": (4, BY_HAND),
    "maintenance": (False, BY_HAND),
    "verify_idle": (False, BY_HAND),
    "executions_days": (5, BY_HAND),
    "engine": ("local", NOT_IN_A_FILE),
    "memory": (10_000_000_000_000, NOT_IN_A_FILE),
    "spark_from_bytes": (1, NOT_IN_A_FILE),
    "parallel_tables": (1000, NOT_IN_A_FILE),
    "share": (True, NOT_IN_A_FILE),
    "key_index": (False, NOT_IN_A_FILE),
    "key_index_bytes": (1, NOT_IN_A_FILE),
    "store_cache_bytes": (1, NOT_IN_A_FILE),
    "master": ("local[3]", NOT_IN_A_FILE),
    "spark_remote": ("sc://elsewhere:15002", NOT_IN_A_FILE),
    "jars": ("/tmp/evil.jar", NOT_IN_A_FILE),
    "cache_dir": ("/srv/lake/others", NOT_IN_A_FILE),
    "driver_memory": ("64g", NOT_IN_A_FILE),
    "spark": ({"spark.driver.extraJavaOptions": "-agentpath:x"}, NOT_IN_A_FILE),
}

_DATABASES = "/v1/workspaces/sales/mirroredDatabases"


@dataclass
class Tried:
    """What came of a setting: `code` of the refusal or of the warning, and the settings in force."""

    name: str
    code: str = ""
    settings: Settings | None = None

    @property
    def outcome(self) -> str:
        is_set = self.settings is not None and getattr(self.settings, self.name) == wanted(self.name)
        return TAKEN if is_set and not self.code else self.code


class Engines:
    """The Runners that a service starts, by the name of the folder. They only wait."""

    def __init__(self) -> None:
        self.by_folder: dict[str, tuple[Callable[[], Settings], Callable[[Mapping[str, Any]], list[Warned]]]] = {}

    def runner(self, storage: LocalStorage, resolve: Any, _: Any, *, warnings_of: Any, **__: Any) -> Any:
        self.by_folder[Path(storage.uri()).name] = resolve, warnings_of
        return self

    has_looked = True
    ended_by = None

    def begin(self) -> None: ...
    def wake(self) -> None: ...
    def end(self) -> None: ...

    def tried(self, name: str, folder: str) -> Tried:
        """What is in force for a database that the service runs."""
        resolve, warnings_of = until(lambda: self.by_folder.get(folder))
        codes = [each.code for each in warnings_of(definition(name)) if each.message.startswith(f"{name} ")]
        return Tried(name, "".join(codes), resolve())


def definition(name: str) -> dict[str, Any]:
    return {"lakemirror": {name: TABLE[name][0]}}


def wanted(name: str) -> Any:
    return converted(name, TABLE[name][0])


def text(value: Any) -> str:
    if isinstance(value, dict):
        nested = any(isinstance(each, dict) for each in value.values())
        return json.dumps(value) if nested else ",".join(f"{key}={each}" for key, each in value.items())
    return ",".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    found = Engines()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_module, "Runner", found.runner)
        yield found


@pytest.fixture(scope="module")
def served(engines: Engines, root: Path, writer: Issued) -> Iterator[Running]:
    """A service that has adopted one folder for each setting."""
    for name in TABLE:
        folder = root / f"sales/adopted_{name}"
        (folder / "Files/LandingZone").mkdir(parents=True)
        (folder / "mirroring.json").write_text(json.dumps(definition(name)))
    running = Running(root, clear=True)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def pass_(served: Running, writer: Issued) -> str:
    return served.token(writer)


def test_each_setting_has_a_row_and_an_owner() -> None:
    assert TABLE.keys() == {field.name for field in dataclasses.fields(Settings)}
    by_owner = {DATABASE: ANYBODY, OPERATOR: BY_HAND, PROCESS: NOT_IN_A_FILE}
    assert {name: by_owner[owner] for name, owner in OWNERS.items()} == {name: row[1] for name, row in TABLE.items()}
    assert all(getattr(Settings(), name) != wanted(name) for name in TABLE)


def test_what_a_database_may_have_has_no_room_for_the_process() -> None:
    of_database = {field.name for field in dataclasses.fields(DatabaseSettings)}
    of_process = {field.name for field in dataclasses.fields(ProcessSettings)}
    assert {name for name, owner in OWNERS.items() if owner == PROCESS} == of_process
    assert not of_database & of_process
    with pytest.raises(TypeError):
        DatabaseSettings(memory=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", TABLE)
def test_flag_and_environment_and_file_of_one_database(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable(name), raising=False)
    value, row = TABLE[name]
    flag = {name: [text(value)] if name == "spark" else value}
    assert Tried(name, settings=MirroredDatabase(tmp_path, **flag).settings).outcome == row["flag"]
    (tmp_path / "mirroring.json").write_text(json.dumps(definition(name)))
    assert Tried(name, settings=MirroredDatabase(tmp_path).settings).outcome == row["file of sync and run"]
    (tmp_path / "mirroring.json").unlink()
    monkeypatch.setenv(variable(name), text(value))
    assert Tried(name, settings=MirroredDatabase(tmp_path).settings).outcome == row["environment"]
    of_service = OperatorSettings.from_environment().of_database({})
    assert Tried(name, settings=of_service).outcome == row["environment of a service"]


@pytest.mark.parametrize("name", TABLE)
def test_a_service(name: str, served: Running, engines: Engines, pass_: str) -> None:
    row = TABLE[name][1]
    assert engines.tried(name, f"adopted_{name}").outcome == row["adopted folder"]

    posted = served.send("POST", _DATABASES, new(f"created_{name}", definition(name)), token=pass_)
    assert outcome(name, served, posted, f"created_{name}") == row["REST create"]

    hand = f"hand_{name}"
    database = served.create(pass_, hand)
    posted = update(served, pass_, database, definition(name))
    assert outcome(name, served, posted, hand) == row["REST update"]

    headers = {"x-ms-blob-type": "BlockBlob"}
    path = f"/sales/{hand}/mirroring.json"
    put = served.send("PUT", path, json.dumps(definition(name)).encode(), token=pass_, headers=headers)
    assert put.headers["x-ms-error-code"] == row["storage endpoint"]

    (served.root / f"sales/{hand}/mirroring.json").write_text(json.dumps(definition(name)))
    served.send("POST", f"{_DATABASES}/{database}/startMirroring", token=pass_)
    assert engines.tried(name, hand).outcome == row["file in a service, by hand"]


def update(running: Running, token: str, database: str, content: Any) -> Answer:
    body = {"definition": new("x", content)["definition"]}
    return running.send("POST", f"{_DATABASES}/{database}/updateDefinition", body, token=token)


def outcome(name: str, running: Running, answer: Answer, folder: str) -> str:
    if answer.status >= 400:
        assert name in answer.json["message"] or name == "default_schema"
        return str(answer.code)
    found = json.loads((running.root / f"sales/{folder}/mirroring.json").read_text())
    return Tried(name, settings=OperatorSettings.from_environment({}).of_database(found)).outcome


def test_what_the_operator_wrote_stays(served: Running, pass_: str) -> None:
    database = served.create(pass_, "kept")
    file = served.root / "sales/kept/mirroring.json"
    by_hand = {"lakemirror": {"settle": 5, "memory": 7, "on_bad_file": "quarantine", "colour": 1}, "x": [1]}
    file.write_text(json.dumps(by_hand))
    before = file.read_bytes()

    got = served.send("POST", f"{_DATABASES}/{database}/getDefinition", token=pass_).json
    again = served.send("POST", f"{_DATABASES}/{database}/updateDefinition", got, token=pass_)
    assert (again.status, file.read_bytes()) == (200, before)

    for changed in ({"settle": 6}, {"memory": None}, {"settle": 5, "poll": 1}):
        refused = update(served, pass_, database, {"lakemirror": changed})
        assert (refused.status, refused.code) == (400, "InvalidDefinition")
        assert file.read_bytes() == before
    assert update(served, pass_, database, {"lakemirror": "x"}).code == "InvalidDefinition"

    assert update(served, pass_, database, {"lakemirror": {"on_bad_file": "stop"}, "y": 2}).status == 200
    stored = json.loads(file.read_text())
    assert stored == {"lakemirror": {"on_bad_file": "stop", "settle": 5, "memory": 7}, "y": 2}
    assert update(served, pass_, database, {}).status == 200
    assert json.loads(file.read_text()) == {"lakemirror": {"settle": 5, "memory": 7}}


def test_what_the_operator_wrote_is_not_changed_by_an_equal_value() -> None:
    """`true` equals 1 in Python; the file keeps what is in it."""
    made = stored_definition(b'{"lakemirror": {"poll": true}}', b'{"lakemirror": {"poll": 1}}', {})
    assert json.loads(made) == {"lakemirror": {"poll": 1}}
    assert "true" not in made.decode()


def test_a_definition_that_grows_by_what_the_operator_wrote_is_bounded() -> None:
    large = json.dumps({"x": "a" * (1024 * 1024 - 20)}).encode()
    with pytest.raises(Refused) as refused:
        stored_definition(large, json.dumps({"lakemirror": {"settle": 5}}).encode(), {})
    assert refused.value.code == "CorruptedPayload"


def test_a_definition_that_is_nested_deeply_is_kept_or_refused() -> None:
    by_hand = json.dumps({"lakemirror": {"settle": 5}}).encode()
    for depth in (*range(800, 1100, rounds(20, 1)), 5000, 50_000):
        data = b'{"lakemirror": {"x": ' + b"[" * depth + b"]" * depth + b"}}"
        with contextlib.suppress(Refused):
            assert b'"settle": 5' in stored_definition(data, by_hand, {})


@pytest.mark.parametrize("name", RETENTIONS)
def test_retentions_stay_within_the_operators_bounds(name: str) -> None:
    operator = OperatorSettings.from_environment({variable(name): "5"})
    for days, in_force in ((3, 3), (5, 5), (9, 5)):
        content = {"lakemirror": {name: days}}
        assert getattr(operator.of_database(content), name) == in_force
        data = json.dumps(content).encode()
        if days <= 5:
            assert stored_definition(data, None, operator.bounds) == data
        else:
            with pytest.raises(Refused, match="at most 5 days") as refused:
                stored_definition(data, None, operator.bounds)
            assert (refused.value.status, refused.value.code) == (400, "InvalidDefinition")
            assert stored_definition(data, data, operator.bounds) == data  # the operator's own hand
    assert getattr(operator.of_database({}), name) == 5
    assert OperatorSettings.from_environment({}).bounds == {}


def test_a_bad_value_of_the_process_stops_no_database() -> None:
    content = {"lakemirror": {"memory": "lots", "on_bad_file": "quarantine"}}
    assert OperatorSettings.from_environment({}).of_database(content) == Settings(on_bad_file="quarantine")
    assert [each.code for each in warnings_of(content)] == [NO_EFFECT]
    with pytest.raises(LakemirrorError, match="LAKEMIRROR_MEMORY"):
        OperatorSettings.from_environment({"LAKEMIRROR_MEMORY": "lots"})


def test_the_status_says_what_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "Runner", Runner)
    folder = tmp_path / "shop"
    (folder / "Files/LandingZone").mkdir(parents=True)
    (folder / "mirroring.json").write_text(json.dumps({"lakemirror": {"memory": 1, "settle": 5}}))
    database = DatabaseEntry("shop", "shop", folder, None, "", "Running")
    host = host_module.EngineHost()
    host.follow([database])
    until(lambda: read_status(LocalStorage(folder)))
    assert host.shutdown(20)
    written = read_status(LocalStorage(folder))
    assert written is not None
    for found in (written, status_of(database, "Stopped")):
        (warned,) = found.warnings
        assert (warned.code, warned.file) == (NO_EFFECT, "mirroring.json")
        assert "memory in mirroring.json" in warned.message
        assert "LAKEMIRROR_MEMORY for `lakemirror serve`" in warned.message


def test_getting_a_definition_shows_the_file(served: Running, pass_: str) -> None:
    database = served.create(pass_, "shown", definition={"lakemirror": {"colour": 1}})
    got = served.send("POST", f"{_DATABASES}/{database}/getDefinition", token=pass_).json
    assert json.loads(base64.b64decode(got["definition"]["parts"][0]["payload"])) == {"lakemirror": {"colour": 1}}
