"""Which client can open a table, and what prevents it. Pure; what clients can do is data, in `clients.toml`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Protocol, Snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features.catalogue import BY_NAME, FEATURES, READER_FEATURES
from lakemirror.features.usage import traits

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NAMES = (
    "aliases",
    "reader_features",
    "writer_features",
    "refused_in_use",
    "unwritable_in_use",
    "wrong_in_use",
    "unsafe_writes",
    "fails_on",
)


@dataclass(frozen=True)
class Client:  # 17 fields: the keys of a record in clients.toml
    """One record of `clients.toml`: a client from one version to before another, by one of its routes."""

    name: str
    first: str
    before: str
    route: str
    reader: int
    writer: int
    aliases: frozenset[str]
    reader_features: frozenset[str]
    writer_features: frozenset[str]
    refused_in_use: frozenset[str]
    unwritable_in_use: frozenset[str]
    wrong_in_use: frozenset[str]
    unsafe_writes: frozenset[str]
    fails_on: frozenset[str]
    note: str
    as_of: str
    evidence: str

    @property
    def label(self) -> str:
        versions = f"{self.first} to {self.before}" if self.before else f"{self.first} on"
        return f"{self.name} {versions}" + (f" ({self.route})" if self.route else "")

    @property
    def basis(self) -> str:
        """How it is known what the client does: measured, source or documented."""
        return {"run": "measured", "documentation": "documented"}.get(self.evidence, self.evidence)


@dataclass(frozen=True)
class Verdict:
    """Whether a client can open a table.

    `read`: yes, no, or wrong (it answers with wrong rows, which is worse than a refusal). `write`: yes, no, never
    (it does not write at all) or unsafe (it writes, and breaks a rule). `blocks`: the features in the way, by mode.
    `basis`: how that is known: measured (the client was run), source (its code was read) or documented.
    """

    client: str
    read: str
    write: str
    blocks: Mapping[str, tuple[str, ...]]
    note: str = ""
    basis: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "blocks": {mode: list(names) for mode, names in self.blocks.items()}}


@cache
def clients() -> tuple[Client, ...]:
    """All records, as the file has them."""
    data = tomllib.loads(Path(__file__).with_name("clients.toml").read_text())
    return tuple(
        Client(
            name=record["name"],
            first=record["from"],
            before=record.get("before", ""),
            route=record.get("route", ""),
            reader=record["reader"],
            writer=record["writer"],
            note=record.get("note", ""),
            as_of=record["as_of"],
            evidence=record["evidence"],
            **{key: frozenset(record.get(key, ())) for key in _NAMES},
        )
        for record in data["client"]
    )


def newest_clients() -> list[Client]:
    """The newest version of each client, by each of its routes."""
    return [client for client in clients() if not client.before]


def find_clients(text: str) -> list[Client]:
    """The records for `delta-rs@0.19`, `duckdb`, …: every route; the newest where no version is named.

    Raises `client-unknown`.
    """
    name, _, version = text.strip().lower().partition("@")
    same = [client for client in clients() if name == client.name or name in client.aliases]
    if version:
        fitting = [client for client in same if _covers(client, version)]
    else:
        fitting = [client for client in same if not client.before]
    if not fitting:
        known = ", ".join(sorted({client.name for client in clients()}))
        raise LakemirrorError("client-unknown", f"nothing is known of {text}; known are {known}")
    return fitting


def verdict(client: Client, protocol: Protocol, in_use: Iterable[str] = (), actions: Iterable[str] = ()) -> Verdict:
    """What a client does with a protocol, given what is really used (`traits`) and the actions in the log."""
    features, used = features_of(protocol), frozenset(in_use)
    readers = features & READER_FEATURES | {name for name in features if name not in BY_NAME and protocol.reader >= 3}
    blocked = readers - client.reader_features
    if protocol.reader <= client.reader and protocol.reader < 3:
        blocked = frozenset()
    refused = _met(client.refused_in_use, used, features)
    blocked |= refused
    if protocol.reader >= 3 and client.reader < 2 and not client.reader_features:
        blocked |= readers
    wrong = _met(client.wrong_in_use, used, features)
    unparsed = frozenset(actions) & client.fails_on
    read = "no" if blocked or unparsed else "wrong" if wrong else "yes"
    if client.writer == 0:
        write, stopping = "never", frozenset[str]()
    else:
        stopping = _write_blocks(client, protocol, features) | _met(client.unwritable_in_use, used, features)
        stopping |= refused & features
        unsafe = features & client.unsafe_writes if protocol.writer >= 7 else frozenset()
        write = "no" if stopping or unparsed else "unsafe" if unsafe else "yes"
        stopping = stopping or frozenset(unsafe)
    blocks = {"read": tuple(sorted(blocked | wrong | unparsed)), "write": tuple(sorted(stopping | unparsed))}
    note = client.note if wrong or write == "unsafe" else ""
    return Verdict(client.label, read, write, blocks, note, client.basis)


def verdicts(snapshot: Snapshot, named: Iterable[Client] | None = None) -> list[Verdict]:
    """The verdict of every client, or of the named ones, on a table."""
    used, actions = traits(snapshot), ["domainMetadata"] if snapshot.domains else []
    return [verdict(client, snapshot.protocol, used, actions) for client in (named or clients())]


def blocking(snapshot: Snapshot, wanted: Iterable[Client], mode: str) -> frozenset[str]:
    """The features that keep at least one of these clients from reading or writing a table."""
    found: set[str] = set()
    for client in wanted:
        result = verdicts(snapshot, [client])[0]
        found.update(result.blocks["read"])
        if mode == "write":
            if client.writer == 0:
                raise LakemirrorError("target-unreachable", f"{client.label} does not write Delta tables")
            found.update(result.blocks["write"])
    return frozenset(found)


def changes(snapshot: Snapshot, after: Protocol) -> list[dict[str, str]]:
    """The clients for which a table opens or closes when its protocol becomes another."""
    found = []
    used = traits(snapshot)
    for client, now in zip(clients(), verdicts(snapshot), strict=True):
        kept = {trait for trait in used if (name := _feature(trait)) not in BY_NAME or name in features_of(after)}
        then = verdict(client, after, kept)
        if (now.read, now.write) != (then.read, then.write):
            change = {
                "client": client.label,
                "read": f"{now.read} → {then.read}",
                "write": f"{now.write} → {then.write}",
            }
            found.append(change)
    return found


def lost_by_column_mapping() -> list[str]:
    """The clients whose newest version cannot read a table because its column names need column mapping."""
    mapped, plain = Protocol(2, 5), Protocol(1, 2)
    return [
        client.label
        for client in newest_clients()
        if verdict(client, plain).read == "yes" and verdict(client, mapped, ["columnMapping"]).read != "yes"
    ]


def features_all_read(readers: Iterable[str]) -> frozenset[str]:
    """The features that a table may have so that all of these clients (`delta-rs@0.19`, `duckdb`, …) can read it."""
    named = [client for text in readers for client in find_clients(text)]
    return frozenset(
        feature.name
        for feature in FEATURES
        if not feature.reads or all(feature.name in c.reader_features - _stumbles(c) for c in named)
    )


def _stumbles(client: Client) -> frozenset[str]:
    """The features that a client does not read in every use that mirrored tables make of them."""
    met = (client.refused_in_use | client.wrong_in_use) - {"columnMapping: partitions"}  # these have no partitions
    return frozenset(_feature(trait) for trait in met)


def _feature(trait: str) -> str:
    return trait.partition(":")[0]


def _met(named: frozenset[str], used: frozenset[str], features: frozenset[str]) -> frozenset[str]:
    """What of the traits that a client trips over a table has: the features, or the whole trait where it is none."""
    found = {trait if (name := _feature(trait)) not in BY_NAME else name for trait in named & used}
    return frozenset(name for name in found if name in features or name not in BY_NAME)


def _write_blocks(client: Client, protocol: Protocol, features: frozenset[str]) -> frozenset[str]:
    if protocol.writer < 7:
        if protocol.writer <= client.writer:
            return frozenset()
        return frozenset(features - client.writer_features) or frozenset(features)
    return frozenset(features - client.writer_features)


def _covers(client: Client, version: str) -> bool:
    wanted = _numbers(version)
    return _numbers(client.first) <= wanted and (not client.before or wanted < _numbers(client.before))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
