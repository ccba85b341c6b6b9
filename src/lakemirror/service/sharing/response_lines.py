"""The lines of an answer: protocol, metadata, and one line for each file, with a link in place of its path.

    add ─▶ FileLine: JSON cut where links go ─▶ text with this caller's links

What does not depend on the caller is made once for each version. Source: Delta Sharing protocol, "API Response
Actions".
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

from lakemirror.delta.deletion_vectors import vector_path
from lakemirror.delta.log import Action, Protocol, Snapshot
from lakemirror.delta.statistics import record_count
from lakemirror.service.refused import Refused
from lakemirror.service.sharing.response_format import DELTA, shared_protocol
from lakemirror.service.sharing.shared_tables import SharedTable

Link = Callable[[str], str]
"""From a file's path, relative to the database's folder, to its link."""

_CUT = secrets.token_hex(16)  # around a path in the JSON of a line; nobody outside knows it


@dataclass(frozen=True, eq=False)
class FileLine:
    """One file. `parts`: text, path, text, path …, where paths are relative to the database's folder.

    The last text is without the two braces that end the line. Two lines are never equal.
    """

    add: Action
    parts: tuple[str, ...]

    @cached_property
    def rows(self) -> int | None:
        """How many rows the file has, without deleted ones; None if that is not known."""
        count = record_count(self.add)
        vector = self.add.get("deletionVector") or {}
        return None if count is None else count - int(vector.get("cardinality", 0))

    def line(self, link: Link, expiry: int) -> bytes:
        """The line as it is sent. `expiry`: of its links, in seconds since the epoch."""
        parts = list(self.parts)
        parts[1::2] = map(link, parts[1::2])
        parts.append(f',"expirationTimestamp":{expiry * 1000}}}}}\n')
        return "".join(parts).encode()


def head_lines(snapshot: Snapshot, answer_format: str, version: int | None = None) -> list[bytes]:
    """The lines of the protocol and the metadata. `version`: told with the metadata if the client asked for one."""
    return [protocol_line(snapshot.protocol, answer_format), metadata_line(snapshot, answer_format, version)]


def protocol_line(protocol: Protocol, answer_format: str) -> bytes:
    """The line of the protocol."""
    value = {"deltaProtocol": shared_protocol(protocol)} if answer_format == DELTA else {"minReaderVersion": 1}
    return _line({"protocol": value})


def metadata_line(snapshot: Snapshot, answer_format: str, version: int | None) -> bytes:
    """The line of the metadata."""
    own = snapshot.metadata.value
    value: dict[str, Any]
    if answer_format == DELTA:
        value = {"deltaMetadata": dict(own)}
    else:
        value = {
            "id": snapshot.metadata.id,
            **{key: own[key] for key in ("name", "description") if own.get(key)},
            "format": own.get("format") or {"provider": "parquet"},
            "schemaString": own.get("schemaString"),
            "partitionColumns": snapshot.metadata.partition_columns,
            "configuration": snapshot.metadata.configuration,
        }
    sizes = [int(add.get("size") or 0) for add in snapshot.files.values()]
    value |= {"size": sum(sizes), "numFiles": len(sizes)}
    return _line({"metaData": value | ({} if version is None else {"version": version})})


def file_line(
    table: SharedTable, action: Action, kind: str, answer_format: str, at: tuple[int, int] | None = None
) -> FileLine:
    """The line of an `add`, `remove` or `cdc` action. `at`: version and its time in milliseconds, told if given.

    `kind`: the name that the format `parquet` has for it: file, add, remove or cdf. Refused 400 for a file outside the
    table.
    """
    path = _path(table, str(action["path"]))
    told: dict[str, Any] = {} if at is None else {"version": at[0], "timestamp": at[1]}
    told |= {"id": _id(action["path"]), "size": action.get("size")}
    if answer_format == DELTA:
        own, vector = dict(action), action.get("deletionVector")
        own["path"] = _cut(path)
        if vector and vector["storageType"] != "i":
            below = vector_path(vector["pathOrInlineDv"]) if vector["storageType"] == "u" else ""
            file = _path(table, below or str(vector["pathOrInlineDv"]), is_plain=bool(below))
            own["deletionVector"] = {**vector, "storageType": "p", "pathOrInlineDv": _cut(file)}
            told["deletionVectorFileId"] = _id(file)
        name = {"file": "add", "cdf": "cdc"}.get(kind, kind)
        content = {"file": {**told, "deltaSingleAction": {name: own}}}
    else:
        values = {name: "" if value is None else value for name, value in (action.get("partitionValues") or {}).items()}
        own = {"url": _cut(path), "partitionValues": values}
        if kind in ("file", "add") and action.get("stats"):
            own["stats"] = action["stats"]
        content = {kind: {**told, **own}}
    parts = _text(content)[:-2].split(_CUT)
    parts[1::2] = [json.loads(f'"{part}"') for part in parts[1::2]]
    return FileLine(action, tuple(parts))


def end_line(expiry: int) -> bytes:
    """The last line of an answer, for clients that check that nothing is missing."""
    return _line({"endStreamAction": {"minUrlExpirationTimestamp": expiry * 1000}})


def _path(table: SharedTable, logged: str, *, is_plain: bool = False) -> str:
    """A file's path relative to the database's folder. `is_plain`: the path is not percent-encoded."""
    below = logged if is_plain else unquote(logged)
    if urlsplit(logged).scheme or below.startswith("/") or ".." in below.split("/"):
        raise Refused(400, "TableNotShareable", f"Table {table.full_name} has files outside its folder.")
    return f"{table.path}/{below}"


def _cut(path: str) -> str:
    return f"{_CUT}{path}{_CUT}"


def _id(path: str) -> str:
    return hashlib.md5(path.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def _line(value: Mapping[str, Any]) -> bytes:
    return f"{_text(value)}\n".encode()


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
