"""What clients ask of one table: its version, its metadata, its files, its changes.

parameters ─▶ version(s) ─▶ format ─▶ Answer (lines on demand)
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from lakemirror.delta.commit_times import commit_time, first_version_from, last_version_until
from lakemirror.service.refused import Refused
from lakemirror.service.sharing.file_predicates import files_that_may_match
from lakemirror.service.sharing.response_format import PARQUET, Client, format_for, format_for_features
from lakemirror.service.sharing.response_lines import FileLine, head_lines, metadata_line, protocol_line
from lakemirror.service.sharing.shared_tables import SharedTable
from lakemirror.service.sharing.snapshots import Snapshots, VersionLines, whole_log
from lakemirror.service.sharing.table_changes import (
    Span,
    change_lines,
    check_columns_before,
    check_versions,
    check_without_vectors,
    needs_columns_before,
    states_of,
    widest_of,
)


@dataclass(frozen=True)
class Answer:
    """An answer about one version: lines of protocol and metadata, then of files.

    `has_end`: one more line follows. `table_id`: of the metadata; a table that is dropped and made again has another
    one. `stays`: `files` is a list, of objects that the next answer about this version has, too.
    """

    version: int
    format: str
    head: Iterable[bytes]
    files: Iterable[FileLine]
    has_end: bool
    table_id: str = ""
    stays: bool = False


class TableQueries:
    """Answers questions about tables. Safe for threads."""

    def __init__(self) -> None:
        self._snapshots = Snapshots()

    def version(self, table: SharedTable, starting: str | None) -> int:
        """The newest version; with `starting`, a time as text, the oldest that was committed then or later. Refused."""
        if starting is None:
            return self._snapshots.newest(table).version
        found = first_version_from(whole_log(table), _milliseconds(starting, "startingTimestamp"))
        if found is None:
            raise Refused(400, "VersionNotFound", f"Table {table.full_name} has no version since {starting[:40]}.")
        return found

    def metadata(self, table: SharedTable, client: Client, query: Mapping[str, str]) -> Answer:
        """Protocol and metadata. Refused."""
        asked = self._asked_version(table, query.get("version"), query.get("timestamp"))
        snapshot = self._snapshots.newest(table) if asked is None else self._snapshots.at(table, asked)
        answer_format = format_for(client, snapshot, table.full_name)
        head = head_lines(snapshot, answer_format, asked)
        return Answer(snapshot.version, answer_format, head, (), client.wants_end, snapshot.metadata.id)

    def query(self, table: SharedTable, client: Client, wanted: Mapping[str, Any]) -> Answer:
        """The files of a version, or those that changed data since a version. `wanted`: the request's body. Refused."""
        if wanted.get("startingVersion") is not None:
            span = self._span(table, wanted.get("startingVersion"), wanted.get("endingVersion"), feed=False)
            return self._changed(span, client, told_metadata=True)
        asked = self._asked_version(table, wanted.get("version"), wanted.get("timestamp"))
        snapshot = self._snapshots.newest(table) if asked is None else self._snapshots.at(table, asked)
        answer_format = format_for(client, snapshot, table.full_name)
        at = None if asked is None else (asked, _time_of(table, asked))
        lines = self._snapshots.lines(table, snapshot, answer_format, at)
        return Answer(
            snapshot.version, answer_format, lines.head, _chosen(lines, wanted), client.wants_end,
            snapshot.metadata.id, lines.stays,
        )  # fmt: skip

    def changes(self, table: SharedTable, client: Client, query: Mapping[str, str]) -> Answer:
        """The change data feed of a span of versions. `query`: names in lower case. Refused."""
        first, last = query.get("startingversion"), query.get("endingversion")
        log = whole_log(table)
        start, end = query.get("startingtimestamp"), query.get("endingtimestamp")
        if (first is None) == (start is None) or (last is not None and end is not None):
            raise Refused(400, "InvalidRequest", "Give one start and at most one end, as a version or a timestamp.")
        if start is not None:
            found = first_version_from(log, _milliseconds(start, "startingTimestamp"))
            if found is None:
                raise Refused(400, "VersionNotFound", f"Table {table.full_name} has no version since {start[:40]}.")
            first = str(found)
        if end is not None:
            found = last_version_until(log, _milliseconds(end, "endingTimestamp"))
            if found is None:
                raise Refused(400, "VersionNotFound", f"Table {table.full_name} has no version before {end[:40]}.")
            last = str(found)
        span = self._span(table, first, last, feed=True)
        return self._changed(span, client, query.get("includehistoricalmetadata", "").lower() == "true")

    def _changed(self, span: Span, client: Client, told_metadata: bool) -> Answer:
        check_versions(span)
        states = states_of(span, self._snapshots.at(span.table, span.first))
        widest = widest_of(span, states, is_each_told=told_metadata)
        if needs_columns_before(span):
            check_columns_before(span, self._snapshots.at(span.table, span.first - 1).metadata, states[0])
        newest = self._snapshots.newest(span.table)
        answer_format = format_for_features(client, widest.features, newest, span.table.full_name)
        if answer_format == PARQUET and widest.features:
            check_without_vectors(span)
        told = [state.version for state in states] if told_metadata else [states[-1].version]

        def head() -> Iterator[bytes]:
            yield protocol_line(widest.protocol, answer_format)
            for version in told:
                yield metadata_line(self._snapshots.at(span.table, version), answer_format, version)

        return Answer(span.first, answer_format, head(), change_lines(span, answer_format), client.wants_end)

    def _span(self, table: SharedTable, first: Any, last: Any, *, feed: bool) -> Span:
        log = whole_log(table)
        begin, end = _number(first, "startingVersion"), _number(last, "endingVersion")
        assert begin is not None
        if begin > log.version:
            message = f"Table {table.full_name} has no version {begin} yet: the newest is {log.version}."
            raise Refused(400, "VersionNotFound", message)
        return Span(table, log, begin, log.version if end is None else min(end, log.version), feed)

    def _asked_version(self, table: SharedTable, version: Any, timestamp: Any) -> int | None:
        """The version that is asked for; None for the newest."""
        if version is not None and timestamp is not None:
            raise Refused(400, "InvalidRequest", "Give a version or a timestamp, not both.")
        if timestamp is None:
            return _number(version, "version")
        found = last_version_until(whole_log(table), _milliseconds(timestamp, "timestamp"))
        if found is None:
            message = f"Table {table.full_name} has no version of {str(timestamp)[:40]}."
            raise Refused(400, "VersionNotFound", message)
        return found


