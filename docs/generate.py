"""Writes the reference pages from the code: `make docs`. With `--check`, only says which are out of date."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

import typer

import lakemirror
from lakemirror import failpoints, publisher
from lakemirror.cli import app
from lakemirror.errors import CODES
from lakemirror.publisher.spark_batches import publish_each_batch
from lakemirror.publisher.sql import publish_sql
from lakemirror.settings import Settings
from lakemirror.verify import KINDS

FOLDER = Path(__file__).parent / "reference"
_MADE = "<!-- made by docs/generate.py: edit the code, then `make docs` -->\n"


def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    return {
        "commands.md": _commands(),
        "settings.md": _settings(),
        "errors.md": _errors(),
        "verify.md": _verify(),
        "failpoints.md": _failpoints(),
        "python.md": _python(),
    }


def _commands() -> str:
    lines = ["# Commands", "", _MADE]
    root = typer.main.get_command(app)
    _group(root, "lakemirror", lines)
    return "\n".join(lines)


def _group(group: Any, name: str, lines: list[str]) -> None:
    for command_name in sorted(group.commands):
        command = group.commands[command_name]
        full = f"{name} {command_name}"
        if hasattr(command, "commands"):
            outer = [p.name.upper() for p in command.params if p.param_type_name == "argument"]
            _group(command, " ".join([full, *outer]), lines)
            continue
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        usage = " ".join([full, *(p.name.upper() if p.required else f"[{p.name.upper()}]" for p in arguments)])
        lines += [f"## `{usage}`", "", *_paragraphs(command.help or ""), ""]
        options = [p for p in command.params if p.param_type_name == "option"]
        if command.params:
            lines += ["| argument or option | meaning |", "|---|---|"]
            lines += [f"| `{p.name.upper()}` | {p.help} |" for p in arguments]
            lines += [f"| `{'`, `'.join([*p.opts, *p.secondary_opts])}` | {p.help or ''} |" for p in options]
            lines.append("")


def _paragraphs(text: str) -> list[str]:
    return [
        f"    {line.strip()[9:]}" if line.strip().startswith("Example: ") else line.strip()
        for line in text.splitlines()
    ]


def _settings() -> str:
    lines = ["# Settings", "", _MADE]
    lines += [
        "A flag wins over an environment variable, that wins over `mirroring.json`, and that over the default.",
        "In `mirroring.json`, settings are under the key `lakemirror`; `processed_retention` is called `retention`.",
        "Microsoft Fabric's properties `defaultSchema`, `retentionInDays` and `enableDeltaChangeDataFeed` are read at",
        "their usual place.",
        "",
        "| setting | environment | default | meaning |",
        "|---|---|---|---|",
    ]
    for field in dataclasses.fields(Settings):
        default = "" if field.default in ("", ()) else f"`{field.default}`"
        lines.append(f"| `{field.name}` | `LAKEMIRROR_{field.name.upper()}` | {default} | {field.metadata['help']} |")
    return "\n".join([*lines, ""])


def _errors() -> str:
    lines = ["# Errors", "", _MADE]
    lines += [
        "Every error has a stable code. *Retry*: it may pass by itself and is tried again. *Exit*: the exit code.",
        "",
        "| code | retry | exit | what to do |",
        "|---|---|---|---|",
    ]
    for code, kind in CODES.items():
        retry = "yes" if kind.retry else "no"
        lines.append(f"| `{code}` | {retry} | {kind.exit_code} | {_cell(kind.hint)} |")
    return "\n".join([*lines, ""])


def _verify() -> str:
    lines = ["# What `lakemirror verify` finds", "", _MADE]
    lines += [
        "An *error* makes the exit code 3, `verify-impossible` 1; other warnings are only shown.",
        "",
        "| code | severity | what to do |",
        "|---|---|---|",
    ]
    lines += [f"| `{code}` | {severity} | {_cell(advice)} |" for code, (severity, advice) in KINDS.items()]
    return "\n".join([*lines, ""])


def _failpoints() -> str:
    lines = ["# Failpoints", "", _MADE]
    lines += [
        "Places where tests kill the process, or let the disk fail (EIO). Afterwards `verify` and the model agree.",
        "A test fails where its failpoint is not met.",
        "",
        "| failpoint | what is true there | by a kill | by an error |",
        "|---|---|---|---|",
    ]
    for names, test in (
        (failpoints.NAMES, "test_at_a_failpoint"),
        (failpoints.ACT_NAMES, "test_at_an_acts_failpoint"),
        (failpoints.PUBLISHER_NAMES, "test_at_a_publishers_failpoint"),
    ):
        for name, meaning in names.items():
            by = [f"`{test}[{name}-{mode}]`" for mode in ("kill", "error")]
            if name == "merge.before-commit":
                by = [f"{each}, `test_at_the_failpoint_of_a_compaction_at_rest[{mode}]`" for each, mode in
                      zip(by, ("kill", "error"), strict=True)]  # fmt: skip
            lines.append(f"| `{name}` | {_cell(meaning)} | {by[0]} | {by[1]} |")
    lines += [
        f"| `{name}` | {_cell(meaning)} | `test_killed_while_it_archives[{name}]` | `test_a_failing_archive[{name}]` |"
        for name, meaning in failpoints.STORE_NAMES.items()
    ]
    lines += [
        f"| `{name}` | {_cell(meaning)} | `tests/unit/engines/test_key_index.py` | a failing disk: the same |"
        for name, meaning in failpoints.INDEX_NAMES.items()
    ]
    lines += [
        f"| `{name}` | {_cell(meaning)} | `test_killed_at_a_failpoint[{name}]` | `test_a_failing_disk[{name}]` |"
        for name, meaning in failpoints.FEATURE_NAMES.items()
    ]
    return "\n".join(
        [
            *lines,
            "",
            "Tests of feature drops are in `tests/unit/table_features/test_rewrites_by_kernels.py`, of stores in",
            "`tests/stores/test_store_crashes.py`, all others in `tests/crash/test_failpoints.py`.",
            "",
        ]
    )


_METHODS = {  # of each public class, those that users call
    "MirroredDatabase": "sync run status register pause resume resync replay restore",
    "Landing": "table",
    "LandingTable": "load insert update upsert delete changes publish_snapshot flush drop recreate",
}


def _python() -> str:
    lines = ["# Python API", "", _MADE]
    lines += ["These names are public; all others may change. *Errors* name codes of [errors](errors.md).", ""]
    for module in (lakemirror, publisher):
        lines += [f"## `{module.__name__}`", ""]
        for name in module.__all__:
            lines += _object(name, getattr(module, name))
            for method in _METHODS.get(name, "").split():
                lines += _object(f"{name}.{method}", getattr(getattr(module, name), method))
    for function in (publish_sql, publish_each_batch):
        lines += [f"## `{function.__module__}`", "", *_object(function.__name__, function)]
    return "\n".join(lines)


def _object(name: str, found: Any) -> list[str]:
    shown = name
    is_made_by_users = not inspect.isclass(found) or name in ("MirroredDatabase", "Landing", "Buffer")
    if is_made_by_users:
        signature = inspect.signature(found)
        kept = [each.replace(annotation=each.empty) for each in signature.parameters.values() if each.name != "self"]
        shown += str(signature.replace(parameters=kept, return_annotation=signature.empty))
    return [f"### `{shown}`", "", inspect.getdoc(found) or "", ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    stale = [name for name, text in pages().items() if not _same(FOLDER / name, text)]
    if "--check" not in sys.argv:
        for name in stale:
            (FOLDER / name).write_text(pages()[name], encoding="utf-8")
        return 0
    for name in stale:
        print(f"docs/reference/{name} is out of date: make docs", file=sys.stderr)
    return 1 if stale else 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    raise SystemExit(main())
