"""The command line: one file a group of commands."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    import typer

    app: typer.Typer


def _say_nothing_of_interrupts(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


_hook = sys.excepthook
sys.excepthook = _say_nothing_of_interrupts  # the import takes long: Ctrl-C may come in between
from lakemirror.cli.main import main  # noqa: E402

sys.excepthook = _hook

__all__ = ["app", "main"]


def __getattr__(name: str) -> Any:
    # all commands: `main` imports the asked one alone
    if name == "app":
        from lakemirror.cli.commands import command_line

        return command_line()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
