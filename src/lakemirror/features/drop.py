"""Drops features from a table: plans, makes the first step, and plans again until no step is left.

All state is in the table. A drop that was killed continues when the same command is run again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from lakemirror.delta.checkpoint import write_checkpoint
from lakemirror.delta.log import Snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features import cleaning, kernel_route
from lakemirror.features.catalogue import BY_NAME
from lakemirror.features.feature_names import shown
from lakemirror.features.history import clean_checkpoints, clean_since, cut, retention, truncate
from lakemirror.features.log_commit import commit, existing, newest_commit
from lakemirror.features.plan import Obstacle, Plan, Step, Wish, make_plan
from lakemirror.features.read_back import check_unchanged
from lakemirror.storage.place import Place, place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = 60
"""More steps than any drop has. A drop that needs more is undone by another writer that brings the feature back."""

POINTS = (
    "planned",
    "before writer-features",
    "after writer-features",
    "before prepare",
    "after prepare",
    "before rewrite",
    "after rewrite",
    "before barrier",
    "after barrier 1",
    "after barrier 2",
    "after barrier 3",
    "after lowered",
    "before clean-checkpoint",
    "after clean-checkpoint",
    "before cut",
    "after cut",
    "after truncate-drop",
    "after cluster-again",
    "before checkpoint",
    "after checkpoint",
)
"""Where a test can kill a drop: `at` is called with the name of each place that the drop reaches."""


@dataclass(frozen=True)
class Dropped:
    """What a drop did. `waiting`: the earliest time of the last step, if it cannot be made yet."""

    table: str
    features: tuple[str, ...]
    before: str
    after: str
    version: int
    commits: int
    steps: tuple[str, ...]
    waiting: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "waiting": self.waiting.isoformat() if self.waiting else None}


def drop(
    table: str | Place,
    wish: Wish,
    *,
    session: Callable[[], SparkSession] | None = None,
    confirmed: bool = False,
    at: Callable[[str], None] = lambda _: None,
    told: Callable[[Step], None] = lambda _: None,
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
) -> Dropped:
    """Drops the features of a wish from a table, as far as that is possible now. Returns what was done.

    `session` is called only for a step by Delta Spark (`Step.route`). Nothing changes if a person has to do something
    first: `feature-in-use`, `column-names-invalid`, `confirmation-needed`, `spark-unsupported` where such a step has no
    session, `table-feature-unsupported` where files in an object store cannot be rewritten.
    """
    folder = place(table).absolute()
    before = existing(folder)
    plan = make_plan(before, wish, now())
    _refuse(plan, confirmed, session)
    at("planned")
    done: list[str] = []
    wanted = set(plan.drop)
    for _ in range(STEPS):
        if not plan.steps:
            break
        step = plan.steps[0]
        if step.kind == "truncate-drop" and step.earliest and step.earliest > now():
            if before.version != plan.version:
                check_unchanged(before, existing(folder), plan.drop)
            return _result(before, existing(folder), wanted, done, step.earliest)
        told(step)
        try:
            _make(folder, step, replace(wish, features=plan.drop or wish.features), session, at, now)
            done.append(step.kind)
        except LakemirrorError as error:
            if error.code != "concurrent-commit" or done[-5:] == ["again"] * 5:
                raise
            done.append("again")
        plan = make_plan(existing(folder), wish, now())
        _refuse(plan, confirmed, session)
    else:
        raise LakemirrorError(
            "concurrent-commit",
            f"{STEPS} steps were not enough to drop {', '.join(sorted(wanted))} from {folder}: "
            f"somebody brings them back ({newest_commit(existing(folder))})",
            table=str(folder),
        )
    after = existing(folder)
    if after.version != before.version:
        check_unchanged(before, after, plan.drop)
    return _result(before, after, wanted, [kind for kind in done if kind != "again"], None)


def _make(
    table: Place,
    step: Step,
    wish: Wish,
    session: Callable[[], SparkSession] | None,
    at: Callable[[str], None],
    now: Callable[[], datetime],
) -> None:
    """Makes the next step, computed from the table's current state."""
    names = step.features
    if step.kind == "writer-features":
        at("before writer-features")
        commit(table, lambda s: cleaning.without_writer_features(s, names, wish.as_numbers))
        at("after writer-features")
    elif step.kind == "prepare":
        at("before prepare")
        readers = [name for name in wish.features if name in BY_NAME and BY_NAME[name].reads]
        commit(table, lambda s: cleaning.prepared(s, readers))
        at("after prepare")
    elif step.kind.startswith("rewrite-"):
        at("before rewrite")
        _rewrite(table, step, session)
        at("after rewrite")
    elif step.kind == "protected-drop":
        _drop_protected(table, names, at)
    elif step.kind == "clean-checkpoint":
        at("before clean-checkpoint")
        write_checkpoint(commit(table, cleaning.empty_commit))
        at("after clean-checkpoint")
    elif step.kind == "truncate-drop":
        _drop_truncating(table, names, wish, at, now)
    elif step.kind == "cluster-again":
        commit(table, cleaning.clustered_again)
        at("after cluster-again")
    elif step.kind == "checkpoint":
        at("before checkpoint")
        _checkpoint(existing(table))
        at("after checkpoint")


