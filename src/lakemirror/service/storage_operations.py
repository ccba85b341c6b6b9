"""The operations of the storage plane, as rows of data: how a request asks for one, and what allows it.

    method, dialect, address, query, headers ─▶ the first row that fits ─▶ who authorises and who acts use this row

Rules: service.md sections 3 and 5. `docs/reference/storage-rights.md` is made of these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakemirror.service.request_address import BLOB, DFS, Address

SERVICE, CONTAINER, OBJECT = "s", "c", "o"
STAGES, PUBLISHES = "stages", "publishes"

_READ = ("GET", "HEAD")
_NOT_OFFERED = frozenset({
    "lease", "snapshot", "tags", "tier", "query", "page", "pagelist", "appendblock", "seal", "undelete", "acl", "copy",
    "immutabilitypolicies", "legalhold", "incrementalcopy", "userdelegationkey", "expiry", "rename", "blobs",
})  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """One operation. A request asks for it where all of `dialect`, `kind`, `methods`, `query` and `header` fit.

    `kind`: what is addressed, a letter of a SAS's `srt`: `s` the service, `c` a workspace, `o` a path in a database.
    `query`: values, in lower case, of which a parameter has one; "" is also a parameter that is not there.
    `role`: on the workspace. `letters`: of a SAS's `sp`, one of which is needed; "" for none. `source`: the same where
    the request names a source. `creates`: with `c` and without `w`, it is allowed only where nothing is. `effect`: on
    the path; empty: none.
    """

    name: str
    dialect: str
    kind: str
    methods: tuple[str, ...]
    role: str
    letters: str
    query: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    header: str = ""
    source: str = ""
    creates: bool = False
    effect: str = ""


def operation_of(
    dialect: str, method: str, address: Address, query: Mapping[str, str], headers: Mapping[str, str]
) -> Operation | None:
    """What a request asks for; None where no operation is asked for so. `headers` finds names in any case."""
    kind = kind_of(dialect, address, query)
    if dialect == BLOB and (_value(query, "comp") in _NOT_OFFERED or "snapshot" in query or "versionid" in query):
        return replace(NOT_OFFERED, kind=kind)
    return next(
        (
            row
            for row in OPERATIONS
            if (row.dialect, row.kind) == (dialect, kind)
            and method in row.methods
            and all(_value(query, name) in values for name, values in row.query.items())
            and (not row.header or row.header in headers)
        ),
        None,
    )


def kind_of(dialect: str, address: Address, query: Mapping[str, str]) -> str:
    """What a request addresses: `s`, `c` or `o`."""
    if not address.workspace or (dialect == BLOB and _value(query, "restype") == "account"):
        return SERVICE
    named = ("resource", "filesystem") if dialect == DFS else ("restype", "container")
    return CONTAINER if not address.database or _value(query, named[0]) == named[1] else OBJECT


def _value(query: Mapping[str, str], name: str) -> str:
    return query.get(name, "").lower()


_PROPERTIES = ("", "metadata", "properties")

OPERATIONS = (
    Operation("ListFilesystems", DFS, SERVICE, _READ, "read", "l"),
    Operation("ListPaths", DFS, CONTAINER, ("GET",), "read", "l", {"resource": ("filesystem",)}),
    Operation("GetFilesystemAccess", DFS, CONTAINER, _READ, "read", "r", {"action": ("getaccesscontrol",)}),
    Operation("GetFilesystem", DFS, CONTAINER, _READ, "read", "r"),
    Operation("CreateFilesystem", DFS, CONTAINER, ("PUT",), "contribute", "cw"),
    Operation("DeleteFilesystem", DFS, CONTAINER, ("DELETE",), "contribute", "d"),
    Operation("ReadPath", DFS, OBJECT, _READ, "read", "r"),
    Operation("RenamePath", DFS, OBJECT, ("PUT",), "contribute", "cw", header="x-ms-rename-source", source="d",
              creates=True, effect=PUBLISHES),
    Operation("CreateDirectory", DFS, OBJECT, ("PUT",), "contribute", "cw", {"resource": ("directory",)},
              creates=True, effect=STAGES),
    Operation("CreateFile", DFS, OBJECT, ("PUT",), "contribute", "cw", {"resource": ("file",)},
              creates=True, effect=STAGES),
    Operation("AppendAndFlush", DFS, OBJECT, ("PATCH",), "contribute", "w",
              {"action": ("append",), "flush": ("true",)}, effect=PUBLISHES),
    Operation("Append", DFS, OBJECT, ("PATCH",), "contribute", "aw", {"action": ("append",)}, effect=STAGES),
    Operation("Flush", DFS, OBJECT, ("PATCH",), "contribute", "w", {"action": ("flush",)}, effect=PUBLISHES),
    Operation("SetProperties", DFS, OBJECT, ("PATCH",), "contribute", "w", {"action": ("setproperties",)}),
    Operation("NotOffered", DFS, OBJECT, ("PATCH",), "read", "",
              {"action": ("setaccesscontrol", "setaccesscontrolrecursive")}),
    Operation("DeletePath", DFS, OBJECT, ("DELETE",), "contribute", "d", effect=PUBLISHES),
    Operation("GetAccount", BLOB, SERVICE, _READ, "read", "r", {"restype": ("account",)}),
    Operation("ListContainers", BLOB, SERVICE, ("GET",), "read", "l", {"comp": ("list",)}),
    Operation("ListBlobs", BLOB, CONTAINER, ("GET",), "read", "l", {"comp": ("list",)}),
    Operation("Batch", BLOB, CONTAINER, ("POST",), "contribute", "d", {"comp": ("batch",)}),
    Operation("GetContainer", BLOB, CONTAINER, _READ, "read", "r", {"comp": _PROPERTIES}),
    Operation("CreateContainer", BLOB, CONTAINER, ("PUT",), "contribute", "cw", {"comp": _PROPERTIES}),
    Operation("DeleteContainer", BLOB, CONTAINER, ("DELETE",), "contribute", "d", {"comp": _PROPERTIES}),
    Operation("GetBlocks", BLOB, OBJECT, _READ, "read", "r", {"comp": ("blocklist",)}),
    Operation("ReadBlob", BLOB, OBJECT, _READ, "read", "r"),
    Operation("DeleteBlob", BLOB, OBJECT, ("DELETE",), "contribute", "d", effect=PUBLISHES),
    Operation("PutBlock", BLOB, OBJECT, ("PUT",), "contribute", "cw", {"comp": ("block",)},
              creates=True, effect=STAGES),
    Operation("PutBlockList", BLOB, OBJECT, ("PUT",), "contribute", "cw", {"comp": ("blocklist",)},
              creates=True, effect=PUBLISHES),
    Operation("SetMetadata", BLOB, OBJECT, ("PUT",), "contribute", "w", {"comp": ("metadata", "properties")}),
    Operation("CopyBlob", BLOB, OBJECT, ("PUT",), "contribute", "cw", {"comp": ("",)}, "x-ms-copy-source", "r", True,
              effect=PUBLISHES),
    Operation("PutBlob", BLOB, OBJECT, ("PUT",), "contribute", "cw", {"comp": ("",)}, creates=True, effect=PUBLISHES),
)  # fmt: skip

NOT_OFFERED = Operation("NotOffered", BLOB, "", (), "read", "")
