"""Reads the log of a Delta table without a JVM.

    read_snapshot(table)         the state at a version: protocol, metadata, transactions, domains, files on demand
    latest_commits(table)        the commits, newest first; reads no checkpoint

The state is replayed from checkpoints and commits (Delta protocol, "Action Reconciliation" and "Checkpoints").
`.crc` files and compacted commits are never read: they only repeat the log, and may be wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from lakemirror.delta.checkpoint_file import actions_in
from lakemirror.delta.log_folder import Checkpoint, Log, list_log
from lakemirror.delta.parsed_log import LATELY_PARSED, WrongLine, actions_of
from lakemirror.errors import LakemirrorError
from lakemirror.storage.place import Place, place

Action = dict[str, Any]
"""One line of a commit: `{"add": {...}}`."""

FileKey = tuple[str, str]
"""The identity of a logical file: its path as the log spells it, and its deletion vector's id or ''."""

_ATTEMPTS = 3


@dataclass(frozen=True)
class Protocol:
    """The `protocol` action. A feature set is None if the action has no such list."""

    reader: int
    writer: int
    reader_features: frozenset[str] | None = None
    writer_features: frozenset[str] | None = None

    @classmethod
    def from_action(cls, value: Mapping[str, Any]) -> Protocol:
        read, written = value.get("readerFeatures"), value.get("writerFeatures")
        return cls(
            int(value["minReaderVersion"]),
            int(value["minWriterVersion"]),
            None if read is None else frozenset(read),
            None if written is None else frozenset(written),
        )

    def to_action(self) -> Action:
        """The action as in a commit, feature names sorted."""
        value: Action = {"minReaderVersion": self.reader, "minWriterVersion": self.writer}
        if self.reader >= 3:
            value["readerFeatures"] = sorted(self.reader_features or ())
        if self.writer >= 7:
            value["writerFeatures"] = sorted(self.writer_features or ())
        return {"protocol": value}


@dataclass(frozen=True)
class Metadata:
    """The `metaData` action. `value` is the complete action: fields that are unknown here are kept."""

    value: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.value.get("id", ""))

    @property
    def configuration(self) -> dict[str, str]:
        return dict(self.value.get("configuration") or {})

    @property
    def partition_columns(self) -> list[str]:
        return list(self.value.get("partitionColumns") or [])

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The schema as Delta's JSON: {"type": "struct", "fields": [...]}."""
        text = self.value.get("schemaString")
        parsed: dict[str, Any] = json.loads(text) if text else {"type": "struct", "fields": []}
        return parsed


class Transaction(NamedTuple):
    """The `txn` action of one application: its last version, and when (milliseconds since the epoch, or None)."""

    version: int
    last_updated: int | None


class FileChange(NamedTuple):
    """The `add` or `remove` of one line of a commit, each with its key; None for what the line does not have."""

    added: FileKey | None
    add: Action
    removed: FileKey | None
    remove: Action


class Commit(tuple[Action, ...]):
    """The actions of a commit, and what a replay asks of them."""

    @cached_property
    def files(self) -> list[FileChange]:
        """The file actions."""
        lines = ((action.get("add") or {}, action.get("remove") or {}) for action in self)
        return [
            FileChange(file_key(add) if add else None, add, file_key(remove) if remove else None, remove)
            for add, remove in lines
            if add or remove
        ]

    @cached_property
    def others(self) -> list[Action]:
        """The actions of other kinds."""
        return [action for action in self if not action.keys() <= {"add", "remove"}]


