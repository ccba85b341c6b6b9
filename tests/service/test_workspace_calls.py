"""Workspaces that the operator makes, renames and deletes by REST, on a disk and in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from running_service import Running, until
from tests.object_stores import s3_server

from lakemirror.service.auth.principals import Issued, Principals
from lakemirror.storage import connections, place
from lakemirror.storage.place import storage_of

ALL = "/v1/workspaces"
Serving: TypeAlias = tuple[Running, dict[str, Issued]]


@pytest.fixture(scope="module", params=["disk", pytest.param("bucket", marks=pytest.mark.full)])
def serving(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service with an operator, a writer of `stock`, and a reader of it."""
    folder = tmp_path_factory.mktemp("workspaces")
    roles = {"boss": "*=contribute", "writer": "stock=contribute", "reader": "stock=read"}
    if request.param == "disk":
        issued = {name: Principals(folder).add(name, [role]) for name, role in roles.items()}
        service = Running(folder)
        yield service, issued
        service.stop()
        return
    with s3_server() as server:
        connections.give_options("", server.options)
        root = place(f"{server.bucket()}/lake")
        issued = {name: Principals(root, folder).add(name, [role]) for name, role in roles.items()}
        service = Running(root, state=folder)
        yield service, issued
        service.stop()
        connections.forget_all()


def test_only_the_operator_makes_workspaces(serving: Serving) -> None:
    service, issued = serving
    for name in ("writer", "reader"):
        token = service.token(issued[name])
        for method, path in (("POST", ALL), ("PATCH", f"{ALL}/stock"), ("DELETE", f"{ALL}/stock")):
            answer = service.send(method, path, {"displayName": "new"}, token=token)
            assert (answer.status, answer.code) == (403, "InsufficientPrivileges"), (name, method)
    assert service.send("POST", ALL, {"displayName": "new"}).status == 401
    boss = service.token(issued["boss"])
    for name in ("", ".x", "a/b", "v1", "x" * 64, None, 7, "11111111-2222-3333-4444-555555555555"):
        assert service.send("POST", ALL, {"displayName": name}, token=boss).code == "InvalidRequest", name
    for name in ("STOCK", "writer", "Writer"):
        assert service.send("POST", ALL, {"displayName": name}, token=boss).code == "WorkspaceNameAlreadyExists"


def test_a_workspace_is_made_filled_emptied_and_deleted(serving: Serving) -> None:
    service, issued = serving
    boss = service.token(issued["boss"])
    made = service.send("POST", ALL, {"displayName": "Depot"}, token=boss)
    assert made.status == 201 and made.json["displayName"] == "Depot" and made.json["type"] == "Workspace"
    one = f"{ALL}/{made.json['id']}"
    assert service.send("GET", f"{ALL}/depot", token=boss).json == made.json
    service.service.registry.look()
    assert service.send("GET", one, token=boss).json == made.json
    database = service.create(boss, "shop", "Depot")
    assert service.send("DELETE", one, token=boss).code == "WorkspaceNotEmpty"
    service.send("DELETE", f"{one}/mirroredDatabases/{database}?hardDelete=true", token=boss)
    until(lambda: service.send("DELETE", one, token=boss).status == 200)
    assert service.send("GET", one, token=boss).code == "WorkspaceNotFound"
    service.service.registry.look()
    assert service.send("GET", f"{ALL}/depot", token=boss).code == "WorkspaceNotFound"


