"""`--help` of every command says what each of its arguments and options means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from tests.commands import CommandRunner

from lakemirror.cli import app


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*words, name))


EVERY = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", [words for words in EVERY if words], ids=" ".join)
def test_every_parameter_is_explained(words: tuple[str, ...]) -> None:
    command = EVERY[words]
    assert command.help
    outer = ["lake"] if words[0] == "access" and len(words) > 1 else []
    shown = CommandRunner().invoke(
        app, [words[0], *outer, *words[1:], "--help"], env={"COLUMNS": "300", "TERM": "dumb"}
    )
    assert shown.exit_code == 0, shown.output
    for parameter in command.params:
        assert parameter.help, parameter.name
        assert parameter.help.split(",")[0] in shown.output, parameter.name
    assert "_PLACE" not in shown.output
