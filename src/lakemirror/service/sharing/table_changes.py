"""What changed in a table between two versions: the change data feed, and the data files that a stream reads.

    version N ─▶ `cdc` actions, else `add` and `remove` actions that change data ─▶ lines

Source: Delta Sharing protocol, "Read Change Data Feed from a Table"; Delta protocol, "Add CDC File".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakemirror.delta.commit_times import commit_time
from lakemirror.delta.log import Action, Snapshot, read_commit
from lakemirror.delta.log_folder import Log
from lakemirror.service.refused import Refused
from lakemirror.service.sharing.response_format import PARQUET
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


def check_span(span: Span, begin: Snapshot, newest: Snapshot) -> None:
    """Refused 400 if the versions are not all there, or the feed was not on in all of them.

    `begin`: the table at the first version.
    """
    name = span.table.full_name
    if span.last < span.first:
        raise Refused(400, "InvalidRequest", "The end is before the start.")
    if span.last - span.first >= _MOST_VERSIONS:
        raise Refused(400, "InvalidRequest", f"At most {_MOST_VERSIONS} versions can be read at once.")
    if any(version not in span.log.commits for version in range(span.first, span.last + 1)):
        oldest = span.log.commits.first
        raise Refused(400, "VersionNotFound", f"The log of table {name} begins at version {oldest}.")
    if span.feed and not all(each.metadata.configuration.get(_FEED, "").lower() == "true" for each in (begin, newest)):
        raise Refused(
            400,
            "ChangeDataFeedDisabled",
            f"Table {name} has no change data feed for these versions. Its owner turns it on with the setting "
            "change_data_feed.",
        )


def change_lines(span: Span, answer_format: str) -> Iterator[tuple[int, FileLine]]:
    """Version and line of each file that changed data. Refused 400 for what this format cannot say."""
    for version in range(span.first, span.last + 1):
        actions = read_commit(span.log.commits[version])
        at = (version, commit_time(span.log, version))
        changes = [action["cdc"] for action in actions if "cdc" in action] if span.feed else []
        if changes:
            for change in changes:
                yield version, file_line(span.table, change, "cdf", answer_format, at)
            continue
        for action in actions:
            kind = next((each for each in ("add", "remove") if each in action), "")
            if kind and action[kind].get("dataChange", True):
                if answer_format == PARQUET and action[kind].get("deletionVector"):
                    raise _needs_vectors(span.table, version)
                yield version, file_line(span.table, action[kind], kind, answer_format, at)


def metadata_changes(span: Span) -> Iterator[tuple[int, Action]]:
    """Version and `metaData` of each version after the first that changed it."""
    for version in range(span.first + 1, span.last + 1):
        for action in read_commit(span.log.commits[version]):
            if "metaData" in action:
                yield version, action["metaData"]


def _needs_vectors(table: SharedTable, version: int) -> Refused:
    return Refused(
        400,
        "UnsupportedTableFeatures",
        f"Version {version} of table {table.full_name} has deletion vectors, which this client does not say it can "
        "read. Use a client that can, or have the table's owner run: lakemirror features drop TABLE deletionVectors",
    )


__all__ = ["Span", "change_lines", "check_span", "metadata_changes"]
