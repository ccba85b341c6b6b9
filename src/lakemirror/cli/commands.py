"""The commands of `lakemirror`, each imported only if it is run: imports take most of a short command's time.

lakemirror sync … ─▶ command_line("sync"): that command alone        lakemirror --help ─▶ all commands
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

_COMMANDS = {
    "demo": ("demo", "demo"),
    "sync": ("sync", "sync"),
    "run": ("run", "run"),
    "status": ("status", "status"),
    "log": ("show_log", "show_log"),
    "doctor": ("doctor", "doctor"),
    "init": ("init", "init"),
    "config": ("config", "config"),
    "check": ("check", "check"),
    "publish": ("publish", "publish"),
    "capture": ("capture_source", "app"),
    "serve": ("serve", "serve"),
    "access": ("access", "app"),
    "verify": ("verify", "verify"),
    "tables": ("tables", "tables"),
    "query": ("query", "query"),
    "register": ("register", "register"),
    "cuts": ("cuts", "cuts"),
    "pause": ("operations", "pause"),
    "resume": ("operations", "resume"),
    "resync": ("operations", "resync"),
    "replay": ("operations", "replay"),
    "restore": ("operations", "restore"),
    "history": ("history_group", "app"),
    "features": ("features", "app"),
    "compat": ("features", "compat"),
    "sql": ("features", "sql"),
}
"""For each command its module in this package and its function or group there, in the order of `--help`."""


def command_line(asked: str = "") -> typer.Typer:
    """The command line with the command `asked` alone; with all commands if none has this name."""
    app = typer.Typer(
        help="Open Mirroring: change files in a folder become live Delta tables, exactly once.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        suggest_commands=False,  # click suggests them, too
    )
    app.callback()(_options)
    for name in [asked] if asked in _COMMANDS else _COMMANDS:
        module, attribute = _COMMANDS[name]
        found = getattr(import_module(f"lakemirror.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from lakemirror import __version__

        print(f"lakemirror {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass
