"""Whether advice can be followed: each command, option, setting, extra, target and file that a text names is there."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer

from lakemirror.cli import app
from lakemirror.settings.settings import Settings
from tests.source import nodes, parsed, walk

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/lakemirror"
SETTINGS = {field.name for field in fields(Settings)}
FUNCTIONS = {"publish_each_batch"}
NOT_SAID = {
    "service/operating/page.py",
    "spark_session/class_archive.py",
    "failpoints.py",
    "service/operating/advice.py",
}  # what no user reads

_COMMAND = re.compile(r"(Run |Run: )?`lakemirror ([^`]+)`|(Run: |one: )lakemirror ([a-z]+(?: [A-Z]+)*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_SETTING = re.compile(
    r"\b[Ss]et (?:the setting )?`?([a-z_]+)`? to\b|\bsetting `(\w+)`"
    r"|(?<![\w./(\"'=@])([a-z]+(?:_[a-z]+)+)\b(?![(=]|\.\w)"
)


def wrong(text: str) -> list[str]:
    """What a text names that is not there: commands, their options and arguments, extras, targets, documents."""
    found = [fault for match in _COMMAND.finditer(text) if (fault := _wrong_command(match))]
    rest = _COMMAND.sub("", text)
    found += [option for option in _OPTION.findall(rest) if option not in _options()]
    found += [name for name in re.findall(r"docs/[\w/-]+\.md", text) if not (ROOT / name).is_file()]
    extras, targets = _project()
    found += [name for name in re.findall(r"lakemirror\[([a-z]+)\]", text) if f"\n{name} = [" not in extras]
    found += [name for name in re.findall(r"`make ([a-z-]+)`", text) if f"\n{name}:" not in targets]
    return found


@functools.cache
def _project() -> tuple[str, str]:
    """The project's extras, and its targets."""
    return (ROOT / "pyproject.toml").read_text(), (ROOT / "Makefile").read_text()


def wrong_settings(hint: str) -> list[str]:
    """What a hint names like a setting that is none."""
    return [name for groups in _SETTING.findall(hint) for name in groups if name and name not in SETTINGS | FUNCTIONS]


@functools.cache
def said() -> tuple[tuple[str, str], ...]:
    """Where and what: every text of the program but its docstrings. `X` stands for what is filled in."""
    return tuple(
        (f"{path.relative_to(SOURCE)}:{line}", text)
        for path in sorted(SOURCE.rglob("*.py"))
        if str(path.relative_to(SOURCE)) not in NOT_SAID
        for line, text in _texts(parsed(path))
    )


def hints() -> Iterator[tuple[str, str]]:
    """Where and what: every text that is given as a hint where an error is raised."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in nodes(path):
            for value in _values_of_hints(node):
                for line, text in _texts(value):
                    if " " in text:
                        yield f"{path.relative_to(SOURCE)}:{line}", text


def _values_of_hints(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.keyword) and node.arg in ("hint", "way_out"):
        return [node.value]
    if isinstance(node, ast.Assign) and any("hint" in ast.unparse(each).lower() for each in node.targets):
        return [node.value]
    return []


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    inner: set[int] = set()
    for node in walk(tree):
        if isinstance(node, ast.Expr):
            inner.add(id(node.value))  # a docstring
        elif isinstance(node, ast.JoinedStr):
            inner |= {id(each) for each in walk(node)} - {id(node)}
            yield (
                node.lineno,
                "".join(str(each.value) if isinstance(each, ast.Constant) else "X" for each in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.lineno, node.value


def _wrong_command(match: re.Match[str]) -> str | None:
    is_to_run, words = bool(match[1] or match[3]), shlex.split(match[2] or match[4])
    found, taken = _commands(), 0
    positional: list[str] = []
    for place, word in enumerate(words):
        inner = getattr(found, "commands", {})
        if taken and word not in inner and (default := getattr(found, "default_command", "")):
            found, inner = inner[default], {}
        if word in inner:
            found, taken = inner[word], place + 1
            positional = []
        elif word.startswith("--") and word not in (*_names(found), "--help"):
            return f"lakemirror {' '.join(words)}: no option {word}"
        elif not word.startswith("--"):
            positional.append(word)
    subcommand = re.fullmatch("[a-z]+", positional[-1]) if positional and hasattr(found, "commands") else None
    if not taken or subcommand:
        return f"lakemirror {' '.join(words)}: no such command"
    needed = sum(each.required for each in found.params if each.param_type_name == "argument")
    if is_to_run and "--help" not in words and (len(positional) < needed or hasattr(found, "commands")):
        return f"lakemirror {' '.join(words)}: too few arguments"
    return None


@functools.cache
def _commands() -> Any:
    return typer.main.get_command(app)


def _names(command: Any) -> list[str]:
    return [name for each in command.params for name in (*each.opts, *each.secondary_opts)]


@functools.cache
def _options() -> frozenset[str]:
    def below(command: Any) -> Iterator[str]:
        yield from _names(command)
        for inner in getattr(command, "commands", {}).values():
            yield from below(inner)

    return frozenset(below(_commands())) | {"--help"}
