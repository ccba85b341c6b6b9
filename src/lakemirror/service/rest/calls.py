"""The calls of the REST interface as rows: what routes a request, what says which role it needs, what OpenAPI shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DATABASE = "MirroredDatabase"
OPERATOR = "operator"
"""The role that declares what runs on this machine: `contribute` on every workspace."""
_WORKSPACE = "/workspaces/{workspaceId}"
_DATABASES = f"{_WORKSPACE}/mirroredDatabases"
_ONE = f"{_DATABASES}/{{mirroredDatabaseId}}"
_CAPTURE = f"{_ONE}/captures/{{captureName}}"

OTHER_ITEMS = frozenset({
    "copyJobs", "dashboards", "dataPipelines", "datamarts", "environments", "eventhouses", "eventstreams",
    "graphQLApis", "kqlDashboards", "kqlDatabases", "kqlQuerysets", "lakehouses", "mirroredAzureDatabricksCatalogs",
    "mirroredWarehouses", "mlExperiments", "mlModels", "notebooks", "paginatedReports", "reflexes", "reports",
    "semanticModels", "sparkJobDefinitions", "sqlDatabases", "sqlEndpoints", "variableLibraries",
    "warehouseSnapshots", "warehouses", "dataflows", "apacheAirflowJobs", "mountedDataFactories",
})  # fmt: skip
"""Kinds of items of the vendor's interface that are not offered."""


@dataclass(frozen=True)
class RestCall:
    """One call. `path` below `/v1`; its names in braces stand for any one segment.

    `role` on the workspace, or `OPERATOR`; empty: none. `answers`: the schema of the answer, empty for an empty one;
    with `status`. `body`: the schema of the request; empty: none. `query`: parameters that it takes, with their types.
    `refuses`: statuses of refusals beside those that every call has. `offered`: False for a call that is 501.
    """

    operation: str
    method: str
    path: str
    role: str = ""
    answers: str = ""
    status: int = 200
    body: str = ""
    query: tuple[tuple[str, str], ...] = ()
    refuses: tuple[int, ...] = ()
    offered: bool = True

    def is_at(self, segments: Sequence[str]) -> bool:
        """True if these segments, below `/v1`, are an address of the call."""
        own = self.path.strip("/").split("/")
        pairs = zip(own, segments, strict=False)
        return len(own) == len(segments) and all(name.startswith("{") or name == given for name, given in pairs)


_PAGE = (("continuationToken", "string"),)

CALLS: tuple[RestCall, ...] = (
    RestCall("ListWorkspaces", "GET", "/workspaces", answers="Workspaces", query=_PAGE),
    RestCall(
        "CreateWorkspace", "POST", "/workspaces", OPERATOR, "Workspace", 201, body="WorkspaceRequest", refuses=(409,)
    ),
    RestCall("GetWorkspace", "GET", _WORKSPACE, "read", "Workspace"),
    RestCall("UpdateWorkspace", "PATCH", _WORKSPACE, OPERATOR, "Workspace", body="WorkspaceRequest", refuses=(409,)),
    RestCall("DeleteWorkspace", "DELETE", _WORKSPACE, OPERATOR, refuses=(409,)),
    RestCall("ListItems", "GET", f"{_WORKSPACE}/items", "read", "Items", query=(("type", "string"), *_PAGE)),
    RestCall("CreateItem", "POST", f"{_WORKSPACE}/items", "contribute", offered=False),
    RestCall("ListMirroredDatabases", "GET", _DATABASES, "read", "MirroredDatabases", query=_PAGE),
    RestCall(
        "CreateMirroredDatabase", "POST", _DATABASES, "contribute", DATABASE, 201, body="CreateRequest", refuses=(409,)
    ),
    RestCall("GetMirroredDatabase", "GET", _ONE, "read", DATABASE),
    RestCall("UpdateMirroredDatabase", "PATCH", _ONE, "contribute", DATABASE, body="UpdateRequest", refuses=(409,)),
    RestCall("DeleteMirroredDatabase", "DELETE", _ONE, "contribute", query=(("hardDelete", "boolean"),)),
    RestCall("GetDefinition", "POST", f"{_ONE}/getDefinition", "contribute", "DefinitionAnswer"),
    RestCall("UpdateDefinition", "POST", f"{_ONE}/updateDefinition", "contribute", body="DefinitionAnswer"),
    RestCall("StartMirroring", "POST", f"{_ONE}/startMirroring", "contribute"),
    RestCall("StopMirroring", "POST", f"{_ONE}/stopMirroring", "contribute"),
    RestCall("GetMirroringStatus", "POST", f"{_ONE}/getMirroringStatus", "read", "MirroringStatus"),
    RestCall(
        "GetTablesMirroringStatus", "POST", f"{_ONE}/getTablesMirroringStatus", "read", "TablesMirroringStatus",
        query=_PAGE,
    ),
    RestCall("ListCaptures", "GET", f"{_ONE}/captures", OPERATOR, "Captures"),
    RestCall("GetCapture", "GET", _CAPTURE, OPERATOR, "Capture"),
    RestCall("DeclareCapture", "PUT", _CAPTURE, OPERATOR, "Capture", body="CaptureRequest", refuses=(409,)),
    RestCall("DeleteCapture", "DELETE", _CAPTURE, OPERATOR, query=(("giveBack", "boolean"),), refuses=(503,)),
    RestCall("ReloadCapture", "POST", f"{_CAPTURE}/reload", OPERATOR, body="ReloadRequest"),
)  # fmt: skip


def calls_at(segments: Sequence[str]) -> Mapping[str, RestCall]:
    """The calls at an address below `/v1`, by verb; empty where nothing is there."""
    return {call.method: call for call in CALLS if call.is_at(segments)}
