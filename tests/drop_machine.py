"""Random lives of a Delta table whose features are dropped: a state machine, the protocol's rules its oracle. No JVM.

A table begins with some features, in every combination that the protocol allows. Then others append, delete rows,
write checkpoints, use features and stop using them, time passes, and features are dropped: one or many, with their
history or without, killed at any point, or while somebody writes at any point. After each drop all that a drop promises
is checked.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.checkpoint import write_checkpoint
from lakemirror.delta.deletion_vectors import delete_rows
from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Action, Protocol, Snapshot, read_commit, read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features.catalogue import BY_NAME, FEATURES, READER_FEATURES
from lakemirror.features.drop import Dropped, drop
from lakemirror.features.plan import Wish
from tests.clients.protocol_tables import IDS, make
from tests.vectors import read_vector

BASE = {"appendOnly", "invariants"}
COLLATIONS = {"collations", "collations-preview"}
GEOSPATIAL = {"geospatial", "geospatial-dev"}
WIDENING = {"typeWidening", "typeWidening-preview"}
PROTECTION = "delta.requireCheckpointProtectionBeforeVersion"
ON = {
    "deletionVectors": "delta.enableDeletionVectors",
    "typeWidening": "delta.enableTypeWidening",
    "typeWidening-preview": "delta.enableTypeWidening",
    "rowTracking": "delta.enableRowTracking",
    "materializePartitionColumns": "delta.enableMaterializePartitionColumnsFeature",
    "icebergCompatV1": "delta.enableIcebergCompatV1",
    "icebergCompatV2": "delta.enableIcebergCompatV2",
    "icebergCompatV3": "delta.enableIcebergCompatV3",
}
"""The properties that come with features of a new table."""

_COLLATED = {
    "c": ("string", {"__COLLATIONS": {"c": "spark.UTF8_LCASE"}, "comment": "by no case"}),
    "l": (
        {"type": "array", "elementType": "string", "containsNull": True},
        {"__COLLATIONS": {"l.element": "icu.UNICODE"}},
    ),
}
_BY_PROPERTY = {
    "appendOnly": ("delta.appendOnly", "true"),
    "changeDataFeed": ("delta.enableChangeDataFeed", "true"),
    "checkConstraints": ("delta.constraints.small", "id >= 0"),
}
_BY_COLUMN = {
    "allowColumnDefaults": {"CURRENT_DEFAULT": "5"},
    "invariants": {"delta.invariants": '{"expression": {"expression": "id > 0"}}'},
    "generatedColumns": {"delta.generationExpression": "1"},
    "identityColumns": {"delta.identity.start": 1},
}
_BY_TYPE = {
    "timestampNtz": "timestamp_ntz",
    "variantType": "variant",
    "variantType-preview": "variant",
    "geospatial": "geometry(OGC:CRS84)",
    "geospatial-dev": "geography(OGC:CRS84, spherical)",
}
"""Features that are used by a property, a column's metadata, or a column's type: a drop leaves that to people."""

_MARKS = {
    "columnMapping": ("delta.columnMapping.id", "delta.columnMapping.physicalName"),
    "typeWidening": ("delta.typeChanges",),
    "typeWidening-preview": ("delta.typeChanges",),
    "collations": ("__COLLATIONS",),
    "collations-preview": ("__COLLATIONS",),
}
"""What goes out of the schema with a feature."""

POOL = [each.name for each in FEATURES if each.name not in ("catalogManaged", "adaptiveMetadata-preview")]
_MEET = ["clustering", "columnMapping", "deletionVectors", "rowTracking", "typeWidening", "v2Checkpoint"]
"""Features whose drops have steps that touch the others: they are often in one table."""

_START = datetime(2030, 1, 1, tzinfo=timezone.utc)


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


def state_of(table: Path) -> Snapshot:
    found = read_snapshot(table)
    assert found is not None
    return found


def with_needs(names: Iterable[str]) -> set[str]:
    """The features with all that they stand on."""
    found = set(names)
    while more := {need for name in found for need in BY_NAME[name].requires} - found:
        found |= more
    return found


def standing_on(name: str, among: Iterable[str]) -> set[str]:
    """The features among these that stand on one, directly or through others."""
    return {other for other in among if other != name and name in with_needs([other])}


def made(table: Path, *names: str) -> Snapshot:
    """A table with these features, and what each leaves in a log."""
    features = with_needs(names) | BASE
    configuration = {"mine": "kept", **{ON[name]: "true" for name in names if name in ON}}
    if "v2Checkpoint" in names:
        configuration["delta.checkpointPolicy"] = "v2"
    make(table, protocol_of(features), **configuration)
    log = table / "_delta_log" / f"{0:020}.json"
    actions = list(read_commit(log))
    domains = {"mine": "{}"} if "domainMetadata" in names else {}
    if COLLATIONS & features:
        domains["delta.collations"] = '{"writeVersions":{"icu":"75.1"}}'
        for action in actions:
            _collate(action, mapped="columnMapping" in features)
    for name, value in domains.items():
        actions.append({"domainMetadata": {"domain": name, "configuration": value, "removed": False}})
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return state_of(table)


def protocol_of(features: set[str]) -> Protocol:
    """A protocol that lists these features."""
    readers = frozenset(features & READER_FEATURES)
    listed = readers - {"columnMapping"}
    reader = 3 if listed else 2 if readers else 1
    return Protocol(reader, 7, readers if listed else None, frozenset(features))


def _collate(action: Action, mapped: bool) -> None:
    """Two collated columns in the schema, and bounds by collation in the statistics."""
    if metadata := action.get("metaData"):
        schema = json.loads(metadata["schemaString"])
        for number, (name, (kind, more)) in enumerate(_COLLATED.items(), 2):
            ids = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name} if mapped else {}
            schema["fields"].append({"name": name, "type": kind, "nullable": True, "metadata": {**more, **ids}})
        metadata["schemaString"] = json.dumps(schema)
        if mapped:
            metadata["configuration"]["delta.columnMapping.maxColumnId"] = str(len(schema["fields"]))
    elif add := action.get("add"):
        bounds = {"spark.UTF8_LCASE.75.1": {"minValues": {"c": "a"}, "maxValues": {"c": "b"}}}
        add["stats"] = json.dumps({**json.loads(add["stats"]), "statsWithCollation": bounds})


def rows_of(now: Snapshot) -> list[tuple[Action, int, int]]:
    """Every row by the log and the data files alone: its `add`, its number in the file, its id."""
    found = []
    for add in now.files.values():
        column = pq.read_table(now.table / add["path"], partitioning=None).column(physical(now)).to_pylist()
        vector = add.get("deletionVector")
        gone = set(read_vector(now.table, vector)) if vector else set()
        found += [(add, number, each) for number, each in enumerate(column) if number not in gone]
    return found


def physical(now: Snapshot) -> str:
    """The name of the column `id` in data files."""
    column = next(each for each in now.metadata.schema["fields"] if each["name"] == "id")
    return str(column["metadata"].get("delta.columnMapping.physicalName", "id"))


def kept(now: Snapshot, gone: Iterable[str]) -> dict[str, Any]:
    """All that a drop of these features leaves as it is."""
    names = set(gone)
    owned = {key for name in names for key in BY_NAME[name].properties} | {PROTECTION}
    marks = {mark for name in names for mark in _MARKS.get(name, ())}
    if COLLATIONS & names and COLLATIONS & features_of(now.protocol) - names:
        marks -= {"__COLLATIONS"}
    schema = json.loads(json.dumps(now.metadata.schema))
    for column in schema["fields"]:
        column["metadata"] = {key: value for key, value in column["metadata"].items() if key not in marks}
    clustering = now.domains.get("delta.clustering")
    columns = json.loads(clustering["configuration"])["clusteringColumns"] if clustering else []
    return {
        "schema": schema,
        "partitioning": now.metadata.partition_columns,
        "properties": {key: value for key, value in now.metadata.configuration.items() if key not in owned},
        "id": now.metadata.id,
        "mine": "mine" in now.domains and "domainMetadata" not in names,
        "clustering": "clustering" not in names and [["id" if each == physical(now) else each] for [each] in columns],
    }


@dataclass
class Life:
    """One table, and what is true of it. `reached`: the points of drops that were met. `done`: what was done. `times`:
    when each version was committed."""

    table: Path
    dice: random.Random
    clock: datetime = _START
    ids: list[int] = field(default_factory=lambda: list(IDS))
    reached: set[str] = field(default_factory=set)
    done: list[str] = field(default_factory=list)
    times: dict[int, datetime] = field(default_factory=dict)

    @classmethod
    def begun(cls, folder: Path, seed: int) -> Life:
        dice = random.Random(seed)
        names = sorted({*dice.sample(POOL, dice.randint(1, 4)), *dice.sample(_MEET, dice.randint(0, 3))})
        life = cls(folder / f"life-{seed}", dice)
        made(life.table, *names)
        life._age()
        life.done.append(f"made with {', '.join(names)}")
        return life

    def live(self, acts: int) -> None:
        """Does so many things, and checks the table after each."""
        others = [
            self.append,
            self.append,
            self.delete,
            self.checkpoint,
            self.use,
            self.stop,
            self.wait,
            self.add_again,
        ]
        for _ in range(acts):
            self.dice.choice([*others, *[self.drop] * len(others)])()
            assert sorted(each for _, _, each in rows_of(self.now)) == sorted(self.ids), self.done

    @property
    def now(self) -> Snapshot:
        return state_of(self.table)

    # What others do

    def append(self, narrow: bool = False) -> None:
        """Somebody adds a file. `narrow`: with ids of the type that the column had before it was widened."""
        now = self.now
        number, name = max(self.ids, default=0) + 1, physical(now)
        self.ids.append(number)
        path = f"more-{number}.parquet"
        mapped = name != "id"
        column = pa.field(
            name, pa.int32() if narrow else pa.int64(), metadata={"PARQUET:field_id": "1"} if mapped else None
        )
        pq.write_table(pa.table({name: [number]}, schema=pa.schema([column])), self.table / path)
        stats = {"numRecords": 1, "minValues": {name: number}, "maxValues": {name: number}, "nullCount": {name: 0}}
        add = {"path": path, "partitionValues": {}, "size": (self.table / path).stat().st_size, "modificationTime": 0}
        more = {"baseRowId": 100 * number, "defaultRowCommitVersion": now.version + 1}
        tracked = more if "rowTracking" in features_of(now.protocol) else {}
        self._commit("WRITE", {"add": {**add, **tracked, "dataChange": True, "stats": json.dumps(stats)}})
        self.done.append(f"append {number}")

    def delete(self) -> None:
        """Somebody deletes a row by a vector, where the table lets him."""
        now = self.now
        properties, rows = now.metadata.configuration, rows_of(now)
        if properties.get("delta.enableDeletionVectors") != "true" or properties.get("delta.appendOnly") == "true":
            return
        add, number, gone = self.dice.choice(rows) if len(rows) > 1 else (None, 0, 0)
        if add is not None:
            self._commit("DELETE", *delete_rows(str(self.table), {"x": add}, {"x": pa.array([number], pa.int64())}))
            self.ids.remove(gone)
            self.done.append(f"delete {gone}")

    def checkpoint(self) -> None:
        """Somebody writes a checkpoint, a V2 one where the table has them."""
        now = self.now
        if now.metadata.configuration.get("delta.checkpointPolicy") != "v2":
            write_checkpoint(now)
        else:
            state: list[Action] = [{"checkpointMetadata": {"version": now.version}}, now.protocol.to_action()]
            state += [{"metaData": now.metadata.value}, *({"add": add} for add in now.files.values())]
            state += [{"remove": each} for each in now.tombstones.values()]
            state += [{"domainMetadata": each} for each in now.domains.values()]
            name = f"{now.version:020}.checkpoint.{self.dice.getrandbits(32):08x}-2222-3333-4444-555555555555.json"
            (now.log.folder / name).write_text("".join(json.dumps(action) + "\n" for action in state))
        self._age()
        self.done.append("checkpoint")

    def use(self) -> None:
        """Somebody begins to use a feature that the table has."""
        features = features_of(self.now.protocol)
        if chosen := sorted(features & {*_BY_PROPERTY, *_BY_COLUMN, *_BY_TYPE, *WIDENING}):
            name = self.dice.choice(chosen)
            self._change(lambda value: _using(value, name))
            if name in WIDENING:
                self.append(narrow=True)
            self.done.append(f"use {name}")

    def stop(self) -> None:
        """Somebody stops using all that only people can stop."""
        self._change(_stopped)
        self.done.append("stop")

    def wait(self) -> None:
        self.clock += timedelta(hours=self.dice.choice([1, 30, 24 * 60]))
        self.done.append(f"until {self.clock}")

    def add_again(self) -> None:
        """Somebody gives the table a feature, perhaps one that was dropped."""
        now, name = self.now, self.dice.choice(["v2Checkpoint", "deletionVectors", "clustering", "vacuumProtocolCheck"])
        features = set(features_of(now.protocol))
        if name not in features:
            self._commit("UPGRADE PROTOCOL", protocol_of(features | with_needs([name])).to_action())
            if name in ON or name == "v2Checkpoint":
                key, value = (ON[name], "true") if name in ON else ("delta.checkpointPolicy", "v2")
                self._change(lambda metadata: metadata["configuration"].__setitem__(key, value))
            self.done.append(f"add {name}")

    # Drops

    def drop(self) -> None:
        """A drop of some features in one of its ways, undisturbed, beside a writer, or killed and repeated."""
        before = self.now
        present = sorted(features_of(before.protocol))
        names = tuple(self.dice.sample(present, min(len(present), self.dice.randint(1, 4))))
        if self.dice.random() < 0.8:
            names = tuple(sorted({*names, *(other for name in names for other in standing_on(name, present))}))
        way = self.dice.choice([{}, {}, {"truncate": True}, {"unprotect": True}, {"as_numbers": True}])
        wish = Wish(names, **way)
        self.done.append(f"drop {', '.join(names)} {way}")
        expected = Expected.of(before, wish)
        disturbed = self.dice.choice(["", "", "writer", "kill"])
        try:
            if disturbed == "kill":
                self._killed(wish)
            done = self._drop(wish, self.append if disturbed == "writer" else None)
        except LakemirrorError as error:
            assert error.code in expected.codes, (error, self.done)
            if disturbed != "kill":
                assert self.now.version == before.version, "refused untouched"
            return
        assert not expected.codes - {"spark-unsupported"}, (expected.codes, self.done)
        self.check(before, wish, expected, done, disturbed)

    def check(self, before: Snapshot, wish: Wish, expected: Expected, done: Dropped, disturbed: str) -> None:
        """All that a drop promises."""
        after, gone = self.now, expected.gone
        names, left = features_of(after.protocol), expected.left(done.waiting is not None)
        if wish.as_numbers and after.protocol.writer < 7:  # numbers imply others too
            assert left <= names and not names & gone, (left, names, self.done)
        else:
            assert names == left, (names ^ left, self.done)
        dropped = gone if done.waiting is None or wish.unprotect else {name for name in gone if not BY_NAME[name].reads}
        if done.waiting is None or not wish.truncate:
            assert kept(after, dropped) == kept(before, dropped), self.done
            ids = {add["path"]: add.get("baseRowId") for add in after.files.values()}
            same = {add["path"]: add.get("baseRowId") for add in before.files.values() if add["path"] in ids}
            assert "rowTracking" in dropped or same.items() <= ids.items(), self.done
        assert not [key for key in after.metadata.configuration if key.startswith("lakemirror.")], self.done
        if done.waiting is None and gone:
            assert after.checkpoint is not None, self.done
            assert after.checkpoint.version == after.version - (disturbed == "writer"), self.done
            assert after.checkpoint.kind == "classic", self.done
        if "deletionVectors" in gone:
            assert not any(add.get("deletionVector") for add in after.files.values()), self.done
        if READER_FEATURES & dropped and not expected.cuts and "checkpointProtection" in left:
            protected = int(after.metadata.configuration[PROTECTION])
            classic = [c for c in after.log.checkpoints if c.kind == "classic" and c.version < protected]
            assert protected <= after.version and len(classic) >= 3, self.done
            older = read_snapshot(self.table, before.version)
            assert older is not None and older.files == before.files, "older versions stay readable"
        if "rowTracking" in dropped:
            assert not any("baseRowId" in add for add in after.files.values()), self.done
        if not (COLLATIONS & names or WIDENING & names):  # of each there are two names
            marks = {mark for name in dropped for mark in _MARKS.get(name, ())}
            assert not [each for each in after.metadata.schema["fields"] if marks & each["metadata"].keys()], self.done
        cut = before.log.commits.keys() - after.log.commits.keys()
        assert not cut or expected.cuts or wish.unprotect, self.done
        assert all(self.times[version] <= self.clock - timedelta(hours=24) for version in cut), self.done
        if done.waiting is not None:
            assert done.waiting > self.clock, self.done
        elif expected.cuts:
            self._check_cut(after, gone)
        if disturbed != "writer":
            again = self._drop(wish)
            assert (again.commits, again.waiting) == (0, done.waiting), self.done
        if after.protocol.reader == 1:
            import deltalake

            if not any(each["type"] in _BY_TYPE.values() for each in after.metadata.schema["fields"]):
                found = deltalake.DeltaTable(str(self.table)).to_pyarrow_table(columns=["id"]).column("id").to_pylist()
                assert sorted(found) == sorted(self.ids), self.done

    def _check_cut(self, after: Snapshot, gone: set[str]) -> None:
        """Nothing in the log is left that a reader without the features would stumble over."""
        texts = {"deletionVectors": b'"deletionVector"', "v2Checkpoint": b'"delta.checkpointPolicy"',
                 "columnMapping": b"delta.columnMapping.mode"}  # fmt: skip
        for name in gone & texts.keys():
            assert not [v for v, path in after.log.commits.items() if texts[name] in path.read_bytes()], (
                name,
                self.done,
            )
        if "v2Checkpoint" in gone:
            assert all(c.kind == "classic" for c in after.log.checkpoints), self.done

    def _killed(self, wish: Wish) -> None:
        """The same drop, killed at one of its points: what readers see is never half of it."""
        before, left = self.now, self.dice.randint(0, 12)

        def at(_: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        try:
            self._drop(wish, lambda: at(""))
        except Killed:
            self.done.append("killed")
        names, was = features_of(self.now.protocol), features_of(before.protocol)
        assert names <= was | {"checkpointProtection"}, self.done
        assert sorted(each for _, _, each in rows_of(self.now)) == sorted(self.ids), self.done

    def _drop(self, wish: Wish, meanwhile: Callable[[], None] | None = None) -> Dropped:
        def at(point: str) -> None:
            self.reached.add(point)
            self._age()
            if meanwhile is not None:
                meanwhile()

        try:
            return drop(self.table, wish, confirmed=True, at=at, now=lambda: self.clock)
        finally:
            self._age()

    # The files

    def _commit(self, operation: str, *actions: Action) -> None:
        now = self.now
        info: dict[str, Any] = {"timestamp": 0, "operation": operation, "operationParameters": {}}
        if "inCommitTimestamp" in features_of(now.protocol):
            newest = now.commit_infos.get(now.version, {}).get("inCommitTimestamp", 1_700_000_000_000)
            info = {"inCommitTimestamp": newest + 1000, **info}
        lines = [{"commitInfo": info}, *actions]
        text = "".join(json.dumps(action) + "\n" for action in lines)
        (now.log.folder / f"{now.version + 1:020}.json").write_text(text)
        self._age()

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        """A commit with other metadata, if it is another."""
        old = self.now.metadata.value
        value: dict[str, Any] = json.loads(json.dumps(old))
        change(value)
        if value != old:
            self._commit("SET TBLPROPERTIES", {"metaData": value})

    def _age(self) -> None:
        """Gives each new file of the log the time of this life's clock."""
        for path in (self.table / "_delta_log").rglob("*.*"):
            if path.stat().st_mtime < _START.timestamp():
                os.utime(path, (self.clock.timestamp(), self.clock.timestamp()))
                if path.suffix == ".json" and path.stem.isdigit():
                    self.times[int(path.stem)] = self.clock


