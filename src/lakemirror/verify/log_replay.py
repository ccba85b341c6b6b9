"""Replays the log of a table commit by commit, and compares it with its checkpoints and checksums.

    commits ─▶ state after each ─▶ equal to the checkpoint of that version? ─▶ equal to the checksum? ─▶ Replay

A second replay beside `delta/log.py`, on purpose: readers start at a checkpoint, this one walks through all of them.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from lakemirror.delta.log import Action, FileKey, Snapshot, file_key, read_commit, read_snapshot
from lakemirror.delta.log_folder import Checkpoint, Log, list_log
from lakemirror.errors import LakemirrorError
from lakemirror.storage.place import Place
from lakemirror.verify.finding import Finding, is_refused

_READING = (LakemirrorError, pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class Commit:
    """The content of one commit without its files. `changes_data`: an `add` or `remove` of it says so. `metadata`: the
    table's after it."""

    version: int
    transactions: Mapping[str, int]
    info: Mapping[str, Any]
    changes_data: bool
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Replay:
    """The state at the newest version, and all commits that are still in the log, oldest first."""

    table: str = ""
    version: int = -1
    files: dict[FileKey, Action] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    vectors: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    """Earlier deletion vectors of a file, by its path."""

    def found(self, code: str, message: str, name: str = "") -> None:
        """Adds a finding about the log, or about the file of this name in it."""
        self.findings.append(Finding(code, self.table, message, f"_delta_log/{name}" if name else "_delta_log"))


def replay(folder: Place, table: str) -> Replay | None:
    """The log of the table in `folder`, with findings; None if there is no Delta table. Damage is a finding.

    OSError, or `storage-unavailable`, where a file of the log may not be read (`is_refused`).
    """
    log = list_log(folder)
    if log is None or log.version < 0:
        return None
    state = Replay(table, log.version)
    first = _basis(folder, log, state)
    missing = [n for n in range(first, log.version + 1) if n not in log.commits]
    for number in missing:
        state.found("verify-commit-missing", f"commit {number} is missing", f"{number:020}.json")
    believable = not missing
    for number in range(first, log.version + 1):
        if number in log.commits:
            believable &= _apply(log.commits[number], number, state)
        for checkpoint in log.checkpoints:
            if checkpoint.version == number:
                _compare_checkpoint(folder, checkpoint, state)
        if believable:
            _compare_checksum(folder, number, state)
    _last_checkpoint(folder, {checkpoint.version for checkpoint in log.checkpoints}, state)
    state.findings += _twice(state.files, table)
    if not state.metadata or not state.protocol:
        state.found("verify-log-unreadable", "the log has no metadata or no protocol")
    try:
        if read_snapshot(folder) is None:
            state.found("verify-log-unreadable", "no reader finds a version")
    except _READING as error:
        if is_refused(error):
            raise
        state.found("verify-log-unreadable", str(error))
    return state


def real_path(path: str) -> str:
    """The path of a file action below the table's folder, decoded and without dots."""
    return posixpath.normpath(unquote(path))


def exact_json(text: str) -> Any:
    """JSON with every fraction as a Decimal, so that no digit is lost."""
    return json.loads(text, parse_float=Decimal)


def _basis(folder: Place, log: Log, state: Replay) -> int:
    """Loads the oldest checkpoint if commit 0 no longer exists. Returns the first version to replay."""
    if 0 in log.commits or not log.checkpoints:
        return 0
    for checkpoint in log.checkpoints:
        try:
            _load(read_snapshot(folder, checkpoint.version), state)
        except _READING as error:
            if is_refused(error):
                raise
            state.found("verify-checkpoint-damaged", f"{error}", checkpoint.files[0].name)
            continue
        path = log.commits.get(checkpoint.version)
        if path is not None:  # its manifest counts, its files are in the checkpoint
            try:
                commit = _commit(checkpoint.version, read_commit(path))
                state.commits.append(replace(commit, metadata=state.metadata))
            except _READING as error:
                if is_refused(error):
                    raise
                state.found("verify-commit-damaged", str(error), path.name)
        return checkpoint.version + 1
    return 0


