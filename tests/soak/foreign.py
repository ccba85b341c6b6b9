"""Other writers beside the engines, without a JVM: they compact, vacuum, change properties, and may be refused."""

from __future__ import annotations

import json
import random
import time
import uuid
from pathlib import Path

from lakemirror.delta.log import read_snapshot
from lakemirror.maintenance.compaction import merge_at_rest, merge_small_files


def act(table: Path, chance: random.Random) -> str:
    """One random act of another writer; what it was. Never raises: to be refused or beaten is an outcome, too."""
    name = chance.choice(["optimize", "optimize small files", "property", "vacuum by delta-rs", "optimize by delta-rs"])
    try:
        if read_snapshot(table) is None:
            return f"{name}: no table yet"
        if name == "optimize":
            return f"{name}: {merge_at_rest(str(table), all_vectors=True)} files"
        if name == "optimize small files":
            return f"{name}: {merge_small_files(str(table))} files"
        if name == "property":
            return f"{name}: {_set_property(table, chance.randrange(1000))}"
        import deltalake

        other = deltalake.DeltaTable(str(table))
        if name.startswith("vacuum"):
            return f"{name}: {len(other.vacuum(retention_hours=24 * 30, dry_run=False))} files"
        return f"{name}: {other.optimize.compact()['numFilesAdded']} files"
    except Exception as error:
        return f"{name}: refused: {type(error).__name__}: {str(error)[:120]}"


def _set_property(table: Path, value: int) -> str:
    """ALTER TABLE … SET TBLPROPERTIES, by the log alone."""
    snapshot = read_snapshot(table)
    if snapshot is None:
        return "gone"
    metadata = dict(snapshot.metadata.value)
    metadata["configuration"] = {**metadata["configuration"], "team.note": str(value)}
    info = {
        "timestamp": int(time.time() * 1000), "operation": "SET TBLPROPERTIES", "operationParameters": {},
        "readVersion": snapshot.version, "isBlindAppend": True, "engineInfo": "another", "txnId": str(uuid.uuid4()),
    }  # fmt: skip
    lines = [json.dumps(action, separators=(",", ":")) for action in ({"commitInfo": info}, {"metaData": metadata})]
    path = table / "_delta_log" / f"{snapshot.version + 1:020}.json"
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    temporary.write_text("\n".join(lines) + "\n")
    try:
        path.hardlink_to(temporary)  # fails where another commit is there
    finally:
        temporary.unlink()
    return "set"
