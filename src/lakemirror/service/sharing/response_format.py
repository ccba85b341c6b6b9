"""Which of the protocol's two formats an answer has: `parquet` for every client, `delta` for tables with features.

    header ─▶ Client (formats, features) ─┐
    table's protocol ─▶ needed features  ─┴▶ format, or why this client cannot read the table

Source: Delta Sharing protocol, "Delta Sharing Capabilities Header".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakemirror.delta.log import Metadata, Protocol, Snapshot
from lakemirror.delta.protocol import MAPPING
from lakemirror.service.refused import Refused

HEADER = "delta-sharing-capabilities"
DELTA, PARQUET = "delta", "parquet"

_OF_THE_LOG = frozenset({"v2Checkpoint", "vacuumProtocolCheck"})
"""Reader features that concern those alone who read the log themselves. A client of this protocol does not."""
_VECTORS, _COLUMN_MAPPING = "deletionVectors", "columnMapping"


@dataclass(frozen=True)
class Client:
    """What a client says it can read. `features` in lower case. `wants_end`: it checks that the answer is complete."""

    formats: frozenset[str] = frozenset({PARQUET})
    features: frozenset[str] = frozenset()
    wants_end: bool = False


def client_of(header: str) -> Client:
    """The client that sent this value of the capabilities header; names and values are in any case."""
    told: dict[str, frozenset[str]] = {}
    for part in header.lower().split(";"):
        name, _, values = part.partition("=")
        told[name.strip()] = frozenset(value.strip() for value in values.split(",") if value.strip())
    formats = told.get("responseformat", frozenset()) & {DELTA, PARQUET}
    return Client(
        formats or frozenset({PARQUET}),
        told.get("readerfeatures", frozenset()),
        "true" in told.get("includeendstreamaction", ()),
    )


def reader_features(protocol: Protocol, metadata: Metadata) -> frozenset[str]:
    """The features that a client must know to read tables of this protocol."""
    features = protocol.reader_features or frozenset()
    if protocol.reader == 2:
        features = frozenset({_COLUMN_MAPPING})
    if metadata.configuration.get(MAPPING, "none") == "none":
        features -= {_COLUMN_MAPPING}
    return features - _OF_THE_LOG


def has_vectors(snapshot: Snapshot) -> bool:
    """True if a file of this version has a deletion vector."""
    return any(add.get("deletionVector") for add in snapshot.files.values())


def format_for(client: Client, snapshot: Snapshot, name: str) -> str:
    """`parquet` or `delta`. Refused 400 if the client can read neither, naming the feature. `name`: of the table.

    A table that may get deletion vectors at any moment has the format `delta` for clients that know them, so that a
    client which asks twice gets the same format twice.
    """
    return format_for_features(client, reader_features(snapshot.protocol, snapshot.metadata), snapshot, name)


def format_for_features(client: Client, features: frozenset[str], newest: Snapshot, name: str) -> str:
    """As `format_for`, for versions that need these features. `newest`: tells whether there are vectors now."""
    lacking = {each for each in features if each.lower() not in client.features}
    if PARQUET in client.formats and not features:
        return PARQUET
    if DELTA in client.formats and not lacking:
        return DELTA
    if _VECTORS in features and not has_vectors(newest):
        if PARQUET in client.formats and features == {_VECTORS}:
            return PARQUET
        if DELTA in client.formats and lacking == {_VECTORS}:
            return DELTA
    named = ", ".join(sorted(lacking or features))
    raise Refused(
        400,
        "UnsupportedTableFeatures",
        f"Table {name} has the feature {named}, which this client does not say it can read. Use a client that can, or "
        f"have the table's owner run: lakemirror features drop TABLE {sorted(lacking or features)[0]}",
    )


def shared_protocol(protocol: Protocol) -> Mapping[str, Any]:
    """A `protocol` action without the features that concern the log alone."""
    value: dict[str, Any] = dict(protocol.to_action()["protocol"])
    for names in ("readerFeatures", "writerFeatures"):
        if names in value:
            value[names] = [each for each in value[names] if each not in _OF_THE_LOG]
    return value
