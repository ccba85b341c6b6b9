"""Addresses of the storage plane: which workspace, database and path a request means, and in which dialect it speaks.

    raw target ─▶ query, path decoded once ─▶ segments checked ─▶ [account] workspace database path

Rules: service.md section 2. Everything here is a pure function of the request line and the headers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lakemirror.service.raw_query import decoded, query_of, split_target
from lakemirror.service.refused import Refused

MOST_SEGMENT_BYTES = 255
MOST_PATH_BYTES = 2048
ANY_ACCOUNT = "onelake"

DFS, BLOB = "dfs", "blob"

_DFS_PARAMETERS = frozenset({"resource", "action", "recursive", "mode", "paginated"})
_BLOB_PARAMETERS = frozenset({"comp", "restype"})
_REFUSED = re.compile(r"[\x00-\x1f\x7f\\]")


@dataclass(frozen=True)
class Address:
    """What a path names. `workspace` "" for the account itself, `database` "" for the workspace, `path` "" for the
    database. `database` is as the request wrote it: an id, a display name, or a display name with the item suffix."""

    workspace: str = ""
    database: str = ""
    path: str = ""

    def below_directory(self, directory: str) -> Address:
        """The address of a folder below this one, as a listing's `directory` names it. Refused."""
        own = [part for part in (self.workspace, self.database, *self.path.split("/")) if part]
        return address_of([*own, *checked_segments(directory)], None)

    def below_prefix(self, prefix: str) -> Address:
        """The folder of this workspace in which all names begin with `prefix`. Refused."""
        return Address(self.workspace).below_directory(prefix.rpartition("/")[0])

    @property
    def full_name(self) -> str:
        """`workspace/database/path`, where ids are in lower case."""
        return "/".join(part for part in (self.workspace.lower(), self.database.lower(), self.path) if part)


@dataclass(frozen=True)
class Target:
    """What a request target means, read once for who authenticates, who authorises and who acts.

    `account`: the first segment of its path where that is an account, else "". `refused`: why the request is answered
    with status 400 once its caller is known; what could not be read is empty then.
    """

    account: str = ""
    address: Address = Address()
    query: Mapping[str, str] = field(default_factory=dict)
    refused: Refused | None = None


def target_of(raw: str, is_account: Callable[[str], bool]) -> Target:
    """What a request target means, as it was sent."""
    try:
        query, segments = query_of(raw), segments_of(split_target(raw)[0])
    except Refused as refused:
        return Target(refused=refused)
    return Target(account_in(segments, is_account), address_of(segments, is_account), query)


def account_in(segments: Sequence[str], is_account: Callable[[str], bool]) -> str:
    """The first segment of a path where that is an account, else ""."""
    first = segments[0] if segments else ""
    return first if first.lower() == ANY_ACCOUNT or is_account(first) else ""


def address_of(segments: Sequence[str], is_account: Callable[[str], bool] | None) -> Address:
    """What the segments of a path name; a first segment that is an account is left out. None: there is no account."""
    if is_account and account_in(segments, is_account):
        segments = segments[1:]
    workspace, database, *inner = [*segments, "", ""]
    return Address(workspace, database, "/".join(part for part in inner if part))


def segments_of(raw: str) -> list[str]:
    """The segments of a raw path: percent-decoded once, split at `/`, empty ones dropped. Refused."""
    return checked_segments(decoded(raw))


def checked_segments(text: str) -> list[str]:
    """The segments of a path that is decoded already. Refused."""
    segments = [part for part in text.split("/") if part]
    if len(text.encode("utf-8", "replace")) > MOST_PATH_BYTES:
        raise Refused(400, "InvalidResourceName", f"The path is longer than {MOST_PATH_BYTES:,} bytes.")
    for part in segments:
        if part in (".", "..") or _REFUSED.search(part):
            raise Refused(400, "InvalidUri", "The path holds a dot segment, a backslash or a control character.")
        if len(part.encode("utf-8", "replace")) > MOST_SEGMENT_BYTES:
            raise Refused(400, "InvalidResourceName", f"A name is longer than {MOST_SEGMENT_BYTES} bytes.")
    return segments


def source_segments(header: str) -> list[str]:
    """The segments that a rename or copy source names: a path or an absolute URL, its query dropped. Refused."""
    if re.match(r"[A-Za-z]+%3A%2F%2F", header, re.IGNORECASE):
        header = decoded(header)
    path, _ = split_target(header)
    return segments_of(path)


def dialect_of(host: str, method: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """`dfs` or `blob` (service.md section 5). `headers` finds names in any case."""
    host = host.lower()
    if ".dfs." in host:
        return DFS
    if ".blob." in host:
        return BLOB
    if method == "PATCH" or not _DFS_PARAMETERS.isdisjoint(query) or "x-ms-rename-source" in headers:
        return DFS
    if not _BLOB_PARAMETERS.isdisjoint(query) or "x-ms-blob-type" in headers or "x-ms-copy-source" in headers:
        return BLOB
    if "xml" in headers.get("accept", "") or ("x-ms-version" in headers and "accept" not in headers):
        return BLOB
    return DFS


def is_writable(path: str) -> bool:
    """True where clients may write: below `Files/`, except what the engine writes there (service.md section 5)."""
    first, *inner = path.split("/")
    return (
        first == "Files"
        and bool(inner)
        and inner[0] not in ("Monitoring", "_DroppedTables")
        and inner != ["LandingZone"]
    )
