"""When each version of a table was committed, and which version was there at a time.

Source: Delta protocol, "In-Commit Timestamps"; without them the modified time of the commit file counts.
"""

from __future__ import annotations

from lakemirror.delta.log import read_commit
from lakemirror.delta.log_folder import Log

_IN_COMMIT = "inCommitTimestamp"


def commit_time(log: Log, version: int) -> int:
    """When this version was committed, in milliseconds since the epoch. KeyError if the log has no such commit."""
    path = log.commits[version]
    for action in read_commit(path)[:1]:
        told = (action.get("commitInfo") or {}).get(_IN_COMMIT)
        if isinstance(told, int):
            return told
    return path.stat().st_mtime_ns // 1_000_000


def last_version_until(log: Log, time: int) -> int | None:
    """The newest version that was committed at this time or before; None if the log begins later.

    `time`: milliseconds since the epoch. Commit times are taken to rise from version to version.
    """
    first, last = log.commits.first, log.commits.last
    if last < 0 or commit_time(log, first) > time:
        return None
    while first < last:
        middle = (first + last + 1) // 2
        if commit_time(log, middle) <= time:
            first = middle
        else:
            last = middle - 1
    return first


def first_version_from(log: Log, time: int) -> int | None:
    """The oldest version that was committed at this time or after; None if all are older."""
    before = last_version_until(log, time - 1)
    following = log.commits.first if before is None else before + 1
    return following if following in log.commits else None
