"""Commands as `lakemirror` runs them, in this process."""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest import mock

import click.testing
import typer

from lakemirror.cli.printable import printable, say
from lakemirror.errors import LakemirrorError


class CommandRunner(click.testing.CliRunner):
    """Runs a command as `lakemirror.cli.main` does: an error ends it with message, hint and exit code."""

    def invoke(self, app: typer.Typer, *args: Any, **more: Any) -> click.testing.Result:  # type: ignore[override]
        command = _built(app)
        run = command.main

        def main(*words: Any, **given: Any) -> Any:
            try:
                return run(*words, **given)
            except LakemirrorError as error:
                say(f"{printable(str(error))}\n  {error.hint}")
                raise SystemExit(error.exit_code) from error

        with mock.patch.object(command, "main", main):
            return super().invoke(command, *args, **more)


@cache
def _built(app: typer.Typer) -> click.Command:
    """The command of an app, built once: that reads the signatures of all its functions."""
    return typer.main.get_command(app)