def _using(metadata: dict[str, Any], name: str) -> None:
    schema = json.loads(metadata["schemaString"])
    column = next(each for each in schema["fields"] if each["name"] == "id")
    if name in _BY_PROPERTY:
        key, value = _BY_PROPERTY[name]
        metadata["configuration"][key] = value
    elif name in _BY_COLUMN:
        column["metadata"].update(_BY_COLUMN[name])
    elif name in WIDENING:
        column["metadata"]["delta.typeChanges"] = [{"fromType": "integer", "toType": "long"}]
    elif not any(each["name"] == name for each in schema["fields"]):
        mapped = "delta.columnMapping.id" in column["metadata"]
        number = len(schema["fields"]) + 1
        marks = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name} if mapped else {}
        schema["fields"].append({"name": name, "type": _BY_TYPE[name], "nullable": True, "metadata": marks})
        if mapped:
            metadata["configuration"]["delta.columnMapping.maxColumnId"] = str(number)
    metadata["schemaString"] = json.dumps(schema)


def _stopped(metadata: dict[str, Any]) -> None:
    schema = json.loads(metadata["schemaString"])
    for key, _ in _BY_PROPERTY.values():
        metadata["configuration"].pop(key, None)
    for column in schema["fields"]:
        for marks in _BY_COLUMN.values():
            for key in marks:
                column["metadata"].pop(key, None)
    if "delta.columnMapping.mode" not in metadata["configuration"]:  # else old files would hold a dropped column
        schema["fields"] = [each for each in schema["fields"] if each["type"] not in _BY_TYPE.values()]
    metadata["schemaString"] = json.dumps(schema)


