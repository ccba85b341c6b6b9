"""What changed in a table between two versions: the change data feed, and the data files that a stream reads.

    versions ─▶ may one client read them all? ─▶ version N ─▶ `cdc` actions, else those that change data ─▶ lines

Source: Delta Sharing protocol, "Read Change Data Feed from a Table"; Delta protocol, "Add CDC File".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lakemirror.delta.commit_times import commit_time
from lakemirror.delta.log import Action, Metadata, Protocol, Snapshot, read_commit
from lakemirror.delta.log_folder import Log
from lakemirror.delta.protocol import MAPPING
from lakemirror.delta.schema import PHYSICAL_NAME
from lakemirror.service.refused import Refused
from lakemirror.service.sharing.response_format import reader_features
from lakemirror.service.sharing.response_lines import FileLine, file_line
from lakemirror.service.sharing.shared_tables import SharedTable

_FEED = "delta.enableChangeDataFeed"
_MOST_VERSIONS = 100_000


@dataclass(frozen=True)
class Span:
    """Versions `first` to `last` of a table, both included. `feed`: the change data feed is asked for."""

    table: SharedTable
    log: Log
    first: int
    last: int
    feed: bool


@dataclass(frozen=True)
class State:
    """Protocol and metadata of a table from a version on."""

    version: int
    protocol: Protocol
    metadata: Metadata

    @property
    def features(self) -> frozenset[str]:
        """The reader features that a client must know."""
        return reader_features(self.protocol, self.metadata)


def check_versions(span: Span) -> None:
    """Refused 400 if the versions are not all there."""
    if span.last < span.first:
        raise Refused(400, "InvalidRequest", "The end is before the start.")
    if span.last - span.first >= _MOST_VERSIONS:
        raise Refused(400, "InvalidRequest", f"At most {_MOST_VERSIONS} versions can be read at once.")
    if any(version not in span.log.commits for version in range(span.first, span.last + 1)):
        oldest = span.log.commits.first
        raise Refused(400, "VersionNotFound", f"The log of table {span.table.full_name} begins at version {oldest}.")


def states_of(span: Span, begin: Snapshot) -> list[State]:
    """The state at the first version, and at each later one that changed the protocol or the metadata.

    `begin`: the table at the first version.
    """
    found = [State(span.first, begin.protocol, begin.metadata)]
    for version in range(span.first + 1, span.last + 1):
        protocol, metadata = found[-1].protocol, found[-1].metadata
        for action in read_commit(span.log.commits[version]):
            if "protocol" in action:
                protocol = Protocol.from_action(action["protocol"])
            if "metaData" in action:
                metadata = Metadata(action["metaData"])
        if protocol is not found[-1].protocol or metadata is not found[-1].metadata:
            found.append(State(version, protocol, metadata))
    return found


def widest_of(span: Span, states: Sequence[State], *, is_each_told: bool) -> State:
    """The state whose protocol has the features of all, by which every file of the span can be read.

    `is_each_told`: the client gets the metadata of each state; else that of the last alone, and the columns of the
    others must be among its columns. Refused 400 if one client cannot read all versions, or the feed was off in one.
    """
    for state in states:
        if span.feed and state.metadata.configuration.get(_FEED, "").lower() != "true":
            raise Refused(
                400,
                "ChangeDataFeedDisabled",
                f"Table {span.table.full_name} has no change data feed at version {state.version}. Its owner turns it "
                "on with the setting change_data_feed.",
            )
        if _mapping(state) != _mapping(states[0]):
            raise _changed(span, state, "column mapping")
        if not is_each_told and not _columns(state.metadata).items() <= _columns(states[-1].metadata).items():
            raise _changed(span, states[-1], "columns")
    needed = frozenset[str]().union(*(state.features for state in states))
    found = next((state for state in states if state.features == needed), None)
    if found is None:
        raise _changed(span, states[-1], "reader features")
    return found


def needs_columns_before(span: Span) -> bool:
    """True if the first version changed the metadata, and removes files that were written before it."""
    removes = any(kind == "remove" for _, kind, _ in _changes(replace(span, last=span.first)))
    return removes and any("metaData" in action for action in read_commit(span.log.commits[span.first]))


def check_columns_before(span: Span, before: Metadata, first: State) -> None:
    """Refused 400 if the first version removes rows that cannot be told with its columns.

    `before`: the metadata of the version before, whose columns the removed files have.
    """
    if not _columns(before).items() <= _columns(first.metadata).items():
        raise Refused(
            400,
            "TableChanged",
            f"Version {span.first} of table {span.table.full_name} made it again with other columns: the rows that it "
            f"deleted do not have them. Read the table at version {span.first}, and the changes from the next one on.",
        )


def change_lines(span: Span, answer_format: str) -> Iterator[FileLine]:
    """The line of each file that changed data."""
    for version, kind, action in _changes(span):
        at = (version, commit_time(span.log, version))
        yield file_line(span.table, action, kind, answer_format, at)


def check_without_vectors(span: Span) -> None:
    """Refused 400 if a file of the span has a deletion vector, which the format `parquet` cannot say."""
    for version, _, action in _changes(span):
        if action.get("deletionVector"):
            raise _needs_vectors(span.table, version)


def _changes(span: Span) -> Iterator[tuple[int, str, Action]]:
    """Version, kind and action of each file that changed data: those of the feed if it has some."""
    for version in range(span.first, span.last + 1):
        actions = read_commit(span.log.commits[version])
        fed = [action["cdc"] for action in actions if "cdc" in action] if span.feed else []
        yield from ((version, "cdf", change) for change in fed)
        for action in [] if fed else actions:
            kind = next((each for each in ("add", "remove") if each in action), "")
            if kind and action[kind].get("dataChange", True):
                yield version, kind, action[kind]


def _mapping(state: State) -> str:
    return state.metadata.configuration.get(MAPPING, "none")


def _columns(metadata: Metadata) -> dict[str, str]:
    """The type of each column, by its name in a file."""
    return {
        str((each.get("metadata") or {}).get(PHYSICAL_NAME, each["name"])): json.dumps([each["name"], each["type"]])
        for each in metadata.schema["fields"]
    }


def _changed(span: Span, state: State, what: str) -> Refused:
    return Refused(
        400,
        "TableChanged",
        f"The {what} of table {span.table.full_name} are not the same in versions {span.first} to {span.last}. Read "
        f"them apart: up to version {state.version - 1}, and from version {state.version} on.",
    )


def _needs_vectors(table: SharedTable, version: int) -> Refused:
    return Refused(
        400,
        "UnsupportedTableFeatures",
        f"Version {version} of table {table.full_name} has deletion vectors, which this client does not say it can "
        "read. Use a client that can, or have the table's owner run: lakemirror features drop TABLE deletionVectors",
    )
