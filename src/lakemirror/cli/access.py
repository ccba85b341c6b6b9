"""`lakemirror access ROOT …`: the principals that may use the service of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakemirror.cli.options import StorageOptions
from lakemirror.cli.serve import State, require_extra
from lakemirror.storage.place import database_place

if TYPE_CHECKING:
    from lakemirror.service.auth.principals import Principals

app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The principal's name: 3 to 24 of a-z and 0-9.")]


@app.callback()
def root(
    context: typer.Context,
    root: Annotated[str, typer.Argument(help="The folder that is served, or its address in a store.")],
    state: State = None,
    storage: StorageOptions = None,
) -> None:
    """Say who may use the service of a folder. A running service follows within seconds."""
    context.obj = database_place(root), state


@app.command()
def add(
    context: typer.Context,
    name: Name,
    role: Annotated[list[str], typer.Option(help="WORKSPACE=read or WORKSPACE=contribute; * for every workspace.")],
) -> None:
    """Make a principal, and its workspaces. Prints its id, secret and account key. The secret is shown only once.

    Example: lakemirror access /srv/lake add shop --role sales=contribute
    """
    print(json.dumps(_principals(context).add(name, role).shown()))


@app.command("list")
def list_(context: typer.Context) -> None:
    """Print every principal with its roles, as JSON.

    Example: lakemirror access /srv/lake list
    """
    found = [
        {"name": each.name, "client_id": each.client_id, "roles": dict(each.roles)}
        for each in _principals(context).all()
    ]
    print(json.dumps(found, indent=1))


@app.command()
def remove(context: typer.Context, name: Name) -> None:
    """Remove a principal; its tokens end.

    Example: lakemirror access /srv/lake remove shop
    """
    _principals(context).remove(name)


@app.command()
def rotate(context: typer.Context, name: Name) -> None:
    """Give a principal a new secret and account key, and print them; the old ones are refused.

    Example: lakemirror access /srv/lake rotate shop
    """
    print(json.dumps(_principals(context).rotate(name).shown()))


@app.command()
def share(
    context: typer.Context,
    name: Name,
    to: Annotated[Path, typer.Option(help="The profile file to write; it must not exist yet.")],
    endpoint: Annotated[str, typer.Option(help="Where readers reach the service.")] = "https://localhost:8443",
    expires: Annotated[str, typer.Option(help="How long the file is good for, such as 12h or 30d.")] = "30d",
) -> None:
    """Write a Delta Sharing profile file, with which a client reads the tables that the principal may read.

    The file is a secret. It opens nothing but Delta Sharing, and ends with `rotate` or `remove`.

    Example: lakemirror access /srv/lake share shop --to shop.share --endpoint https://lake.example.org:8443
    """
    from lakemirror.cli.durations import seconds

    require_extra()
    from lakemirror.service.sharing.profile import write_profile

    write_profile(_principals(context), name, to, endpoint, int(seconds(expires)))
    print(to)


@app.command()
def audit(context: typer.Context) -> None:
    """Print the audit log, oldest first: one JSON object a line.

    Example: lakemirror access --state store s3://lake/mirrors audit
    """
    require_extra()
    from lakemirror.service.auth.audit_log import audit_lines
    from lakemirror.service.own_folder import own_folder

    for line in audit_lines(own_folder(*context.obj) / "audit.log"):
        print(line.decode(errors="replace"), end="")


def _principals(context: typer.Context) -> Principals:
    require_extra()
    from lakemirror.service.auth.principals import Principals

    return Principals(*context.obj)