@dataclass(frozen=True)
class Expected:
    """What the protocol's rules say of a drop: the errors of which one must come, or none, and which features go."""

    codes: frozenset[str]
    gone: set[str]
    present: set[str]
    cuts: bool
    unprotects: bool

    @classmethod
    def of(cls, state: Snapshot, wish: Wish) -> Expected:
        present = set(features_of(state.protocol))
        gone, cuts = set(wish.features) & present, wish.truncate
        if wish.unprotect and not gone & READER_FEATURES and "checkpointProtection" in present:
            gone, cuts = gone | {"checkpointProtection"}, True
        gone |= _along(gone, present, state)
        return cls(frozenset(_codes(gone, present, cuts, state)), gone, present, cuts, wish.unprotect)

    def left(self, waits: bool) -> set[str]:
        """The features after the drop. `waits`: its last step is to come."""
        history = {name for name in self.gone if BY_NAME[name].reads or name == "checkpointProtection"}
        if not history:
            return self.present - self.gone
        if self.cuts:
            return self.present - (self.gone - history if waits else self.gone)
        readers = self.gone & READER_FEATURES
        if not readers or (self.unprotects and not waits):
            return self.present - self.gone - ({"checkpointProtection"} if self.unprotects else set())
        return (self.present - self.gone) | {"checkpointProtection"}