def _rewrite(table: Place, step: Step, session: Callable[[], SparkSession] | None) -> None:
    """Rewrites data files by the route of the step."""
    if step.route is not None and step.route.by == "Delta Spark":
        from lakemirror.features import spark_route

        for name in step.features:
            spark_route.rewrite(_given(session, step, str(table))(), table, name)
        return
    for name in step.features:
        kernel_route.rewrite(table, name)


def _given(session: Callable[[], SparkSession] | None, step: Step, table: str) -> Callable[[], SparkSession]:
    if session is None:
        why = f"{table}: a step needs a Spark session: {step.title} {step.route.shown if step.route else ''}"
        raise LakemirrorError("spark-unsupported", why, table=table)
    return session


def _checkpoint(snapshot: Snapshot) -> None:
    """Writes the classic checkpoint of a snapshot, unless another engine has just written it.

    Its checkpoint is kept, because a client that has listed the log fails if the file has another size later.
    """
    standing = clean_checkpoints(snapshot, snapshot.version)
    if not any(checkpoint.kind == "classic" for checkpoint in standing):
        write_checkpoint(snapshot)


def _drop_protected(table: Place, names: tuple[str, ...], at: Callable[[str], None]) -> None:
    """Writes three checkpoints of commits that do not use these features, then the protocol without them."""
    at("before barrier")
    snapshot = existing(table)
    since = clean_since(snapshot, names)
    earlier: tuple[int, Place] | None = None
    standing = len(clean_checkpoints(snapshot, since))
    while standing < cleaning.BARRIER:
        snapshot = commit(table, cleaning.empty_commit)
        same = earlier is not None and earlier[0] == snapshot.version - 1
        path = write_checkpoint(snapshot, earlier[1] if same and earlier else None)
        earlier = (snapshot.version, path)
        standing += 1
        at(f"after barrier {standing}")
    commit(table, lambda s: cleaning.lowered(s, names, truncate=False))
    at("after lowered")


def _drop_truncating(
    table: Place, names: tuple[str, ...], wish: Wish, at: Callable[[str], None], now: Callable[[], datetime]
) -> None:
    """Cuts the history so that none of it uses these features, then writes the protocol without them."""
    snapshot = existing(table)
    wait = retention(snapshot.metadata) if wish.wait is None else wish.wait
    place = cut(snapshot, names, wait)
    at("before cut")
    oldest = min(snapshot.log.commits, default=snapshot.version)
    truncate(table, place.checkpoint if place.checkpoint is not None else oldest, wait, now())
    at("after cut")
    commit(table, lambda s: cleaning.lowered(s, names, truncate=True, as_numbers=wish.as_numbers))
    at("after truncate-drop")


def _refuse(plan: Plan, confirmed: bool, session: Callable[[], SparkSession] | None) -> None:
    """Raises for what prevents a step, before the first step is made."""
    if plan.obstacles:
        raise obstacle_error(plan.obstacles[0], plan.table)
    for step in plan.steps:
        if step.route is not None and step.route.by == "Delta Spark":
            _given(session, step, plan.table)
    if plan.confirm and not confirmed:
        raise LakemirrorError(
            "confirmation-needed",
            f"dropping {', '.join(plan.drop)} loses something: {'; '.join(plan.confirm)}",
            table=plan.table,
        )


def obstacle_error(obstacle: Obstacle, table: str) -> LakemirrorError:
    """The error of a drop that an obstacle prevents."""
    return LakemirrorError(obstacle.code, obstacle.message, hint=" ".join(obstacle.statements) or None, table=table)


def _result(before: Snapshot, after: Snapshot, wanted: set[str], done: list[str], waiting: datetime | None) -> Dropped:
    return Dropped(
        table=str(before.table),
        features=tuple(sorted(wanted)),
        before=shown(before.protocol),
        after=shown(after.protocol),
        version=after.version,
        commits=after.version - before.version,
        steps=tuple(done),
        waiting=waiting,
    )
