"""Drops features from a table: plans, makes the first step, and plans again until no step is left.

All state is in the table. A drop that was killed continues when the same command is run again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from lakemirror.delta.checkpoint import write_checkpoint
from lakemirror.delta.feature_names import shown
from lakemirror.delta.log import Snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features import cleaning, kernel_route
from lakemirror.features.catalogue import BY_NAME
from lakemirror.features.history import clean_checkpoints, clean_since, cut, retention, truncate
from lakemirror.features.log_commit import commit, existing, newest_commit
from lakemirror.features.plan import Obstacle, Plan, Step, Wish, make_plan
from lakemirror.features.read_back import check_unchanged
from lakemirror.storage.place import Place, place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = 60
"""More steps than any drop has. A drop that needs more is undone by another writer that brings the feature back."""


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
            made = _Drop(folder, replace(wish, features=plan.drop or wish.features), session, at, now)
            made.make(step)
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


@dataclass(frozen=True)
class _Drop:
    """What the steps of a drop share: the table, the wish, and what `drop` was called with."""

    table: Place
    wish: Wish
    session: Callable[[], SparkSession] | None
    at: Callable[[str], None]
    now: Callable[[], datetime]

    def make(self, step: Step) -> None:
        """Makes the next step, computed from the table's current state."""
        kind = "rewrite" if step.kind.startswith("rewrite-") else step.kind
        self.at(f"before {kind}")
        _ACTS[kind](self, step)
        self.at(f"after {kind}")


def _drop_writer_features(drop: _Drop, step: Step) -> None:
    is_last = set(drop.wish.features) <= set(step.features)  # else a later step ends at numbers, or cannot
    commit(drop.table, lambda s: cleaning.without_writer_features(s, step.features, drop.wish.as_numbers and is_last))


def _prepare(drop: _Drop, step: Step) -> None:
    readers = [name for name in drop.wish.features if name in BY_NAME and BY_NAME[name].reads]
    commit(drop.table, lambda s: cleaning.prepared(s, readers))


def _rewrite(drop: _Drop, step: Step) -> None:
    """Rewrites data files by the route of the step."""
    for name in step.features:
        if step.route is not None and step.route.by == "Delta Spark":
            from lakemirror.features import spark_route

            spark_route.rewrite(_given(drop.session, step, str(drop.table))(), drop.table, name)
        else:
            kernel_route.rewrite(drop.table, name)


def _set_clean_checkpoint(drop: _Drop, step: Step) -> None:
    write_checkpoint(commit(drop.table, cleaning.empty_commit))


def _cluster_again(drop: _Drop, step: Step) -> None:
    commit(drop.table, cleaning.clustered_again)


def _given(session: Callable[[], SparkSession] | None, step: Step, table: str) -> Callable[[], SparkSession]:
    if session is None:
        why = f"{table}: a step needs a Spark session: {step.title} {step.route.shown if step.route else ''}"
        raise LakemirrorError("spark-unsupported", why, table=table)
    return session


def _write_checkpoint(drop: _Drop, step: Step) -> None:
    """Writes the classic checkpoint of the newest version, unless another engine has just written it.

    Its checkpoint is kept, because a client that has listed the log fails if the file has another size later.
    """
    snapshot = existing(drop.table)
    standing = clean_checkpoints(snapshot, snapshot.version)
    if not any(checkpoint.kind == "classic" for checkpoint in standing):
        write_checkpoint(snapshot)


def _drop_protected(drop: _Drop, step: Step) -> None:
    """Writes three checkpoints of commits that do not use these features, then the protocol without them."""
    snapshot = existing(drop.table)
    since = clean_since(snapshot, step.features)
    earlier: tuple[int, Place] | None = None
    for number in range(len(clean_checkpoints(snapshot, since)) + 1, cleaning.BARRIER + 1):
        snapshot = commit(drop.table, cleaning.empty_commit)
        same = earlier is not None and earlier[0] == snapshot.version - 1
        path = write_checkpoint(snapshot, earlier[1] if same and earlier else None)
        earlier = (snapshot.version, path)
        drop.at(f"after barrier {number}")
    commit(drop.table, lambda s: cleaning.lowered(s, step.features, truncate=False))


def _drop_truncating(drop: _Drop, step: Step) -> None:
    """Cuts the history so that none of it uses these features, then writes the protocol without them."""
    snapshot, wish = existing(drop.table), drop.wish
    wait = retention(snapshot.metadata) if wish.wait is None else wish.wait
    cut_at = cut(snapshot, step.features, wait)
    oldest = min(snapshot.log.commits, default=snapshot.version)
    truncate(drop.table, cut_at.checkpoint if cut_at.checkpoint is not None else oldest, wait, drop.now())
    drop.at("after cut")
    commit(drop.table, lambda s: cleaning.lowered(s, step.features, truncate=True, as_numbers=wish.as_numbers))


_ACTS: dict[str, Callable[[_Drop, Step], None]] = {
    "writer-features": _drop_writer_features,
    "prepare": _prepare,
    "rewrite": _rewrite,
    "protected-drop": _drop_protected,
    "clean-checkpoint": _set_clean_checkpoint,
    "truncate-drop": _drop_truncating,
    "cluster-again": _cluster_again,
    "checkpoint": _write_checkpoint,
}
"""How each kind of step is made. `plan.py` says which comes next."""

POINTS = (
    "planned",
    *(f"{when} {kind}" for kind in _ACTS for when in ("before", "after")),
    *(f"after barrier {number}" for number in range(1, cleaning.BARRIER + 1)),
    "after cut",
)
"""Where a test can kill a drop: `at` is called with the name of each place that the drop reaches."""


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