def _load(snapshot: Snapshot | None, state: Replay) -> None:
    if snapshot is None:
        raise ValueError("no table at this version")
    state.files = dict(snapshot.files)
    state.transactions = {app: txn.version for app, txn in snapshot.transactions.items()}
    state.metadata = snapshot.metadata.value
    state.protocol = snapshot.protocol.to_action()["protocol"]


def _apply(path: Place, number: int, state: Replay) -> bool:
    """Adds a commit to the state. Returns False if it is damaged."""
    try:
        data = path.read_bytes()
        actions = read_commit(path)
        commit = _commit(number, actions)
        _apply_actions(actions, number, path.name, state)
    except _READING as error:
        if is_refused(error):
            raise
        state.found("verify-commit-damaged", f"version {number}: {error}", path.name)
        return False
    state.commits.append(replace(commit, metadata=state.metadata))
    state.transactions.update(commit.transactions)
    damage = _damage(data, actions, commit)
    if damage:
        state.found("verify-commit-damaged", f"version {number} {damage}", path.name)
    return not damage


def _apply_actions(actions: Sequence[Action], number: int, name: str, state: Replay) -> None:
    added: set[str] = set()
    for action in actions:
        if value := action.get("remove"):
            gone = state.files.pop(file_key(value), None)
            if gone is not None and gone.get("deletionVector"):
                state.vectors.setdefault(real_path(gone["path"]), []).append(gone["deletionVector"])
    for action in actions:
        if value := action.get("add"):
            if value["path"] in added:
                state.found("verify-file-twice", f"version {number} adds {value['path']} twice", name)
            added.add(value["path"])
            state.files[file_key(value)] = value
        elif value := action.get("metaData"):
            state.metadata = value
        elif value := action.get("protocol"):
            state.protocol = value


def _damage(data: bytes, actions: Sequence[Action], commit: Commit) -> str:
    """What shows that a commit is not complete; empty if nothing does."""
    if not actions or not commit.info:
        return "has no commitInfo: it is cut short or empty"
    promised = _promised_files(commit.info)
    adds = [action["add"] for action in actions if "add" in action]
    new = sum(not add.get("deletionVector") for add in adds)
    if promised is not None and promised not in (new, len(adds)):
        return f"says that it adds {promised} files and adds {new}"
    if not data.endswith(b"\n") and commit.info.get("engineInfo") == "lakemirror":
        return "ends within a line"
    return ""


def _commit(number: int, actions: Sequence[Action]) -> Commit:
    transactions: dict[str, int] = {}
    info: Mapping[str, Any] = {}
    changes_data = False
    for action in actions:
        if value := action.get("txn"):
            transactions[value["appId"]] = int(value["version"])
        elif value := action.get("commitInfo"):
            info = value
        for kind in ("add", "remove"):
            changes_data = changes_data or bool((action.get(kind) or {}).get("dataChange"))
    return Commit(number, transactions, info, changes_data)


def _promised_files(info: Mapping[str, Any]) -> int | None:
    """The number of files that a commit by lakemirror says it adds; None for another writer's commit."""
    if info.get("engineInfo") != "lakemirror":
        return None
    metrics = info.get("operationMetrics") or {}
    count = metrics.get("numFiles", metrics.get("numAddedFiles"))
    return None if count is None else int(count)


def _compare_checkpoint(folder: Place, checkpoint: Checkpoint, state: Replay) -> None:
    version, name = checkpoint.version, checkpoint.files[0].name
    try:
        snapshot = read_snapshot(folder, version)
        if snapshot is None or snapshot.checkpoint is None or snapshot.checkpoint.version != version:
            state.found("verify-checkpoint-damaged", f"checkpoint {version} cannot be read", name)
            return
        other = Replay()
        _load(snapshot, other)
    except _READING as error:
        if is_refused(error):
            raise
        state.found("verify-checkpoint-damaged", f"checkpoint {version}: {error}", name)
        return
    for what in _differences(state, other):
        state.found("verify-checkpoint-differs", f"checkpoint {version} differs from the commits: {what}", name)


