"""Addresses of the storage plane: which workspace, database and path a request means, and in which dialect it speaks.

    raw path ─▶ decoded once ─▶ segments checked ─▶ [account] workspace database path

Rules: service.md section 2. Everything here is a pure function of the request line and the headers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

MOST_SEGMENT_BYTES = 255
MOST_PATH_BYTES = 2048
ITEM_SUFFIX = ".MirroredDatabase"
ANY_ACCOUNT = "onelake"

DFS, BLOB = "dfs", "blob"

_DFS_PARAMETERS = frozenset({"resource", "action", "recursive", "mode", "paginated"})
_BLOB_PARAMETERS = frozenset({"comp", "restype"})
_REFUSED = re.compile(r"[\x00-\x1f\x7f\\]")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")


class AddressError(ValueError):
    """A path that is refused with status 400: `code` is `InvalidUri` or `InvalidResourceName`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Address:
    """What a path names. `workspace` "" for the account itself, `database` "" for the workspace, `path` "" for the
    database. `database` is as the request wrote it: an id, a display name, or a display name with the item suffix."""

    workspace: str = ""
    database: str = ""
    path: str = ""

    def below_directory(self, directory: str) -> Address:
        """The address of a folder below this one, as a listing's `directory` names it. AddressError."""
        own = [part for part in (self.workspace, self.database, *self.path.split("/")) if part]
        return address_of([*own, *checked_segments(directory)], None)


def split_target(target: str) -> tuple[str, str]:
    """The raw path and the raw query of a request target, which may be in absolute form."""
    match = _ABSOLUTE.match(target)
    path, _, query = (target[match.end() :] if match else target).partition("?")
    return path, query.partition("#")[0]


def address_of(segments: Sequence[str], is_account: Callable[[str], bool] | None) -> Address:
    """What the segments of a path name; a first segment that is an account is left out. None: there is no account."""
    if is_account and segments and (segments[0].lower() == ANY_ACCOUNT or is_account(segments[0])):
        segments = segments[1:]
    workspace, database, *inner = [*segments, "", ""]
    return Address(workspace, database, "/".join(part for part in inner if part))


def segments_of(raw: str) -> list[str]:
    """The segments of a raw path: percent-decoded once, split at `/`, empty ones dropped. AddressError."""
    return checked_segments(decoded(raw))


def checked_segments(text: str) -> list[str]:
    """The segments of a path that is decoded already. AddressError."""
    segments = [part for part in text.split("/") if part]
    if len(text.encode("utf-8", "replace")) > MOST_PATH_BYTES:
        raise AddressError("InvalidResourceName", f"The path is longer than {MOST_PATH_BYTES:,} bytes.")
    for part in segments:
        if part in (".", "..") or _REFUSED.search(part):
            raise AddressError("InvalidUri", "The path holds a dot segment, a backslash or a control character.")
        if len(part.encode("utf-8", "replace")) > MOST_SEGMENT_BYTES:
            raise AddressError("InvalidResourceName", f"A name is longer than {MOST_SEGMENT_BYTES} bytes.")
    return segments


def checked_prefix(text: str) -> str:
    """The start of a name, as listings take it. AddressError where no name begins so."""
    checked_segments(text)
    return text


def decoded(raw: str) -> str:
    """A percent-encoded text decoded once; `+` stays a plus sign. AddressError where that is no UTF-8."""
    try:
        return unquote_to_bytes(raw.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeError:
        raise AddressError("InvalidUri", "The address is not UTF-8.") from None


def query_of(raw: str) -> dict[str, str]:
    """The parameters of a raw query, names in lower case; of a repeated one the first counts. AddressError."""
    found: dict[str, str] = {}
    for item in raw.split("&"):
        if item:
            name, _, value = item.partition("=")
            found.setdefault(decoded(name).lower(), decoded(value))
    return found


def source_segments(header: str) -> list[str]:
    """The segments that a rename or copy source names: a path or an absolute URL, its query dropped. AddressError."""
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