def _chosen(lines: VersionLines, wanted: Mapping[str, Any]) -> Sequence[FileLine]:
    """The files that may have rows which are asked for, and of these as many as the limit needs."""
    hints = wanted.get("predicateHints")
    matching = files_that_may_match(
        lines.bounds, hints if isinstance(hints, list) else [], wanted.get("jsonPredicateHints")
    )
    found = lines.files if matching is None else list(compress(lines.files, matching))
    limit = wanted.get("limitHint")
    if type(limit) is not int or limit < 0:
        return found
    chosen, rows = [], 0
    for line in found:
        if rows >= limit:
            break
        chosen.append(line)
        rows += line.rows or 0
    return chosen


def _time_of(table: SharedTable, version: int) -> int:
    log = whole_log(table)
    return commit_time(log, version) if version in log.commits else 0


def _number(value: Any, name: str) -> int | None:
    text = str(value)
    if value is None:
        return None
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Refused(400, "InvalidRequest", f"{name} is a whole number from 0.")
    return int(text)


def _milliseconds(text: Any, name: str) -> int:
    try:
        found = datetime.datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        raise Refused(400, "InvalidRequest", f"{name} is a time such as 2026-01-31T00:00:00Z.") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.timezone.utc)
    return (found - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)) // datetime.timedelta(milliseconds=1)
