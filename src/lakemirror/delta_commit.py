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

from lakemirror.delta_log import Action


def put_whole(path: Path, data: bytes) -> bool:
    """Puts a file there whole, or gives back False where one is already: never a part of it, never over another."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def lines(actions: Iterable[Action]) -> bytes:
    """Actions as a commit holds them, one a line."""
    return "".join(json.dumps(a, separators=(",", ":"), ensure_ascii=False) + "\n" for a in actions).encode()


def next_checksum(before: Mapping[str, Any], actions: Iterable[Action]) -> dict[str, Any]:
    """The content of a version's checksum file from that of the version before and the actions in between.

    `before` may be empty for the first commit. What is optional and would need the whole state is left out.
    """
    value = {key: before[key] for key in ("metadata", "protocol") if key in before}
    size, files = before.get("tableSizeBytes", 0), before.get("numFiles", 0)
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
        for kind, key in (("metaData", "metadata"), ("protocol", "protocol")):
            if kind in action:
                value[key] = action[kind]
    return {
        **value,
        "tableSizeBytes": size,
        "numFiles": files,
        "numDeletedRecordsOpt": rows,
        "numDeletionVectorsOpt": vectors,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": list(txns.values()),
        "domainMetadata": [domain for domain in domains.values() if not domain.get("removed")],
    }