@dataclass(frozen=True)
class Snapshot:
    """The state of a table at one version. `files` and `tombstones` are read from the checkpoint at first use."""

    table: Place
    version: int
    protocol: Protocol
    metadata: Metadata
    transactions: Mapping[str, Transaction]
    domains: Mapping[str, Mapping[str, Any]]
    """The complete `domainMetadata` action of each domain that is not removed."""
    commit_infos: Mapping[int, Mapping[str, Any]]
    """The `commitInfo` of every commit after the checkpoint, by version."""
    checkpoint: Checkpoint | None
    """The checkpoint this state was replayed from; None if from commits only."""
    log: Log = field(repr=False)
    _tail: tuple[tuple[int, Commit], ...] = field(repr=False)
    _inline: tuple[Action, ...] = field(repr=False)
    """File actions in the JSON top-level file of a V2 checkpoint."""

    @cached_property
    def files(self) -> Mapping[FileKey, Action]:
        """The `add` actions that make up the table."""
        return self._replayed("add", "remove")

    @cached_property
    def tombstones(self) -> Mapping[FileKey, Action]:
        """The `remove` actions that the log still holds."""
        return self._replayed("remove", "add")

    @property
    def added_since_checkpoint(self) -> set[FileKey]:
        """The files that the commits after the checkpoint add, also those removed again since."""
        return {change.added for _, commit in self._tail for change in commit.files if change.added is not None}

    def _replayed(self, kind: str, opposite: str) -> dict[FileKey, Action]:
        """The file actions of one kind at this version.

        A checkpoint holds no file twice, so only this kind is read from it: a table that changes often has thousands
        of tombstones.
        """
        found: dict[FileKey, Action] = {}
        for action in chain(self._inline, _checkpoint_files(self.log.folder, self.checkpoint, kind)):
            if value := action.get(kind):
                found[file_key(value)] = value
            elif value := action.get(opposite):
                found.pop(file_key(value), None)
        is_add = kind == "add"
        for _, commit in self._tail:
            for added, add, removed, remove in commit.files:
                mine, other = (added, removed) if is_add else (removed, added)
                if mine is not None:
                    found[mine] = add if is_add else remove
                elif other is not None:
                    found.pop(other, None)
        return found


def read_snapshot(table: str | Place, version: int | None = None, listed: Log | None = None) -> Snapshot | None:
    """The table's state at a version (None: the newest). Returns None if there is no Delta table.

    `listed`: the log, or its end, as it was listed before; it is listed again only if a file of it is gone, or an older
    one is needed.

    Error `table-unreadable`: a commit is missing or incomplete, no checkpoint can be read, or the version does not
    exist.
    """
    folder = place(table)
    for attempt in range(_ATTEMPTS):
        log = listed if listed is not None and not attempt else list_log(folder)
        if log is None or log.version < 0:
            return None
        try:
            return _replay(folder, log, log.version if version is None else version)
        except LakemirrorError:
            if attempt or log.is_whole:
                raise
        except FileNotFoundError as error:  # removed by a clean-up between the listing and the read
            if attempt == _ATTEMPTS - 1:
                raise _unreadable(folder, f"a file of the log was deleted: {error.filename}") from error
    raise AssertionError


def latest_commits(table: str | Place, listed: Log | None = None) -> Iterator[tuple[int, Commit]]:
    """The versions and actions of the log's commits, newest first. Each is read when the iterator reaches it.

    `listed`: as in `read_snapshot`.
    """
    log = listed if listed is not None else list_log(place(table))
    for number in sorted(log.commits if log else (), reverse=True):
        try:
            yield number, read_commit(log.commits[number])  # type: ignore[union-attr]
        except FileNotFoundError:  # deleted since the listing, and so are all older commits
            return


def read_commit(path: Place) -> Commit:
    """The actions of one commit file, without fields that are null. An empty file is an empty commit.

    Callers must not change the actions: they are shared (`parsed_log.py`). Error `table-unreadable`: a line is
    incomplete, or is no action as the protocol defines it.
    """
    data = path.read_bytes()
    commit = LATELY_PARSED.actions(path, "", data, lambda: _parsed(path, data))
    assert isinstance(commit, Commit)
    return commit


def _parsed(path: Place, data: bytes) -> Commit:
    try:
        return Commit(actions_of(data))
    except WrongLine as error:
        raise _unreadable(path.parent.parent, f"line {error.number} of {path.name}{error.reason}") from error


