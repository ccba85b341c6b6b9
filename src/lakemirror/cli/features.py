"""`lakemirror features list|plan|drop`, `lakemirror compat`, `lakemirror sql`: a thin skin over table_features.

Results on stdout, messages on stderr. Exit codes: 0 done, 1 failed, 2 usage, 3 needs the user, 4 wait until the
printed time. No JVM is started unless a step has to rewrite data files.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemirror.cli.each_table import Named, Selection, each_table
from lakemirror.cli.options import Json, StorageOptions, with_groups
from lakemirror.errors import LakemirrorError
from lakemirror.storage.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakemirror.delta.log import Snapshot
    from lakemirror.features.compatibility import Client
    from lakemirror.features.drop import Dropped
    from lakemirror.features.fleet import State
    from lakemirror.features.plan import Plan, Step, Wish

app = typer.Typer(help="Table features of any Delta table: list them, and drop them.", no_args_is_help=True)

Table = Annotated[str, typer.Argument(help="A Delta table, or a mirrored database for all its tables.")]
Parallel = Annotated[int, typer.Option(help="How many tables are worked on at once.", min=1)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True)
class ClientOptions:
    """Which clients are to open a table."""

    client: Annotated[
        str, typer.Option("--for", help="A client, such as delta-rs@0.19 or duckdb; several with commas.")
    ] = ""
    mode: Annotated[str, typer.Option(help="What the client is to do: read or write.")] = "read"

    def named(self) -> list[Client]:
        """The records of the clients. LakemirrorError `setting-invalid`, `client-unknown`."""
        from lakemirror.features.compatibility import find_clients

        if self.mode not in ("read", "write"):
            raise LakemirrorError("setting-invalid", f"--mode is read or write, not {self.mode}")
        return [record for text in self.client.split(",") if text for record in find_clients(text)]


@dataclass(frozen=True)
class DropOptions(ClientOptions):
    """Which features to drop, for whom and how."""

    truncate_history: Annotated[
        bool, typer.Option("--truncate-history", help="Cut the history instead of protecting it.")
    ] = False
    unprotect: Annotated[
        bool, typer.Option(help="Then drop checkpointProtection too, once its waiting time has passed.")
    ] = False
    as_numbers: Annotated[
        bool, typer.Option("--as-numbers", help="End at version numbers without names, if possible.")
    ] = False
    force_retention: Annotated[
        float | None,
        typer.Option("--force-retention", help="Hours before history is cut; a longer write can damage the table."),
    ] = None

    def wish(self, features: str) -> Callable[[Snapshot], Wish]:
        """What to drop from a table: these features, or what the clients lack. LakemirrorError `setting-invalid`."""
        from lakemirror.features.many import wish_for
        from lakemirror.features.plan import Wish

        wait = None if self.force_retention is None else timedelta(hours=self.force_retention)
        clients = self.named()
        if bool(features) == bool(self.client):
            raise LakemirrorError("setting-invalid", "name either the features to drop or a client with --for")
        if self.client:
            return lambda snapshot: replace(wish_for(snapshot, clients, self.mode), wait=wait)
        names = tuple(name.strip() for name in features.split(",") if name.strip())
        return lambda _: Wish(names, self.truncate_history, self.unprotect, self.as_numbers, wait)


@app.command("list")
def list_features(
    table: Table = "", named: Named = "", as_json: Json = False, storage: StorageOptions = None, parallel: Parallel = 4
) -> None:
    """Show a table's features, whether they are in use, who enabled them and which features need them.

    Example: lakemirror features list shop/Tables/orders
    """
    from lakemirror.delta.feature_names import shown

    table, _ = _path_or_name(table, named)
    from lakemirror.features.log_commit import existing
    from lakemirror.features.usage import usage_with_origin

    def act(path: Place) -> dict[str, Any]:
        snapshot = existing(path)
        uses = [vars(use) | {"in_use": use.in_use} for use in usage_with_origin(snapshot)]
        return {"version": snapshot.version, "protocol": shown(snapshot.protocol), "features": uses}

    def text(found: dict[str, Any]) -> None:
        print(f"version {found['version']}, protocol {found['protocol']}")
        for use in found["features"]:
            words = [", ".join(use["evidence"]) or "not in use"]
            words += [f"since version {use['since']} ({use['by']})"] if use["since"] is not None else []
            words += [f"needed by {', '.join(use['needed_by'])}"] if use["needed_by"] else []
            print(f"  {use['feature']:28} {'; '.join(words)}")

    selection = Selection(as_json=as_json)
    each_table(selection.tables(table), act, text, selection, parallel)


@app.command()
@with_groups
def plan(
    how: DropOptions,
    selection: Selection,
    table: Table = "",
    drop: Annotated[str, typer.Option(help="The features to drop, with commas between them.")] = "",
    storage: StorageOptions = None,
    parallel: Parallel = 4,
) -> None:
    """Show what a drop would do, step by step, and what it costs. Changes nothing.

    Example: lakemirror features plan shop/Tables/orders --for duckdb --mode write
    """
    act = _planned(how.wish(drop))
    tables = selection.tables(_path_or_name(table, selection.named)[0])
    each_table(tables, act, _print_plan, selection, parallel, judge=_state_of_plan, summed=bool(how.client))


@app.command()
@with_groups
def drop(
    how: DropOptions,
    selection: Selection,
    table: Table = "",
    features: Annotated[list[str] | None, typer.Argument(help="The features to drop.")] = None,
    yes: Yes = False,
    storage: StorageOptions = None,
    parallel: Parallel = 2,
) -> None:
    """Drop features. Shows the plan and asks, unless --yes. An interrupted drop continues when it is run again.

    Example: lakemirror features drop shop/Tables/orders deletionVectors --yes

    Example: lakemirror features drop shop --for duckdb --exclude "archive/*" --report drops.csv --yes

    Example: lakemirror features drop --table sales.orders deletionVectors --yes
    """
    table, features = _path_or_name(table, selection.named, features or ())
    from lakemirror.features.fleet import act_on_each, summary

    wish, tables = how.wish(",".join(features)), selection.tables(table)
    if not yes:
        act = _planned(wish)
        if len(tables) == 1:
            _print_plan(act(tables[0]), sys.stderr)
        else:
            for line in summary(act_on_each(tables, act, _state_of_plan, parallel)):
                print(line, file=sys.stderr)
        if not sys.stdin.isatty() or not typer.confirm("Go on?", err=True):
            raise LakemirrorError("confirmation-needed", "nothing was dropped: --yes was not given")
    _drop_all(tables, wish, selection, parallel)


@with_groups
def compat(
    clients: ClientOptions,
    table: Table = "",
    named: Named = "",
    as_json: Json = False,
    storage: StorageOptions = None,
    parallel: Parallel = 4,
) -> None:
    """Show which clients can read and write a table, and what prevents the others.

    Example: lakemirror compat shop/Tables/orders --for delta-rs@0.19
    """
    from lakemirror.features.compatibility import Verdict, verdicts
    from lakemirror.features.log_commit import existing

    table, _ = _path_or_name(table, named)
    wanted = clients.named()

    def act(path: Place) -> list[Verdict]:
        return verdicts(existing(path), wanted or None)

    def text(found: list[Verdict]) -> None:
        for verdict in found:
            words = [f"{kind}: {', '.join(names)}" for kind, names in verdict.blocks.items() if names]
            note = "; ".join([*words, *([verdict.note] if verdict.note else [])])
            print(
                f"{verdict.client:36} {verdict.basis:10} read {verdict.read:6} write {verdict.write:7} {note}".rstrip()
            )

    selection = Selection(as_json=as_json)
    results = each_table(selection.tables(table), act, text, selection, parallel)
    modes = ["read"] if clients.mode == "read" else ["read", "write"]
    if wanted and any(getattr(v, m) != "yes" for result in results for v in result for m in modes):
        raise typer.Exit(3)


def sql(
    statement: Annotated[str, typer.Argument(help="ALTER TABLE <table> DROP FEATURE <feature> [TRUNCATE HISTORY]")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Agree to what the drop loses.")] = False,
    as_json: Json = False,
    storage: StorageOptions = None,
) -> None:
    """Drop one feature by a statement. A hyphen in its name needs no quotes; a table is named by its path.

    Example: lakemirror sql "ALTER TABLE shop/Tables/orders DROP FEATURE deletionVectors TRUNCATE HISTORY"
    """
    from lakemirror.features.many import parse_statement

    table, wish = parse_statement(statement)
    _check_present(table, wish)
    selection = Selection(as_json=as_json)
    _drop_all(selection.tables(str(table)), lambda _: wish, selection, 1, confirmed=yes)


def _drop_all(
    tables: list[Place],
    wish: Callable[[Snapshot], Wish],
    selection: Selection,
    parallel: int,
    confirmed: bool = True,
) -> None:
    from lakemirror.features.drop import drop as carry_out
    from lakemirror.features.log_commit import existing

    def told(step: Step) -> None:
        if len(tables) == 1:
            print(f"{tables[0]}: {step.title}{f' {step.route.shown}' if step.route else ''}", file=sys.stderr)

    def act(path: Place) -> Dropped:
        begun = time.monotonic()
        done = carry_out(path, wish(existing(path)), session=_session, confirmed=confirmed, told=told)
        if done.commits:
            _record(path, done, time.monotonic() - begun)
        return done

    results = each_table(tables, act, _print_dropped, selection, parallel, judge=_state_of_drop, summed=True)
    if any(result.waiting for result in results):
        raise typer.Exit(4)


def _record(table: Place, done: Dropped, seconds: float) -> None:
    """Logs a drop in the database that the table is of, if it is of one."""
    from lakemirror.executions.execution import DROP_FEATURE, of_target
    from lakemirror.executions.execution_log import record_once

    database, tables, below = str(table).rpartition("/Tables/")
    if tables:
        more = {"seconds": round(seconds, 3), "rows": done.commits, "error_message": ", ".join(done.features)}
        record_once(database, of_target(DROP_FEATURE, below, time.time(), **more))


def _check_present(table: Place, wish: Wish) -> None:
    """Raises `feature-absent` for a feature that a table neither has nor has lost by a drop."""
    from lakemirror.delta.feature_names import features_of
    from lakemirror.delta.log import latest_commits
    from lakemirror.features.catalogue import find
    from lakemirror.features.log_commit import existing

    name = find(wish.features[0]).name
    if name in features_of(existing(table).protocol):
        return
    for _, actions in latest_commits(table):
        for action in actions:
            info = action.get("commitInfo") or {}
            dropped = str((info.get("operationParameters") or {}).get("featureName", ""))
            if info.get("operation") == "DROP FEATURE" and name in dropped.strip('"').split(", "):
                return
    raise LakemirrorError("feature-absent", f"{table} does not have {name}", table=str(table))


def _path_or_name(table: str, named: str, more: Sequence[str] | None = None) -> tuple[str, list[str]]:
    """The path of the table, and the arguments after it; None: there are none.

    `named`: the name of the table in the catalog of the Spark session; the first argument is then not its path.
    LakemirrorError `table-unreadable`, and those of Spark's start.
    """
    if (not table and not named) or (table and named and more is None):
        raise typer.BadParameter("the path is empty; name a table by its path, or by --table and its name in a catalog")
    if not named:
        return table, list(more or ())
    from lakemirror.features.catalog_names import path_of

    return path_of(_session(), named), [each for each in (table, *(more or ())) if each]


_one_at_a_time = threading.Lock()


def _session() -> SparkSession:
    from lakemirror.settings.settings import Settings
    from lakemirror.spark_session.session import start

    with _one_at_a_time:  # tables at work side by side share the session
        return start(Settings().with_environment(), delta=True, short=True)


def _state_of_plan(plan: Plan) -> State:
    return "refused" if plan.obstacles else "would change" if plan.steps else "nothing to do"


def _state_of_drop(done: Dropped) -> State:
    return "waiting" if done.waiting else "changed" if done.commits else "nothing to do"


def _planned(wish: Callable[[Snapshot], Wish]) -> Callable[[Place], Plan]:
    """Gives the plan of a table, with the clients that gain and lose."""
    from lakemirror.features.compatibility import changes
    from lakemirror.features.log_commit import existing
    from lakemirror.features.plan import make_plan

    def planned(path: Place) -> Plan:
        snapshot = existing(path)
        made = make_plan(snapshot, wish(snapshot))
        return replace(made, clients=tuple(changes(snapshot, made.after)))

    return planned


def _print_plan(plan: Plan, out: Any = None) -> None:
    from lakemirror.delta.feature_names import shown

    def line(text: str) -> None:
        print(text, file=out or sys.stdout)

    line(f"{plan.table}, version {plan.version}")
    line(f"  protocol now   {shown(plan.before)}")
    line(f"  protocol after {shown(plan.after)}")
    for number, step in enumerate(plan.steps, 1):
        data = f", {step.files} files, {step.bytes} bytes" if step.files else ""
        when = f", not before {step.earliest:%Y-%m-%d %H:%M} UTC" if step.earliest else ""
        route = f" {step.route.shown}" if step.route else ""
        line(f"  {number}. {step.title} ({step.commits} commits{data}{when}){route}")
    if not plan.steps:
        line("  nothing to do")
    for obstacle in plan.obstacles:
        line(f"  in the way: {obstacle.message}")
        for statement in obstacle.statements:
            line(f"    {statement}")
    for title, lines in (
        ("to agree to", plan.confirm),
        ("breaks", plan.breaks),
        ("stays behind", plan.leftovers),
        ("note", plan.notes),
    ):
        for text in lines:
            line(f"  {title}: {text}")
    for change in plan.clients:
        line(f"  {change['client']}: read {change['read']}, write {change['write']}")


def _print_dropped(done: Dropped) -> None:
    if done.waiting:
        print(f"{done.table}: wait until {done.waiting:%Y-%m-%d %H:%M} UTC, then run the same command again")
    elif done.commits:
        print(f"{done.table}: {done.before} became {done.after} in {done.commits} commits")
    else:
        print(f"{done.table}: nothing to do, {done.after}")
