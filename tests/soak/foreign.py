"""Other writers beside the engines, without a JVM: they compact, vacuum, change properties, and may be refused."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lakemirror.delta.log import Action, Snapshot, read_snapshot
from lakemirror.delta.schema import MAPPING_ID, PHYSICAL_NAME
from lakemirror.maintenance.compaction import merge_small_files, merge_when_idle
from lakemirror.mirror.apply import state_actions
from lakemirror.mirror.position import Position, current_position

KEYS_MISSING = "key-columns-missing-in-table"
"""What an engine says of a table whose key columns another writer has renamed."""

APPLIED_ON_TOP = "files were applied"


def act(table: Path, chance: random.Random) -> str:
    """One random act of another writer; what it was. Never raises: to be refused or beaten is an outcome, too."""
    name = chance.choice(
        ["optimize", "optimize small files", "property", "vacuum by delta-rs", "optimize by delta-rs", "restore"]
    )
    try:
        if read_snapshot(table) is None:
            return f"{name}: no table yet"
        if name == "optimize":
            return f"{name}: {merge_when_idle(str(table), all_vectors=True)} files"
        if name == "optimize small files":
            return f"{name}: {merge_small_files(str(table))} files"
        if name == "property":
            return f"{name}: {_set_property(table, chance.randrange(1000))}"
        import deltalake

        other = deltalake.DeltaTable(str(table))
        if name == "restore":
            back = max(0, other.version() - 1 - chance.randrange(3))
            other.restore(back)
            return f"{name}: to version {back} of {other.version()}"
        if name.startswith("vacuum"):
            return f"{name}: {len(other.vacuum(retention_hours=24 * 30, dry_run=False))} files"
        return f"{name}: {other.optimize.compact()['numFilesAdded']} files"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of delta-rs is no Exception
        return f"{name}: refused: {type(error).__name__}: {str(error)[:120]}"


class Renamed(NamedTuple):
    """A key column that another writer renamed, and the position that the table had then."""

    column: str
    now: str
    position: Position


def rename_key(table: Path, column: str) -> Renamed | str:
    """ALTER TABLE … RENAME COLUMN of a key column, by the log alone; why not, where that is not possible."""
    snapshot = read_snapshot(table)
    found = None if snapshot is None else _position(snapshot)
    if snapshot is None or found is None:
        return "no table yet"
    now = f"{column}_{uuid.uuid4().hex[:4]}"
    if not _rename(table, snapshot, column, now):
        return "beaten, or renamed before"
    return Renamed(column, now, found)


def rename_back(table: Path, renamed: Renamed) -> str:
    """Takes a rename back; APPLIED_ON_TOP where files were applied meanwhile."""
    for _ in range(5):
        snapshot = read_snapshot(table)
        if snapshot is None or all(field["name"] != renamed.now for field in snapshot.metadata.schema["fields"]):
            return "the table was made again"
        found = _position(snapshot)
        if _rename(table, snapshot, renamed.now, renamed.column):
            return "taken back" if found == renamed.position else APPLIED_ON_TOP
    return "beaten"


def _position(snapshot: Snapshot) -> Position | None:
    return current_position({app: each.version for app, each in snapshot.transactions.items()})


def _rename(table: Path, snapshot: Snapshot, column: str, now: str) -> bool:
    """Commits the table with another name of a column; False where another commit was faster, or the column is gone."""
    schema, metadata = snapshot.metadata.schema, dict(snapshot.metadata.value)
    configuration = dict(metadata["configuration"])
    is_mapped = configuration.get("delta.columnMapping.mode", "none") != "none"
    for number, field in enumerate(schema["fields"], 1):
        if not is_mapped:
            field["metadata"] = {**field["metadata"], MAPPING_ID: number, PHYSICAL_NAME: field["name"]}
    if not is_mapped:
        highest = str(len(schema["fields"]))
        configuration |= {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": highest}
    named = [field for field in schema["fields"] if field["name"] == column]
    for field in named:
        field["name"] = now
    metadata |= {"schemaString": json.dumps(schema), "configuration": configuration}
    return bool(named) and _commit(table, snapshot, "RENAME COLUMN", state_actions(snapshot, metadata))


def _set_property(table: Path, value: int) -> str:
    """ALTER TABLE … SET TBLPROPERTIES, by the log alone."""
    snapshot = read_snapshot(table)
    if snapshot is None:
        return "gone"
    metadata = dict(snapshot.metadata.value)
    metadata["configuration"] = {**metadata["configuration"], "team.note": str(value)}
    return "set" if _commit(table, snapshot, "SET TBLPROPERTIES", [{"metaData": metadata}]) else "beaten"


def _commit(table: Path, snapshot: Snapshot, operation: str, actions: Sequence[Action]) -> bool:
    """Makes the next version; False where another commit was faster."""
    info = {
        "timestamp": int(time.time() * 1000), "operation": operation, "operationParameters": {},
        "readVersion": snapshot.version, "isBlindAppend": True, "engineInfo": "another", "txnId": str(uuid.uuid4()),
    }  # fmt: skip
    lines = [json.dumps(action, separators=(",", ":")) for action in ({"commitInfo": info}, *actions)]
    path = table / "_delta_log" / f"{snapshot.version + 1:020}.json"
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    temporary.write_text("\n".join(lines) + "\n")
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True