def file_key(action: Mapping[str, Any]) -> FileKey:
    """The identity of an `add` or `remove` (Delta protocol: path and deletion vector together)."""
    vector = action.get("deletionVector")
    if not vector:
        return action["path"], ""
    offset = "" if vector.get("offset") is None else f"@{vector['offset']}"
    return action["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}{offset}"


def _unreadable(table: Place, why: str) -> LakemirrorError:
    return LakemirrorError("table-unreadable", f"the Delta log of {table} cannot be read: {why}", table=str(table))


def _replay(table: Place, log: Log, version: int) -> Snapshot:
    if version < 0 or version > log.version:
        raise _unreadable(table, f"there is no version {version}; the newest is {log.version}")
    failure: Exception | None = None
    for checkpoint in [c for c in reversed(log.checkpoints) if c.version <= version]:
        if any(n not in log.commits for n in range(checkpoint.version + 1, version + 1)):
            continue
        try:
            state, inline = _checkpoint_state(checkpoint)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError, ValueError, KeyError, LakemirrorError) as error:
            failure = error  # an earlier checkpoint, or the commits alone, may still give the state
            continue
        return _state_at(table, log, version, checkpoint, state, inline)
    missing = [n for n in range(version + 1) if n not in log.commits]
    if missing:
        newest = [c for c in log.checkpoints if c.version <= version]
        why = f"commit {max(missing)} is missing" + ("" if newest else ", and there is no checkpoint before it")
        raise _unreadable(table, f"{why}" + (f" (and a checkpoint is damaged: {failure})" if failure else ""))
    return _state_at(table, log, version, None, [], [])


def _state_at(
    table: Place,
    log: Log,
    version: int,
    checkpoint: Checkpoint | None,
    state: Sequence[Action],
    inline: Sequence[Action],
) -> Snapshot:
    first = checkpoint.version + 1 if checkpoint else 0
    tail = tuple((n, read_commit(log.commits[n])) for n in range(first, version + 1))
    protocol: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    transactions: dict[str, Transaction] = {}
    domains: dict[str, Mapping[str, Any]] = {}
    commit_infos: dict[int, Mapping[str, Any]] = {}
    for number, others in [(-1, state), *((n, commit.others) for n, commit in tail)]:
        for action in others:
            if value := action.get("protocol"):
                protocol = value
            elif value := action.get("metaData"):
                metadata = value
            elif value := action.get("txn"):
                transactions[value["appId"]] = Transaction(int(value["version"]), value.get("lastUpdated"))
            elif value := action.get("domainMetadata"):
                domains[value["domain"]] = value
            elif value := action.get("commitInfo"):
                commit_infos[number] = value
    if protocol is None or metadata is None:
        raise _unreadable(table, f"version {version} has no {'protocol' if protocol is None else 'metadata'}")
    return Snapshot(
        table=table,
        version=version,
        protocol=Protocol.from_action(protocol),
        metadata=Metadata(metadata),
        transactions=transactions,
        domains={name: value for name, value in domains.items() if not value.get("removed")},
        commit_infos=commit_infos,
        checkpoint=checkpoint,
        log=log,
        _tail=tail,
        _inline=tuple(inline),
    )


def _checkpoint_state(checkpoint: Checkpoint) -> tuple[Sequence[Action], Sequence[Action]]:
    """The actions of a checkpoint other than file actions, and the file actions in its JSON top-level file."""
    if checkpoint.files[0].name.endswith(".json"):
        actions = read_commit(checkpoint.files[0])
        return actions, [a for a in actions if "add" in a or "remove" in a]
    small = ["protocol", "metaData", "txn", "domainMetadata"]
    return [a for part in checkpoint.files for a in actions_in(part, small)], ()


def _checkpoint_files(log: Place, checkpoint: Checkpoint | None, kind: str) -> Iterator[Action]:
    if checkpoint is None:
        return
    try:
        for part in checkpoint.files:
            if not part.name.endswith(".json"):
                yield from actions_in(part, [kind])
        for sidecar in sidecars(log, checkpoint):
            yield from actions_in(sidecar, [kind])
    except FileNotFoundError as error:
        message = f"checkpoint {checkpoint.version} of {log.parent} was removed since the log was listed"
        raise LakemirrorError("concurrent-commit", message) from error
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(log.parent, f"checkpoint {checkpoint.version} is damaged: {error}") from error


def sidecars(log: Place, checkpoint: Checkpoint) -> list[Place]:
    """The sidecar files of a V2 checkpoint, which hold its file actions; none for a classic checkpoint."""
    actions = (
        action
        for part in checkpoint.files
        for action in (read_commit(part) if part.name.endswith(".json") else actions_in(part, ["sidecar"]))
    )
    paths = [str(action["sidecar"]["path"]) for action in actions if "sidecar" in action]
    return [place(path) if ":/" in path else log / "_sidecars" / unquote(path) for path in paths]
