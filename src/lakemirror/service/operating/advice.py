"""What a person can do about a table that failed or waits: sentences, each with the command that helps."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from lakemirror.landing_zone.pending import LOST
from lakemirror.status.status import TableStatus

FIRST_FILE = "the first file"  # what a table without any file waits for
_NUMBER = re.compile(r"number ([0-9]+)(?: in (.+))?", re.DOTALL)
_COMMAND = re.compile(r"`lakemirror [^`]*`")


@dataclass(frozen=True)
class Advice:
    """One way out. `command`: for a shell on the service's machine, "" where none is needed."""

    what: str
    command: str = ""


def is_waiting(table: TableStatus) -> bool:
    """True where files have arrived that are not applied, because another one is awaited."""
    stands = table.error_code or table.status in ("Stopped", "Failed")
    return table.waiting_for is not None and bool(table.pending_files) and not stands


def advice(table: TableStatus, database: str) -> list[Advice]:
    """What helps a table that failed, or waits for a file; nothing for any other. `database`: its folder."""
    place = shlex.quote(database)
    if table.error_code:
        return [
            Advice(named(table.error_hint, database, table.name)),
            Advice("See every finding in the landing zone:", f"lakemirror check {place}"),
            Advice("Then the table goes on by itself. Prove its rows:", _of_table("verify", database, table.name)),
        ]
    if table.waiting_for is None or table.status == "Stopped":
        return []
    again = Advice(
        "If it will never come, publish the table again from the start:",
        _of_table("publish", database, table.name, " --recreate --from FILE"),
    )
    what = table.waiting_for.what
    if what.endswith(LOST):
        return [
            Advice(
                "Files in _ProcessedFiles are not in the Delta table. Apply them again:",
                _of_table("resync", database, table.name),
            )
        ]
    number = _NUMBER.fullmatch(what)
    if number is not None:
        where = f" into {number[2]}" if number[2] else ""
        missing = f"Have its publisher put the file with number {int(number[1]):020}{where}; later files wait for it."
        return [Advice(missing), Advice("See what is there:", f"lakemirror check {place}"), again]
    if what == FIRST_FILE:
        return [Advice("Publish its first file:", _of_table("publish", database, table.name, " --from FILE"))]
    return [
        Advice("Nothing, while its publisher writes it. If the publisher has ended, put a complete file in its place."),
        Advice("See what is there:", f"lakemirror check {place}"),
        again,
    ]


def named(hint: str, database: str, table: str = "TABLE") -> str:
    """A hint whose commands name this database and table, so that they can be copied.

    A table whose name begins like an option stays `TABLE`.
    """

    def of_this(command: re.Match[str]) -> str:
        text = re.sub(r"\bDB\b", lambda _: shlex.quote(database), command[0])
        return text if table.startswith("-") else re.sub(r"\bTABLE\b", lambda _: shlex.quote(table), text)

    return _COMMAND.sub(of_this, hint)


def _of_table(verb: str, database: str, table: str, options: str = "") -> str:
    """A command about one table. Its publisher named it, perhaps like an option."""
    names = f"{shlex.quote(database)} {shlex.quote(table)}"
    return f"lakemirror {verb}{options} -- {names}" if table.startswith("-") else f"lakemirror {verb} {names}{options}"
