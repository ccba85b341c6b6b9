"""Writes the reference pages from the code: `make docs`. With `--check`, only says which are out of date."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

import lakemirror
import lakemirror.spark
from lakemirror import failpoints, publisher
from lakemirror.cli import app
from lakemirror.error_codes import CODES
from lakemirror.publisher.capture.topics.topic_frames import debezium_to_landing
from lakemirror.publisher.spark_batches import publish_each_batch
from lakemirror.publisher.sql import publish_sql
from lakemirror.service.storage_operations import OPERATIONS, Operation
from lakemirror.settings.settings import Settings, variable
from lakemirror.verify import KINDS

FOLDER = Path(__file__).parent / "reference"
_CRASH = "tests/crash/test_failpoints.py"
_MADE = "<!-- made by docs/generate.py: edit the code, then `make docs` -->\n"


def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    return {
        "commands.md": _commands(),
        "settings.md": _settings(),
        "errors.md": _errors(),
        "verify.md": _verify(),
        "failpoints.md": _failpoints(),
        "storage-rights.md": _storage_rights(),
        "python.md": _python(),
    }


def _commands() -> str:
    commands = dict(_every_command(typer.main.get_command(app), "lakemirror"))
    uses = Counter(_meaning(parameter) for command in commands.values() for parameter in command.params)
    frequent = {name: meaning for (name, meaning), count in reversed(uses.most_common()) if count >= 2}
    shared = sorted(frequent.items())
    without = [f"`{_short(usage)}`" for usage, command in commands.items() if not _takes_storage(command)]
    lines = [
        "# Commands",
        "",
        _MADE,
        "## Of several commands",
        "",
        "Each command below names those that it takes, apart from `--storage`, which all take but "
        f"{', '.join(without)}.",
        "",
        *_table(shared),
    ]
    for usage, command in commands.items():
        lines += [f"## `{usage}`", "", *_paragraphs(command.help or ""), ""]
        meanings = [_meaning(parameter) for parameter in command.params]
        own = [meaning for meaning in meanings if meaning not in shared]
        lines += _table(own) if own else []
        also = ", ".join(name for name, meaning in meanings if (name, meaning) in shared and _is_named(name))
        lines += [f"{'Also' if own else 'Takes'} {also}.", ""] if also else []
    return "\n".join(lines)


def _short(usage: str) -> str:
    """A command's name: `access add` of `lakemirror access ROOT add NAME`."""
    return " ".join(word for word in usage.split()[1:] if word.islower())


def _takes_storage(command: Any) -> bool:
    return any(_meaning(parameter)[0] == "`--storage`" for parameter in command.params)


def _is_named(name: str) -> bool:
    """True for an option that a command's own section names."""
    return name.startswith("`-") and name != "`--storage`"