def _along(gone: set[str], present: set[str], state: Snapshot) -> set[str]:
    """`domainMetadata`, where what is dropped was the last that had a domain."""
    if not gone & {"clustering", *COLLATIONS} or "domainMetadata" not in present:
        return set()
    own = {"rowTracking": "delta.rowTracking", "clustering": "delta.clustering"}
    domains = set(state.domains) - {own[name] for name in gone & own.keys()}
    if gone & COLLATIONS and not present & COLLATIONS - gone:
        domains -= {"delta.collations"}
    return set() if domains or standing_on("domainMetadata", present - gone) else {"domainMetadata"}


def _codes(gone: set[str], present: set[str], cuts: bool, state: Snapshot) -> Iterable[str]:
    properties, columns = state.metadata.configuration, state.metadata.schema["fields"]
    for name in gone:
        if BY_NAME[name].drop == "no":
            yield "feature-not-droppable"
        if standing_on(name, present - gone):
            yield "feature-needed"
        if name in _BY_TYPE and any(_BY_TYPE[name] == each["type"] for each in columns):
            yield "feature-in-use" if name in GEOSPATIAL else "feature-not-droppable"
        elif name in GEOSPATIAL and any(each["type"] in [_BY_TYPE[n] for n in GEOSPATIAL] for each in columns):
            yield "feature-in-use"
        if name in ("variantType", "variantType-preview") and any(each["type"] == "variant" for each in columns):
            yield "feature-not-droppable"
        if name in _BY_PROPERTY and _BY_PROPERTY[name][0] in properties:
            yield "feature-in-use"
        if name in _BY_COLUMN and any(_BY_COLUMN[name].keys() & each["metadata"].keys() for each in columns):
            yield "feature-in-use"
    if "checkpointProtection" in gone and not cuts:
        yield "feature-history"
    if cuts and gone and not gone & {*READER_FEATURES, "checkpointProtection"}:
        yield "feature-history"
    vectors = any(add.get("deletionVector") for add in state.files.values())
    widened = any("delta.typeChanges" in each["metadata"] for each in columns)
    rewritten = ("deletionVectors" in gone and vectors) or (gone & WIDENING and widened) or "columnMapping" in gone
    if rewritten:
        yield "spark-unsupported"
