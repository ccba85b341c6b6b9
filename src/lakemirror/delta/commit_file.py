"""Files of a Delta log that are made here: whole or not at all, and never over another.

actions ─▶ 000…42.json.tmp ─▶ fsync ─▶ link to 000…42.json ─▶ 000…42.crc
                                └ taken: another commit was faster
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lakemirror.delta.log import Action

_MOST_TRANSACTIONS = 100  # in a checksum file, as Delta has it


def put_whole(path: Path, data: bytes) -> os.stat_result | None:
    """Puts a file there whole, never a part of it, never over another: which file it is, None where one is already."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            ours = os.fstat(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return None
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return ours


def is_still(path: Path, ours: os.stat_result) -> bool:
    """False where another engine, which looked before our file was there, has renamed its own over it since."""
    try:
        return os.path.samestat(path.stat(), ours)
    except FileNotFoundError:
        return False


def lines(actions: Iterable[Action]) -> bytes:
    """Actions as a commit holds them, one a line."""
    return "".join(json.dumps(a, separators=(",", ":"), ensure_ascii=False) + "\n" for a in actions).encode()


def next_checksum(before: Mapping[str, Any], actions: Iterable[Action]) -> dict[str, Any]:
    """The content of a version's checksum file from that of the version before and the actions in between.

    `before` is empty for the first commit. What it lacks of the optional fields is lacking from then on.
    """
    value = {key: before[key] for key in ("metadata", "protocol") if key in before}
    size, files = (before["tableSizeBytes"], before["numFiles"]) if before else (0, 0)
    rows, vectors = before.get("numDeletedRecordsOpt", 0), before.get("numDeletionVectorsOpt", 0)
    txns = {each["appId"]: each for each in before.get("setTransactions") or []}
    domains = {each["domain"]: each for each in before.get("domainMetadata") or []}
    for action in actions:
        for kind, sign in (("add", 1), ("remove", -1)):
            if file := action.get(kind):
                vector = file.get("deletionVector")
                size, files = size + sign * int(file["size"]), files + sign
                rows, vectors = rows + (sign * vector["cardinality"] if vector else 0), vectors + sign * bool(vector)
        if txn := action.get("txn"):
            txns[txn["appId"]] = txn
        elif domain := action.get("domainMetadata"):
            domains[domain["domain"]] = domain
        elif "commitInfo" in action:
            value["txnId"] = action["commitInfo"]["txnId"]
            if (moment := action["commitInfo"].get("inCommitTimestamp")) is not None:
                value["inCommitTimestampOpt"] = moment
        for kind, key in (("metaData", "metadata"), ("protocol", "protocol")):
            if kind in action:
                value[key] = action[kind]
    optional = {
        "numDeletedRecordsOpt": rows,
        "numDeletionVectorsOpt": vectors,
        "setTransactions": list(txns.values()),
        "domainMetadata": [domain for domain in domains.values() if not domain.get("removed")],
    }
    expire = "delta.setTransactionRetentionDuration" in value["metadata"].get("configuration", {})
    if expire or len(txns) > _MOST_TRANSACTIONS:
        del optional["setTransactions"]
    return {
        **value,
        "tableSizeBytes": size,
        "numFiles": files,
        "numMetadata": 1,
        "numProtocol": 1,
        **{key: content for key, content in optional.items() if not before or key in before},
    }