def _differences(state: Replay, checkpoint: Replay) -> Iterator[str]:
    for key in sorted(state.files.keys() - checkpoint.files.keys())[:3]:
        yield f"it lacks {key[0]}"
    for key in sorted(checkpoint.files.keys() - state.files.keys())[:3]:
        yield f"it holds {key[0]}, which no commit has left there"
    for key in sorted(state.files.keys() & checkpoint.files.keys()):
        name = _unequal(state.files[key], checkpoint.files[key])
        if name:
            yield f"{name} of {key[0]}"
            break
    if state.transactions != checkpoint.transactions:
        yield f"transactions {checkpoint.transactions} instead of {state.transactions}"
    if _schema(state.metadata) != _schema(checkpoint.metadata):
        yield "the metadata"
    if _features(state.protocol) != _features(checkpoint.protocol):
        yield "the protocol"


def _unequal(one: Action, other: Action) -> str:
    for name in ("path", "size", "partitionValues", "deletionVector", "modificationTime"):
        if (one.get(name) or None) != (other.get(name) or None):
            return name
    mine, theirs = one.get("stats"), other.get("stats")
    if mine and theirs and _essence(mine) != _essence(theirs):
        return "stats"
    return ""


def _essence(text: str) -> Any:
    """Statistics in the form of a checkpoint's columns: without empty parts and without `tightBounds`."""
    found = exact_json(text)
    return {k: v for k, v in found.items() if k != "tightBounds" and v not in ({}, None)}


def _schema(metadata: Mapping[str, Any]) -> Any:
    names = ("id", "schemaString", "partitionColumns", "configuration")
    return [metadata.get(name) or None for name in names]


def _features(protocol: Mapping[str, Any]) -> Any:
    return (
        protocol.get("minReaderVersion"), protocol.get("minWriterVersion"),
        sorted(protocol.get("readerFeatures") or ()), sorted(protocol.get("writerFeatures") or ()),
    )  # fmt: skip


def _compare_checksum(folder: Place, version: int, state: Replay) -> None:
    name = f"{version:020}.crc"
    try:
        content = exact_json((folder / "_delta_log" / name).read_bytes().decode())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        if is_refused(error):
            raise
        state.found("verify-checksum-differs", f"{name} cannot be read: {error}", name)
        return
    counted = {"numFiles": len(state.files), "tableSizeBytes": sum(int(add["size"]) for add in state.files.values())}
    for field_name, value in counted.items():
        if isinstance(content, dict) and field_name in content and content[field_name] != value:
            message = f"version {version}: its checksum says {field_name} {content[field_name]}, the commits {value}"
            state.found("verify-checksum-differs", message, name)


def _last_checkpoint(folder: Place, checkpoints: set[int], state: Replay) -> None:
    name = "_last_checkpoint"
    try:
        pointed = int(json.loads((folder / "_delta_log" / name).read_bytes())["version"])
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        if is_refused(error):
            raise
        state.found("verify-last-checkpoint", f"{name} cannot be read: {error}", name)
        return
    if pointed not in checkpoints:
        beyond = f", beyond version {state.version}" if pointed > state.version else ""
        state.found("verify-last-checkpoint", f"{name} names checkpoint {pointed}, which is not there{beyond}", name)


def _twice(files: Mapping[FileKey, Action], table: str) -> Iterator[Finding]:
    """Files that the table names twice: by two vectors, or by two spellings of one path."""
    seen: dict[str, str] = {}
    for add in files.values():
        real = real_path(add["path"])
        if real in seen:
            yield Finding("verify-file-twice", table, f"{real} is in the table twice: its rows count twice", real)
        seen[real] = add["path"]
