"""Commands as `lakemirror` runs them, in this process."""

from __future__ import annotations

from typing import Any

import click.testing
import typer

from lakemirror.cli.printable import printable, say
from lakemirror.errors import LakemirrorError


class CommandRunner(click.testing.CliRunner):
    """Runs a command as `lakemirror.cli.main` does: an error ends it with message, hint and exit code."""

    def invoke(self, app: typer.Typer, *args: Any, **more: Any) -> click.testing.Result:  # type: ignore[override]
        command = typer.main.get_command(app)
        run = command.main

        def main(*words: Any, **given: Any) -> Any:
            try:
                return run(*words, **given)
            except LakemirrorError as error:
                say(f"{printable(str(error))}\n  {error.hint}")
                raise SystemExit(error.exit_code) from error

        command.main = main  # type: ignore[method-assign]
        return super().invoke(command, *args, **more)