def test_a_rename_takes_the_roles_along_and_keeps_folder_and_id(serving: Serving) -> None:
    service, issued = serving
    boss, writer, reader = (service.token(issued[name]) for name in ("boss", "writer", "reader"))
    before = service.send("GET", f"{ALL}/stock", token=writer).json
    database = service.create(writer, "rows", "stock")
    folder = service.service.registry.all_databases()[0].folder
    renamed = service.send("PATCH", f"{ALL}/stock", {"displayName": "Goods"}, token=boss)
    assert renamed.status == 200 and renamed.json == {**before, "displayName": "Goods"}
    assert service.send("GET", f"{ALL}/stock", token=boss).status == 404
    assert service.send("GET", f"{ALL}/stock", token=writer).status == 403
    one = f"{ALL}/goods/mirroredDatabases/{database}"
    assert service.send("GET", one, token=reader).status == 200
    assert service.send("PATCH", one, {"description": "d"}, token=writer).status == 200
    assert service.send("PATCH", one, {"description": "d"}, token=reader).status == 403
    again = type(service.service.registry)(service.root, state=service.service.options.state)
    assert [(each.name, each.id) for each in again.workspaces()] == [("Goods", before["id"])]
    assert [each.folder for each in again.all_databases()] == [folder]
    other = service.send("POST", ALL, {"displayName": "stock"}, token=boss)
    assert other.status == 201 and other.json["id"] != before["id"]
    assert service.send("GET", f"{ALL}/stock", token=writer).status == 403
    assert (
        service.send("PATCH", f"{ALL}/stock", {"displayName": "GOODS"}, token=boss).code == "WorkspaceNameAlreadyExists"
    )
    service.service.registry.look()
    assert service.send("GET", f"{ALL}/stock", token=boss).json == other.json


def test_a_deletion_takes_the_roles_away(serving: Serving) -> None:
    service, issued = serving
    boss = service.token(issued["boss"])
    service.send("POST", ALL, {"displayName": "brief"}, token=boss)
    guest = service.service.principals.add("guest", ["brief=read"])
    token = service.token(guest)
    assert service.send("GET", f"{ALL}/brief", token=token).status == 200
    assert service.send("DELETE", f"{ALL}/brief", token=boss).status == 200
    assert service.send("POST", ALL, {"displayName": "brief"}, token=boss).status == 201
    assert service.send("GET", f"{ALL}/brief", token=token).status == 403


@pytest.mark.parametrize("by", ["REST", "access"])
def test_roles_that_a_killed_rename_has_left_open_no_later_workspace(serving: Serving, by: str) -> None:
    """Killed between the roles and the name, and the same call never came again."""
    service, issued = serving
    boss, principals, name = service.token(issued["boss"]), service.service.principals, f"left{by.lower()}"
    guest = principals.add("guest" + by.lower(), ["halls=read"])
    principals.move_roles("halls", name)
    if by == "REST":
        assert service.send("POST", ALL, {"displayName": name.upper()}, token=boss).status == 201
    else:
        principals.add("invited", [f"{name.upper()}=read"])
        service.service.registry.look()
        assert service.send("GET", f"{ALL}/{name}", token=service.token(issued["boss"])).status == 200
    assert service.send("GET", f"{ALL}/{name}", token=service.token(guest)).status == 403


def test_killed_before_the_workspace_goes_a_deletion_has_taken_its_roles(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, issued = serving
    boss, principals = service.token(issued["boss"]), service.service.principals
    service.send("POST", ALL, {"displayName": "halfway"}, token=boss)
    token = service.token(principals.add("halfguest", ["halfway=read"]))
    folder = service.service.registry.workspace("halfway").folder  # type: ignore[union-attr]
    (folder / "thesis.txt").write_bytes(b"mine")
    assert service.send("DELETE", f"{ALL}/halfway", token=boss).status == 409
    assert service.send("GET", f"{ALL}/halfway", token=token).status == 200, "what stays keeps its roles"
    (folder / "thesis.txt").unlink()

    def killed(*_: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as dying:
        dying.setattr(type(storage_of(folder)), "delete", killed)
        assert service.send("DELETE", f"{ALL}/halfway", token=boss).status >= 500
    assert service.send("GET", f"{ALL}/halfway", token=token).status == 403
    assert service.send("DELETE", f"{ALL}/halfway", token=boss).status == 200


def test_a_workspace_with_files_of_others_is_not_deleted(serving: Serving, tmp_path: Path) -> None:
    service, issued = serving
    boss = service.token(issued["boss"])
    service.send("POST", ALL, {"displayName": "notes"}, token=boss)
    folder = service.service.registry.workspace("notes").folder  # type: ignore[union-attr]
    (folder / "thesis.txt").write_bytes(b"mine")
    assert service.send("DELETE", f"{ALL}/notes", token=boss).code == "WorkspaceNotEmpty"
    assert (folder / "thesis.txt").read_bytes() == b"mine"
