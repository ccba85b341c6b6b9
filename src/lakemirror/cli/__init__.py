"""The command line: one file a group of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakemirror.cli.main import main

if TYPE_CHECKING:
    import typer

    app: typer.Typer

__all__ = ["app", "main"]


def __getattr__(name: str) -> Any:
    # all commands: `main` imports the asked one alone
    if name == "app":
        from lakemirror.cli.commands import command_line

        return command_line()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
