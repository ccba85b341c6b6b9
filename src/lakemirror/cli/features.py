"""`lakemirror features list|plan|drop`, `lakemirror compat`, `lakemirror sql`: a thin skin over table_features.

Results on stdout, messages on stderr. Exit codes: 0 done, 1 failed, 2 usage, 3 needs the user, 4 wait until the
printed time. No JVM is started unless a step has to rewrite data files.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemirror.cli.each_table import Selection, each_table, fail
from lakemirror.cli.engine_options import StorageOptions
from lakemirror.errors import LakemirrorError
from lakemirror.storage.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakemirror.delta.log import Snapshot
    from lakemirror.features.drop import Dropped
    from lakemirror.features.fleet import State
    from lakemirror.features.plan import Plan, Step, Wish

app = typer.Typer(help="Table features of any Delta table: list them, and drop them.", no_args_is_help=True)

Table = Annotated[str, typer.Argument(help="A Delta table, or a mirrored database for all its tables.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
For = Annotated[str, typer.Option("--for", help="A client, such as delta-rs@0.19 or duckdb; several with commas.")]
Mode = Annotated[str, typer.Option(help="What the client is to do: read or write.")]
Truncate = Annotated[bool, typer.Option("--truncate-history", help="Cut the history instead of protecting it.")]
Unprotect = Annotated[bool, typer.Option(help="Then drop checkpointProtection too, once its waiting time has passed.")]
Numbers = Annotated[bool, typer.Option("--as-numbers", help="End at version numbers without names, if possible.")]
Force = Annotated[
    float | None,
    typer.Option("--force-retention", help="Hours before history is cut; a longer write can damage the table."),
]
Parallel = Annotated[int, typer.Option(help="How many tables are worked on at once.", min=1)]
Include = Annotated[
    list[str] | None, typer.Option(help="Only tables whose path below Tables/ fits, such as 'sales/*'; repeatable.")
]
Exclude = Annotated[list[str] | None, typer.Option(help="Not the tables whose path fits; repeatable.")]
Report = Annotated[str, typer.Option(help="Write every table's outcome to this .csv or .json file.")]


@app.command("list")
def list_features(table: Table, as_json: Json = False, storage: StorageOptions = None, parallel: Parallel = 4) -> None:
    """Show a table's features, whether they are in use, who enabled them and which features need them.

    Example: lakemirror features list shop/Tables/orders
    """
    from lakemirror.features.feature_names import shown
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

    each_table(table, act, text, as_json, parallel)


@app.command()
def plan(
    table: Table,
    drop: Annotated[str, typer.Option(help="The features to drop, with commas between them.")] = "",
    client: For = "",
    mode: Mode = "read",
    truncate_history: Truncate = False,
    unprotect: Unprotect = False,
    as_numbers: Numbers = False,
    force_retention: Force = None,
    include: Include = None,
    exclude: Exclude = None,
    report: Report = "",
    as_json: Json = False,
    storage: StorageOptions = None,
    parallel: Parallel = 4,
) -> None:
    """Show what a drop would do, step by step, and what it costs. Changes nothing.

    Example: lakemirror features plan shop/Tables/orders --for duckdb --mode write
    """
    from lakemirror.features.log_commit import existing

    wish = _wish(drop, client, mode, truncate_history, unprotect, as_numbers, force_retention)

    def act(path: Place) -> Plan:
        snapshot = existing(path)
        return _planned(snapshot, wish(snapshot))

    of = Selection(tuple(include or ()), tuple(exclude or ()), report)
    each_table(table, act, _print_plan, as_json, parallel, of=of, judge=_state_of_plan, summed=bool(client))


@app.command()
def drop(
    table: Table,
    features: Annotated[list[str] | None, typer.Argument(help="The features to drop.")] = None,
    client: For = "",
    mode: Mode = "read",
    truncate_history: Truncate = False,
    unprotect: Unprotect = False,
    as_numbers: Numbers = False,
    force_retention: Force = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    include: Include = None,
    exclude: Exclude = None,
    report: Report = "",
    as_json: Json = False,
    storage: StorageOptions = None,
    parallel: Parallel = 2,
) -> None:
    """Drop features. Shows the plan and asks, unless --yes. An interrupted drop continues when it is run again.

    Example: lakemirror features drop shop/Tables/orders deletionVectors --yes

    Example: lakemirror features drop shop --for duckdb --exclude "archive/*" --report drops.csv --yes
    """
    from lakemirror.features.fleet import act_on_each, summary
    from lakemirror.features.log_commit import existing

    of = Selection(tuple(include or ()), tuple(exclude or ()), report)
    wish = _wish(",".join(features or ()), client, mode, truncate_history, unprotect, as_numbers, force_retention)
    if not yes:
        try:
            tables = of.tables(table)

            def planned(path: Place) -> Plan:
                snapshot = existing(path)
                return _planned(snapshot, wish(snapshot))

            if len(tables) == 1:
                _print_plan(planned(tables[0]), sys.stderr)
            else:
                for line in summary(act_on_each(tables, planned, _state_of_plan, parallel)):
                    print(line, file=sys.stderr)
        except LakemirrorError as error:
            fail(error)
        if not sys.stdin.isatty() or not typer.confirm("Go on?", err=True):
            fail(LakemirrorError("confirmation-needed", "nothing was dropped: --yes was not given"))
    _drop_all(table, wish, as_json, parallel, of=of)


def compat(
    table: Table,
    client: For = "",
    mode: Mode = "read",
    as_json: Json = False,
    storage: StorageOptions = None,
    parallel: Parallel = 4,
) -> None:
    """Show which clients can read and write a table, and what prevents the others.

    Example: lakemirror compat shop/Tables/orders --for delta-rs@0.19
    """
    from lakemirror.features.compatibility import Verdict, find_clients, verdicts
    from lakemirror.features.log_commit import existing

    if mode not in ("read", "write"):
        fail(LakemirrorError("setting-invalid", f"--mode is read or write, not {mode}"))
    try:
        named = [found for text in client.split(",") if text for found in find_clients(text)]
    except LakemirrorError as error:
        fail(error)

    def act(path: Place) -> list[Verdict]:
        return verdicts(existing(path), named or None)

    def text(found: list[Verdict]) -> None:
        for verdict in found:
            words = [f"{kind}: {', '.join(names)}" for kind, names in verdict.blocks.items() if names]
            note = "; ".join([*words, *([verdict.note] if verdict.note else [])])
            print(
                f"{verdict.client:36} {verdict.basis:10} read {verdict.read:6} write {verdict.write:7} {note}".rstrip()
            )

    results = each_table(table, act, text, as_json, parallel)
    modes = ["read"] if mode == "read" else ["read", "write"]
    if named and any(getattr(v, m) != "yes" for result in results for v in result for m in modes):
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

    try:
        table, wish = parse_statement(statement)
        _check_present(table, wish)
    except LakemirrorError as error:
        fail(error)
    _drop_all(str(table), lambda _: wish, as_json, 1, confirmed=yes)


def _drop_all(
    table: str,
    wish: Callable[[Snapshot], Wish],
    as_json: bool,
    parallel: int,
    confirmed: bool = True,
    of: Selection | None = None,
) -> None:
    from lakemirror.features.drop import drop as carry_out
    from lakemirror.features.log_commit import existing

    of = of or Selection()
    try:
        several = len(of.tables(table)) > 1
    except LakemirrorError as error:
        fail(error)

    def told(step: Step) -> None:
        if not several:
            print(f"{table}: {step.title}{f' {step.route.shown}' if step.route else ''}", file=sys.stderr)

    def act(path: Place) -> Dropped:
        return carry_out(path, wish(existing(path)), session=_session, confirmed=confirmed, told=told)

    results = each_table(table, act, _print_dropped, as_json, parallel, of=of, judge=_state_of_drop, summed=True)
    if any(result.waiting for result in results):
        raise typer.Exit(4)


def _check_present(table: Place, wish: Wish) -> None:
    """Raises `feature-absent` for a feature that a table neither has nor has lost by a drop."""
    from lakemirror.delta.log import latest_commits
    from lakemirror.features.catalogue import find
    from lakemirror.features.feature_names import features_of
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


_one_at_a_time = threading.Lock()


def _session() -> SparkSession:
    from lakemirror.settings import Settings
    from lakemirror.spark_session.session import start

    with _one_at_a_time:  # tables at work side by side share the session
        return start(Settings().with_environment(), delta=True, short=True)


def _state_of_plan(plan: Plan) -> State:
    return "refused" if plan.obstacles else "would change" if plan.steps else "nothing to do"


def _state_of_drop(done: Dropped) -> State:
    return "waiting" if done.waiting else "changed" if done.commits else "nothing to do"


def _wish(
    features: str,
    client: str,
    mode: str,
    truncate: bool,
    unprotect: bool,
    as_numbers: bool,
    hours: float | None,
) -> Callable[[Snapshot], Wish]:
    from lakemirror.features.compatibility import find_clients
    from lakemirror.features.many import wish_for
    from lakemirror.features.plan import Wish

    wait = None if hours is None else timedelta(hours=hours)
    if mode not in ("read", "write"):
        fail(LakemirrorError("setting-invalid", f"--mode is read or write, not {mode}"))
    if bool(features) == bool(client):
        fail(LakemirrorError("setting-invalid", "name either the features to drop or a client with --for"))
    if client:
        try:
            named = [found for text in client.split(",") for found in find_clients(text)]
        except LakemirrorError as error:
            fail(error)

        def by_client(snapshot: Snapshot) -> Wish:
            from dataclasses import replace

            return replace(wish_for(snapshot, named, mode), wait=wait)

        return by_client
    names = tuple(name.strip() for name in features.split(",") if name.strip())
    return lambda _: Wish(names, truncate, unprotect, as_numbers, wait)


def _planned(snapshot: Snapshot, wish: Wish) -> Plan:
    from dataclasses import replace

    from lakemirror.features.compatibility import changes
    from lakemirror.features.plan import make_plan

    made = make_plan(snapshot, wish)
    return replace(made, clients=tuple(changes(snapshot, made.after)))


def _print_plan(plan: Plan, out: Any = None) -> None:
    from lakemirror.features.feature_names import shown

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
