"""One act on many tables: which tables, the outcome of each, one summary, one report.

    tables ─▶ chosen by pattern ─▶ each on its own: changed, nothing to do, waiting, refused, failed ─▶ summary, report

A table that fails does not stop the others. A second run finds most tables done, and reads the log of each.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.storage.place import Place

State = Literal["changed", "would change", "nothing to do", "waiting", "refused", "failed"]
STATES: tuple[State, ...] = ("changed", "would change", "nothing to do", "waiting", "refused", "failed")
SHOWN = 3  # tables that a summary names for one reason
FIELDS = ("table", "state", "code", "message", "hint")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one table. `code`, `message` and `hint` say why it is refused or failed. `result`: what the act
    returned; None if it raised.
    """

    table: str
    state: State
    code: str = ""
    message: str = ""
    hint: str = ""
    exit_code: int = 0
    result: Any = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """The outcome for a report: the fields of `FIELDS` that are not empty."""
        return {name: getattr(self, name) for name in FIELDS if getattr(self, name)}


def chosen(
    tables: Iterable[Place], top: Place, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> list[Place]:
    """The tables whose path below `top` matches an `include` pattern and no `exclude` pattern. `*` also matches `/`."""

    def named(table: Place, patterns: Sequence[str]) -> bool:
        path, above = str(table), f"{top}/"
        below = path[len(above) :] if path.startswith(above) else path
        return any(fnmatchcase(below, pattern) for pattern in patterns)

    return [table for table in tables if (not include or named(table, include)) and not named(table, exclude)]


def act_on_each(
    tables: Sequence[Place],
    act: Callable[[Place], Any],
    judge: Callable[[Any], State],
    parallel: int,
    done: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """The outcomes of all tables, in their order. `judge` names the state of a result. `done` is called with each."""

    def one(table: Place) -> Outcome:
        try:
            result = act(table)
        except Exception as failure:  # the boundary around one table
            error = coded(failure, table=str(table))
            state: State = "failed" if error.retry or error.exit_code == 1 else "refused"
            return Outcome(str(table), state, error.code, error.message, error.hint, error.exit_code)
        obstacle = next(iter(getattr(result, "obstacles", ())), None)  # of a plan
        if obstacle is None:
            return Outcome(str(table), judge(result), result=result)
        hint = " ".join(obstacle.statements)
        return Outcome(str(table), judge(result), obstacle.code, obstacle.message, hint, 3, result)

    found: dict[Place, Outcome] = {}
    pool = ThreadPoolExecutor(max_workers=max(1, parallel))
    try:
        at_work = {pool.submit(one, table): table for table in tables}
        for future in as_completed(at_work):
            found[at_work[future]] = future.result()
            done(found[at_work[future]])
    finally:
        pool.shutdown(
            cancel_futures=True
        )  # after Ctrl-C: tables that have begun are finished, the others are not begun
    return [found[table] for table in tables]


def summary(outcomes: Iterable[Outcome]) -> list[str]:
    """How many tables had each outcome, and the reasons of those that did not change, each once with its count."""
    listed = list(outcomes)
    counts = [(sum(each.state == state for each in listed), state) for state in STATES]
    lines = [f"{len(listed):,} tables: " + ", ".join(f"{count:,} {state}" for count, state in counts if count)]
    reasons: dict[tuple[str, str], list[Outcome]] = {}
    for each in listed:
        if each.code:
            reasons.setdefault((each.code, each.message.replace(each.table, "…")), []).append(each)
    for (code, message), same in sorted(reasons.items(), key=lambda item: -len(item[1])):
        names = ", ".join(each.table for each in same[:SHOWN])
        more = f" and {len(same) - SHOWN:,} more" if len(same) > SHOWN else ""
        lines += [
            f"  {len(same):,} × {code}: {message}",
            f"      {same[0].hint.replace(same[0].table, '…')}",
            f"      {names}{more}",
        ]
    return lines


def report(outcomes: Iterable[Outcome], path: Path) -> None:
    """Writes every table's outcome as CSV or JSON, by the file's suffix. `setting-invalid` for another suffix."""
    rows = [each.to_json() for each in outcomes]
    if path.suffix.lower() == ".json":
        path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        return
    check_report(path)
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, restval="")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")


def check_report(path: Path) -> None:
    """Raises `setting-invalid` for a report that cannot be written."""
    if path.suffix.lower() not in (".csv", ".json"):
        raise LakemirrorError("setting-invalid", f"--report {path}: a report is a .csv or a .json file")
    if not path.absolute().parent.is_dir():
        raise LakemirrorError("setting-invalid", f"--report {path}: there is no folder {path.absolute().parent}")
