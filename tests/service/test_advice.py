"""What the page says of a table that failed or waits: each command that it names can be run."""

from __future__ import annotations

import dataclasses
import shlex

import pytest
from tests.advice import wrong

from lakemirror.error_codes import CODES
from lakemirror.landing_zone.change_file import Waiting
from lakemirror.service.operating.advice import FIRST_FILE, advice, is_waiting, named
from lakemirror.status.status import TableStatus

PLACE = "ROOT/sales/my shop"


def table(status: str = "Replicating", what: str = "", pending: int = 1, error: str = "") -> TableStatus:
    return TableStatus(
        "1", status, "orders", waiting_for=Waiting(what, 1.0) if what else None, pending_files=pending,
        error_code=error, error_hint=CODES[error].hint if error else "",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "waits", "first", "commands"),
    [
        (table(), False, None, []),
        (table(what="number 2"), True, f"{2:020};", ["check", "publish"]),
        (table("Initialized", "number 1"), True, f"{1:020};", ["check", "publish"]),
        (table(what="number 7 in day=a b"), True, f"{7:020} into day=a b;", ["check", "publish"]),
        (table(what="number 1, which is in _ProcessedFiles"), True, "not in the Delta table", ["resync"]),
        (table(what="x.parquet to be complete"), True, "while its publisher writes", ["check", "publish"]),
        (table("Initialized", FIRST_FILE, 0), False, "Publish its first file", ["publish"]),
        (table("Stopped", "number 2"), False, None, []),
        (table("Failed", error="file-unreadable"), False, "put a complete one", ["check", "verify"]),
        (table("Failed", "number 2", error="table-restored"), False, "resync", ["check", "verify"]),
    ],
)
def test_what_helps(found: TableStatus, waits: bool, first: str | None, commands: list[str]) -> None:
    assert is_waiting(found) == waits
    ways = advice(found, PLACE)
    assert first is None or first in ways[0].what
    assert [way.command.split()[1] for way in ways if way.command] == commands


def test_every_command_is_one_that_there_is() -> None:
    failed = [table("Failed", error=code) for code in CODES]
    waiting = [table(what=what) for what in ("number 2", FIRST_FILE, "x to be complete")]
    texts = [way for found in (*failed, *waiting) for way in advice(found, PLACE)]
    said = [text for way in texts for text in (way.what, f"Run `{way.command}`" if way.command else "")]
    assert len(said) > 2 * len(CODES)
    assert not [fault for text in said for fault in wrong(text)]


def test_hints_name_this_table() -> None:
    assert named("Run `lakemirror resync DB TABLE`, or x.", "ROOT/a/b", "t 1") == (
        "Run `lakemirror resync ROOT/a/b 't 1'`, or x."
    )
    assert named("The DB is a TABLE.", "ROOT/a/b", "t") == "The DB is a TABLE."


def test_a_table_that_is_named_like_an_option() -> None:
    name = "--against=postgresql://host/db"
    failed = dataclasses.replace(table("Failed", error="table-restored"), table=name)
    waiting = [dataclasses.replace(table(what=what), table=name) for what in ("number 2", FIRST_FILE, "x to come")]
    commands = [way.command for found in (failed, *waiting) for way in advice(found, PLACE) if name in way.command]
    assert len(commands) == 4
    for command in commands:
        words = shlex.split(command)
        assert words[words.index(name) - 2] == "--", command
    assert named("Run `lakemirror resync DB TABLE`.", "ROOT/a/b", name) == "Run `lakemirror resync ROOT/a/b TABLE`."
