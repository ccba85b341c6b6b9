"""Version checksum files (`.crc`): counts and sizes of a version, with which readers check the state they replayed.

    checksum of the version before + actions of the commit ─▶ next_checksum
    replayed state                                         ─▶ checksum

The files are optional. Source: Delta protocol, "Version Checksum File".
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lakemirror.delta.commit_info import newest_info
from lakemirror.delta.log import Action, Protocol, Snapshot, read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.storage.durable import put_new
from lakemirror.storage.place import Place, place, written_here

_MOST_TRANSACTIONS = 100  # in a checksum file, as in Delta Spark


def write_checksum(snapshot: Snapshot | None, actions: Sequence[Action], path: Place, *, recount: bool) -> Place | None:
    """Writes the checksum file of the version that follows `snapshot` by these actions. Returns its path.

    Returns None if no file was written: the version before has no matching checksum, or the store refused the file.
    `recount`: computes the checksum from the replayed state. It is needed for commits that do more than add new files
    and remove live ones.
    """
    wrong = (OSError, ValueError, KeyError, TypeError, AttributeError, LakemirrorError)
    with contextlib.suppress(*wrong):
        if recount:
            after = read_snapshot(path.parent.parent, snapshot.version + 1 if snapshot else 0)
            if after is None:
                return None
            content = checksum(after)
        else:
            before: dict[str, Any] | None = {}
            if snapshot is not None:
                before = _checksum_of(snapshot, path.parent / f"{snapshot.version:020}.crc")
            if before is None:
                return None
            content = next_checksum(before, actions)
        return path if put_new(path, json.dumps(content, separators=(",", ":")).encode(), durable=False) else None
    return None


def next_checksum(before: Mapping[str, Any], actions: Iterable[Action]) -> dict[str, Any]:
    """The content of a version's checksum file, from the checksum of the version before and the commit's actions.

    `before` is empty for the first commit. An optional field that `before` lacks is left out.
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
            if "inCommitTimestamp" in action["commitInfo"]:
                value["inCommitTimestampOpt"] = action["commitInfo"]["inCommitTimestamp"]
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


def checksum(snapshot: Snapshot) -> dict[str, Any]:
    """The content of a version's checksum file, computed from the replayed state."""
    vectors = [add["deletionVector"] for add in snapshot.files.values() if add.get("deletionVector")]
    value: dict[str, Any] = {
        "tableSizeBytes": sum(int(add["size"]) for add in snapshot.files.values()),
        "numFiles": len(snapshot.files),
        "numDeletedRecordsOpt": sum(int(vector.get("cardinality", 0)) for vector in vectors),
        "numDeletionVectorsOpt": len(vectors),
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [
            {"appId": app, "version": txn.version, **({"lastUpdated": txn.last_updated} if txn.last_updated else {})}
            for app, txn in snapshot.transactions.items()
        ],
        "domainMetadata": [dict(domain) for domain in snapshot.domains.values()],
        "metadata": _without_nulls(snapshot.metadata.value),
        **snapshot.protocol.to_action(),
    }
    info = snapshot.commit_infos.get(snapshot.version, {})
    if "inCommitTimestamp" in info:
        value["inCommitTimestampOpt"] = info["inCommitTimestamp"]
    if "txnId" in info:
        value["txnId"] = info["txnId"]
    return value


class Counted(NamedTuple):
    """How many data files a version has, their bytes, how many of them have a deletion vector (None: unknown), and the
    table's properties."""

    files: int
    bytes: int
    vectors: int | None
    configuration: Mapping[str, str]


def counted(table: str | Place, version: int) -> Counted | None:
    """What the checksum file of a version of the table counts; None if it has none.

    Nothing is checked: good for a decision that no row depends on.
    """
    path = place(table) / "_delta_log" / f"{version:020}.crc"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, LakemirrorError):
        found = json.loads((written_here(path) or path).read_bytes())
        vectors = found.get("numDeletionVectorsOpt")
        files, size, properties = found["numFiles"], found["tableSizeBytes"], found["metadata"]["configuration"]
        return Counted(int(files), int(size), None if vectors is None else int(vectors), properties)
    return None


def checksum_lies(snapshot: Snapshot) -> str | None:
    """How a version's checksum file differs from the replayed state; None if it agrees or does not exist."""
    path = snapshot.log.folder / f"{snapshot.version:020}.crc"
    try:
        said = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    truth = checksum(snapshot)
    wrong = [
        f"{key} {said[key]} for {truth[key]}"
        for key in ("numFiles", "tableSizeBytes")
        if said.get(key, truth[key]) != truth[key]
    ]
    domains = sorted(d["domain"] for d in said.get("domainMetadata") or [] if not d.get("removed"))
    if "domainMetadata" in said and domains != sorted(snapshot.domains):
        wrong.append(f"domains {', '.join(domains)} for {', '.join(sorted(snapshot.domains)) or 'none'}")
    return f"{path.name} says {'; '.join(wrong)}" if wrong else None


def _checksum_of(snapshot: Snapshot, path: Place) -> dict[str, Any] | None:
    """The content of a version's checksum file; None where it is not of this version. As reading and parsing raise.

    What this process wrote comes from memory, where it belongs to the version.
    """
    own = written_here(path)
    for file in (own, path) if own is not None else (path,):
        found: dict[str, Any] = json.loads(file.read_bytes())
        if (
            found.get("txnId") == newest_info(snapshot).get("txnId")
            and _without_nulls(found["metadata"]) == _without_nulls(snapshot.metadata.value)
            and Protocol.from_action(found["protocol"]) == snapshot.protocol
        ):
            return found
    return None


def _without_nulls(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Other writers' commits have fields that are null. A checkpoint of the same state does not."""
    return {name: value for name, value in metadata.items() if value is not None}