def _every_command(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Each command with its usage, in the order of the names."""
    for command_name in sorted(group.commands):
        command = group.commands[command_name]
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        full = f"{name} {command_name}"
        if hasattr(command, "commands"):
            yield from _every_command(command, " ".join([full, *(p.name.upper() for p in arguments)]))
            continue
        yield " ".join([full, *(p.name.upper() if p.required else f"[{p.name.upper()}]" for p in arguments)]), command


def _meaning(parameter: Any) -> tuple[str, str]:
    """How an argument or option is written, and its sentence."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`", parameter.help
    return f"`{'`, `'.join([*parameter.opts, *parameter.secondary_opts])}`", parameter.help or ""


def _table(meanings: Sequence[tuple[str, str]]) -> list[str]:
    rows = [f"| {name} | {meaning} |" for name, meaning in meanings]
    return ["| name | meaning |", "|---|---|", *rows, ""]


def _paragraphs(text: str) -> list[str]:
    return [
        f"    {line.strip()[9:]}" if line.strip().startswith("Example: ") else line.strip()
        for line in text.splitlines()
    ]


def _settings() -> str:
    lines = ["# Settings", "", _MADE]
    lines += [
        "A flag wins over an environment variable, that over `mirroring.json`, that over the default. In",
        "`mirroring.json`, settings are under the key `lakemirror`; `processed_retention` is called `retention`.",
        "Fabric's `defaultSchema`, `retentionInDays` and `enableDeltaChangeDataFeed` are read at their usual place. A",
        f"variable is called as its setting: `{variable('zoneless')}`.",
        "",
        "*Owner* is who may set it for a database of a service (`lakemirror serve`):",
        "",
        "- `database`: whoever may change the definition, over REST too; of a retention at most what `serve` has.",
        "- `operator`: the environment of `serve`, or `mirroring.json` by hand. Over REST: 400 `InvalidDefinition`.",
        "- `process`: the environment of `serve` alone, for all databases; else a warning (`setting-without-effect`).",
        "",
        "`sync`, `run` and the Python API take every setting from every place.",
        "",
        "| setting | owner | default | meaning |",
        "|---|---|---|---|",
    ]
    for field in dataclasses.fields(Settings):
        default = "" if field.default in ("", ()) else f"`{field.default}`"
        about = f"{field.metadata['owner']} | {default} | {field.metadata['help']}"
        lines.append(f"| `{field.name}` | {about} |")
    return "\n".join([*lines, ""])


def _errors() -> str:
    lines = ["# Errors", "", _MADE]
    lines += [
        "Every error has a stable code. *Retry*: it is tried again by itself. *Exit*: the exit code; empty: 3.",
        "",
        "| code | retry | exit | what to do |",
        "|---|---|---|---|",
    ]
    for code, kind in CODES.items():
        retry, exit_code = "yes" if kind.retry else "", "" if kind.exit_code == 3 else kind.exit_code
        lines.append(f"| `{code}` | {retry} | {exit_code} | {_cell(kind.hint)} |")
    return "\n".join([*lines, ""])


def _verify() -> str:
    lines = ["# What `lakemirror verify` finds", "", _MADE]
    lines += [
        "An *error* makes the exit code 3, `verify-impossible` 1; other warnings are only shown.",
        "",
        "| code | severity | what to do |",
        "|---|---|---|",
    ]
    codes: dict[tuple[str, str], list[str]] = {}
    for code, kind in KINDS.items():
        codes.setdefault(tuple(kind), []).append(f"`{code}`")
    lines += [f"| {', '.join(same)} | {severity} | {_cell(advice)} |" for (severity, advice), same in codes.items()]
    return "\n".join([*lines, ""])


_FAILPOINTS = (  # what they are of, the tests that meet each, their file, what is true at each
    ("an engine", "test_at_a_failpoint[NAME-kill] test_at_a_failpoint[NAME-error]", _CRASH, failpoints.NAMES),
    ("an operation", "test_at_an_acts_failpoint[NAME-kill] test_at_an_acts_failpoint[NAME-error]", _CRASH,
     failpoints.OPERATION_NAMES),
    ("a publisher", "test_at_a_publishers_failpoint[NAME-kill] test_at_a_publishers_failpoint[NAME-error]", _CRASH,
     failpoints.PUBLISHER_NAMES),
    ("an apply with history tables",
     "test_killed_at_a_failpoint[some-NAME-kill] test_killed_at_a_failpoint[some-NAME-error]",
     "tests/crash/test_history_kills.py", {"history.after-commit": failpoints.HISTORY_NAMES["history.after-commit"]}),
    ("history tables that begin or end, and soft deletes that end", "", "tests/crash/test_history_begin_and_end.py",
     {name: what for name, what in failpoints.HISTORY_NAMES.items() if name != "history.after-commit"}),
    ("an archive in a store", "test_killed_while_it_archives[NAME] test_a_failing_archive[NAME]",
     "tests/stores/test_store_crashes.py", failpoints.STORE_NAMES),
    ("a feature drop", "test_killed_at_a_failpoint[NAME] test_a_failing_disk[NAME]",
     "tests/features/test_rewrites_by_kernels.py", failpoints.FEATURE_NAMES),
    ("a compaction, too", "test_at_the_failpoint_of_a_compaction_at_rest[kill] "
     "test_at_the_failpoint_of_a_compaction_at_rest[error]", _CRASH,
     {"merge.before-commit": failpoints.NAMES["merge.before-commit"]}),
    ("the key index", "", "tests/crash/test_index_kills.py", failpoints.INDEX_NAMES),
)  # fmt: skip


def _failpoints() -> str:
    lines = ["# Failpoints", "", _MADE]
    lines += [
        "Places where tests kill the process, or let the disk fail (EIO). Afterwards `verify` and the model agree.",
        "A test fails where its failpoint is not met. What is true at each: `failpoints.py`.",
        "",
    ]
    for whose, tests, file, names in _FAILPOINTS:
        by = " and ".join(f"`{test}`" for test in tests.split())
        lines += [f"## Of {whose}", "", f"Met by {by + ', in ' if by else ''}`{file}`.", ""]
        lines += [*(f"- `{name}`" for name in names), ""]
    return "\n".join(lines)


def _storage_rights() -> str:
    lines = ["# Who may do what on the storage endpoint", "", _MADE]
    lines += [
        "The role is the principal's on the workspace. An account SAS narrows it: `srt` must have the letter of what",
        "is addressed (`s` the service, `c` a workspace, `o` a path in a database), `sp` one of the letters. A path is",
        "addressed as a workspace where `resource=filesystem` (DFS) or `restype=container` (Blob) says so.",
        "",
        "The SAS of a table's temporary credentials (`sr=d`) allows `r` and `l` in the folder of this table. What a",
        "list lists has to be in this folder, else what is addressed.",
        "",
        "- *Source*: the letter that is also needed, for what a rename or copy takes.",
        "- *Creates*: with `c` and without `w` it is allowed only where nothing is, which is decided in the same step.",
        "- Each part of a batch is a `DeleteBlob` by itself.",
        "- Lists of workspaces hold those that the principal may read.",
        "",
        "Parameters are matched in any case; one that comes twice is 400 `InvalidQueryParameterValue`. The first row",
        "that fits a request is its operation.",
        "",
        "| operation | dialect | request | role | `srt` | `sp` | source | creates |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in OPERATIONS:
        letters = " or ".join(f"`{letter}`" for letter in row.letters) or "any"
        source = f"`{row.source}`" if row.source else ""
        creates = "yes" if row.creates else ""
        lines.append(
            f"| {row.name} | {row.dialect.upper()} | {_asked(row)} | {row.role} | `{row.kind}` | {letters} "
            f"| {source} | {creates} |"
        )
    return "\n".join([*lines, ""])


def _asked(row: Operation) -> str:
    """What asks for an operation."""
    shown = [f"`{'`, `'.join(row.methods)}`"]
    for name, values in row.query.items():
        shown.append(" or ".join(f"`{name}={value}`" if value else f"no `{name}`" for value in values))
    return ", ".join([*shown, *([f"header `{row.header}`"] if row.header else [])])


_METHODS = {  # of each public class, those that users call
    "MirroredDatabase": "sync run status cuts cut register pause resume resync replay restore",
    "Landing": "table cut",
    "LandingTable": "load insert update upsert delete changes publish_snapshot flush drop recreate",
}


def _python() -> str:
    lines = ["# Python API", "", _MADE]
    lines += ["These names are public; all others may change. *Errors* name codes of [errors](errors.md).", ""]
    for module in (lakemirror, publisher, lakemirror.spark):
        lines += [f"## `{module.__name__}`", ""]
        for name in module.__all__:
            lines += _object(name, getattr(module, name))
            for method in _METHODS.get(name, "").split():
                lines += _object(f"{name}.{method}", getattr(getattr(module, name), method))
    for function in (publish_sql, publish_each_batch, debezium_to_landing):
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
