"""Plans a drop: from a snapshot and a wish to the steps that are left. Changes nothing; reads footers of data files.

    wish ──▶ obstacles?  ──▶ steps, computed from the table's current state
                              writer features ▸ switch off ▸ rewrite ▸ leave the protocol ▸ cluster again ▸ checkpoint

Plans are not stored. A drop that was killed plans again, and the steps that are done are not in the new plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from lakemirror.delta.checksum import checksum_lies
from lakemirror.delta.commit_info import ENGINE
from lakemirror.delta.feature_names import features_of, lowest, needs_lists, pure, shown, without
from lakemirror.delta.log import Protocol, Snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features import cleaning
from lakemirror.features.catalogue import BY_NAME, READER_FEATURES, dependents, find
from lakemirror.features.history import PROTECTED, clean_checkpoints, clean_since, cut, retention
from lakemirror.features.log_commit import check_writable
from lakemirror.features.route import Route, route_of
from lakemirror.features.usage import (
    files_with_old_types,
    mapping_is_idle,
    metadata_traces,
    names_without_mapping,
    traits,
)

CLEAN_ONCE = "a clean checkpoint"


@dataclass(frozen=True)
class Wish:
    """The features to drop from a table, and how.

    `truncate`: cut the history instead of protecting it. `unprotect`: keep the history now, and drop
    checkpointProtection as soon as the retention allows. `as_numbers`: end at a protocol of two numbers if possible.
    `wait`: a retention that replaces the table's own.
    """

    features: tuple[str, ...]
    truncate: bool = False
    unprotect: bool = False
    as_numbers: bool = False
    wait: timedelta | None = None


@dataclass(frozen=True)
class Step:
    """One step: what it does, on how much data, and when at the earliest (None: at once).

    `route`: who rewrites the data files; None for a step that rewrites none.
    """

    kind: str
    title: str
    features: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    commits: int = 1
    route: Route | None = None
    earliest: datetime | None = None


@dataclass(frozen=True)
class Obstacle:
    """What prevents a drop until a person resolves it: the error, and SQL statements that help."""

    code: str
    message: str
    statements: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:  # 13 fields: the keys of the object that --json prints
    """The steps of a drop on one table, and what they change for readers and writers."""

    table: str
    version: int
    drop: tuple[str, ...]
    absent: tuple[str, ...]
    before: Protocol
    after: Protocol
    steps: tuple[Step, ...]
    obstacles: tuple[Obstacle, ...] = ()
    confirm: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    clients: tuple[dict[str, Any], ...] = field(default=())

    @property
    def ready(self) -> datetime | None:
        """The earliest time of the last step; None if it can be made now."""
        return max((step.earliest for step in self.steps if step.earliest), default=None)

    def to_json(self) -> dict[str, Any]:
        """The plan as `--json` prints it: times in ISO 8601, protocols as numbers and names."""
        value = asdict(replace(self, before=Protocol(1, 1), after=Protocol(1, 1)))
        value["before"], value["after"] = _protocol(self.before), _protocol(self.after)
        for step in value["steps"]:
            step["earliest"] = step["earliest"].isoformat() if step["earliest"] else None
        value["ready"] = self.ready.isoformat() if self.ready else None
        return value


def make_plan(snapshot: Snapshot, wish: Wish, now: datetime | None = None) -> Plan:
    """The plan for a wish.

    Errors: `feature-unknown`, `feature-not-droppable`, `feature-needed`, `feature-history`, `features-unsafe`,
    `table-unreadable` for a data file that contradicts the log. What a person can resolve is in `Plan.obstacles`.
    """
    check_writable(snapshot)
    now = now or datetime.now(timezone.utc)
    present = features_of(snapshot.protocol)
    wanted = {find(name).name for name in wish.features}
    gone = wanted & present
    if wish.unprotect and not gone & READER_FEATURES and "checkpointProtection" in present:
        gone.add("checkpointProtection")  # an earlier run has dropped the features
        wish = replace(wish, truncate=True)
    gone |= cleaning.goes_along(gone, snapshot)
    check_droppable(gone, wish, present)
    _check_unused(gone, snapshot)
    steps = tuple(_steps(snapshot, gone, wish, now))
    obstacles = (*_obstacles(gone, snapshot), *_without_route(snapshot, steps))
    after = _after(snapshot, gone, wish)
    return Plan(
        table=str(snapshot.table),
        version=snapshot.version,
        drop=tuple(sorted(gone)),
        absent=tuple(sorted(wanted - present)),
        before=snapshot.protocol,
        after=after,
        steps=steps,
        obstacles=obstacles,
        confirm=tuple(_confirmations(gone, snapshot)),
        breaks=tuple(_breaks(gone, snapshot, wish)) if gone else (),
        leftovers=tuple(f"{name}: {BY_NAME[name].leftover}" for name in sorted(gone) if BY_NAME[name].leftover),
        notes=tuple(_notes(snapshot, gone, after, wish)),
    )


def check_droppable(gone: Iterable[str], wish: Wish, present: frozenset[str]) -> None:
    """Raises for a feature that cannot be dropped, or not together with these."""
    names = sorted(gone)
    for name in names:
        feature = BY_NAME[name]
        if feature.drop == "no":
            raise LakemirrorError("feature-not-droppable", f"{name} cannot be dropped", hint=feature.way_out)
        needing = [other for other in dependents(name, present) if other not in names]
        if needing:
            together = " ".join([*needing, name])
            raise LakemirrorError(
                "feature-needed",
                f"{', '.join(needing)} stand{'s' if len(needing) == 1 else ''} on {name}",
                hint=f"Drop them together: `lakemirror features drop PATH {together}`",
            )
    if "checkpointProtection" in names and not wish.truncate:
        raise LakemirrorError(
            "feature-history",
            "checkpointProtection goes only with the history it protects",
            hint="Add --truncate-history, or TRUNCATE HISTORY to the statement.",
        )
    if wish.truncate and names and not any(BY_NAME[n].reads or BY_NAME[n].drop == "history" for n in names):
        raise LakemirrorError(
            "feature-history",
            f"{', '.join(names)} need no history cut",
            hint="Leave out --truncate-history or TRUNCATE HISTORY.",
        )


def _check_unused(gone: Iterable[str], snapshot: Snapshot) -> None:
    """Raises for a feature that can be dropped only while it is unused, if a column or a dropped column may use it."""
    for name in sorted(gone):
        if BY_NAME[name].drop != "unused":
            continue
        traces = metadata_traces(name, snapshot.metadata)
        if not traces and "columnMapping: dropped" in traits(snapshot):
            traces = ["data files may still hold columns that were dropped under column mapping"]
        if traces:
            raise LakemirrorError(
                "feature-not-droppable", f"{name} is in use: {', '.join(traces)}", hint=BY_NAME[name].way_out
            )


def _steps(snapshot: Snapshot, gone: set[str], wish: Wish, now: datetime) -> Iterable[Step]:
    readers = tuple(sorted(name for name in gone if BY_NAME[name].reads))
    writers = tuple(sorted(gone - set(readers) - {"checkpointProtection"}))
    if writers:
        yield Step("writer-features", f"drop {', '.join(writers)} in one commit", writers)
    cleaning_steps = tuple(_cleaning_steps(snapshot, readers, writers))
    yield from cleaning_steps
    rewrites = any(step.kind.startswith("rewrite-") for step in cleaning_steps)
    if cleaning.RESTING in snapshot.metadata.configuration or (
        rewrites and _rests(snapshot) and "clustering" not in gone
    ):
        yield Step("cluster-again", "cluster by the same columns again")
    history = tuple(sorted(set(readers) | (gone & {"checkpointProtection"})))
    if wish.truncate and history:
        yield from _truncating_steps(snapshot, history, wish, now)
    elif readers:
        standing = len(clean_checkpoints(snapshot, clean_since(snapshot, readers)))
        empty = max(0, cleaning.BARRIER - standing)
        clients = f"clients that know {'it' if len(readers) == 1 else 'them'}"
        title = f"drop {', '.join(readers)}; older versions stay readable for {clients}"
        yield Step("protected-drop", title, readers, commits=1 + empty)
    if gone or final_checkpoint_missing(snapshot):
        yield Step("checkpoint", "write a classic checkpoint and read the table back", commits=0)
    if wish.unprotect and readers and not wish.truncate:
        wait = retention(snapshot.metadata) if wish.wait is None else wish.wait
        yield Step(
            "truncate-drop",
            "cut the history and drop checkpointProtection",
            ("checkpointProtection",),
            earliest=_next_minute(now + wait),
        )


def _cleaning_steps(snapshot: Snapshot, readers: tuple[str, ...], writers: tuple[str, ...]) -> Iterable[Step]:
    """What removes traces of readers' features from the newest version. `writers`: features that are dropped before."""
    files = list(snapshot.files.values())
    size = sum(int(add["size"]) for add in files)
    mapped = "columnMapping" in readers and bool(metadata_traces("columnMapping", snapshot.metadata))
    idle = mapped and mapping_is_idle(snapshot.metadata)
    used = [name for name in readers if metadata_traces(name, snapshot.metadata)]
    off = tuple(name for name in used if name != "columnMapping" or idle)
    vectors = [add for add in files if add.get("deletionVector")] if "deletionVectors" in readers else []
    widened = any(name.startswith("typeWidening") for name in readers)
    old = files_with_old_types(snapshot) if widened else []
    rewrite = mapped and not idle
    if readers and cleaning.prepared(snapshot, readers) is not None:
        rests = " and let the clustering rest" if (rewrite or vectors or old) and _rests(snapshot) else ""
        yield Step("prepare", f"switch off {', '.join(off) or 'what is left'}{rests}", off)
    if rewrite:
        title = "write all files with the columns' own names"
        if vectors or old:
            title += ", deleted rows and old types gone by the same"
        yield Step(
            "rewrite-columnMapping", title, ("columnMapping",), len(files), size, 1, route_of(snapshot, files, writers)
        )
        vectors, old = [], []
    if vectors:
        amount = sum(int(add["size"]) for add in vectors)
        title = "rewrite the files that have deletion vectors"
        route = route_of(snapshot, vectors, writers)
        yield Step("rewrite-deletionVectors", title, ("deletionVectors",), len(vectors), amount, 1, route)
        old = [add for add in old if not add.get("deletionVector")]
    if old:
        amount = sum(int(add["size"]) for add in old)
        names = tuple(name for name in readers if name.startswith("typeWidening"))
        route, title = route_of(snapshot, old, writers), "rewrite the files that hold old types"
        commits = 3 if route.by == "Delta Spark" else 1
        yield Step("rewrite-typeWidening", title, names, len(old), amount, commits, route)
    if rewrite or vectors or old:
        yield Step("prepare", "take the last traces out of the metadata", readers)


def _truncating_steps(snapshot: Snapshot, history: tuple[str, ...], wish: Wish, now: datetime) -> Iterable[Step]:
    wait = retention(snapshot.metadata) if wish.wait is None else wish.wait
    title = f"cut the history and drop {', '.join(history)}"
    if history == ("checkpointProtection",) and final_checkpoint_missing(snapshot):
        yield Step("checkpoint", "write the checkpoint of the drop", commits=0)
    if any(cleaning.is_dirty(name, snapshot) for name in history if BY_NAME[name].reads):
        yield Step("clean-checkpoint", f"set {CLEAN_ONCE}", history)
        yield Step("truncate-drop", title, history, earliest=_next_minute(now + wait))
        return
    cut_at = cut(snapshot, history, wait)
    if cut_at.checkpoint is None and cut_at.ready is not None:
        yield Step("clean-checkpoint", f"set {CLEAN_ONCE}", history)
        cut_at = replace(
            cut_at, ready=_next_minute(now + wait)
        )  # the history before this checkpoint includes today's commits
    yield Step("truncate-drop", title, history, earliest=cut_at.ready)


def _next_minute(moment: datetime) -> datetime:
    return (moment + timedelta(seconds=59, microseconds=999_999)).replace(second=0, microsecond=0)


def _rests(snapshot: Snapshot) -> bool:
    return bool(cleaning.clustering_columns(snapshot)) or cleaning.RESTING in snapshot.metadata.configuration


def final_checkpoint_missing(snapshot: Snapshot) -> bool:
    """True if a drop by lakemirror is in the log after the newest checkpoint."""
    return any(
        info.get("operation") == "DROP FEATURE" and info.get("engineInfo") == ENGINE
        for info in snapshot.commit_infos.values()
    )


def _after(snapshot: Snapshot, gone: set[str], wish: Wish) -> Protocol:
    left = features_of(snapshot.protocol) - gone
    if any(BY_NAME[name].reads for name in gone) and not wish.truncate and not wish.unprotect:
        return lowest(left | {"checkpointProtection"}, READER_FEATURES)
    numbers = pure(left, gone) if wish.as_numbers else None
    return numbers or (without(snapshot.protocol, gone, READER_FEATURES) if gone else snapshot.protocol)


def _obstacles(gone: set[str], snapshot: Snapshot) -> Iterable[Obstacle]:
    for name in sorted(gone):
        statements = cleaning.statements_to_stop_using(name, snapshot)
        if statements is not None:
            traces = ", ".join(metadata_traces(name, snapshot.metadata))
            yield Obstacle("feature-in-use", f"{name} is in use: {traces}", tuple(statements))
    if "columnMapping" in gone and (bad := names_without_mapping(snapshot.metadata)):
        table = f"delta.`{snapshot.table}`"
        yield Obstacle(
            "column-names-invalid",
            f"without column mapping a table cannot hold the columns {', '.join(map(repr, bad))}",
            tuple(f"ALTER TABLE {table} RENAME COLUMN `{name}` TO `{_tame(name)}`;" for name in bad),
        )


def _without_route(snapshot: Snapshot, steps: Iterable[Step]) -> Iterable[Obstacle]:
    """The steps that nobody can make: files in an object store that the kernels cannot rewrite."""
    for step in steps:
        if step.route is not None and step.route.by == "nobody":
            message = f"{snapshot.table}: the kernels cannot {step.title}: {step.route.reason}"
            yield Obstacle("table-feature-unsupported", message)


def _tame(name: str) -> str:
    return "".join("_" if c in " ,;{}()\n\t=" else c for c in name.rpartition(".")[2])


def _confirmations(gone: set[str], snapshot: Snapshot) -> Iterable[str]:
    for name in sorted(gone):
        if BY_NAME[name].confirm:
            yield f"{name}: {BY_NAME[name].confirm}"
    foreign = sorted(domain for domain in snapshot.domains if not domain.startswith("delta."))
    if "domainMetadata" in gone and foreign:
        yield f"domainMetadata: the domains {', '.join(foreign)} are lost"


def _breaks(gone: set[str], snapshot: Snapshot, wish: Wish) -> Iterable[str]:
    yield "writers: a commit that is under way at the protocol change fails and must be tried again"
    if "columnMapping" in gone and metadata_traces("columnMapping", snapshot.metadata):
        yield "streams: Delta Spark streams from this table stop for good; start them with a new checkpoint"
        if not mapping_is_idle(snapshot.metadata):
            yield "writers: any commit during the rewrite of all files makes it begin again"
    if wish.truncate or wish.unprotect:
        wait = retention(snapshot.metadata) if wish.wait is None else wish.wait
        yield f"time travel: versions older than {_hours(wait)} before the last step are gone"
        if wish.wait is not None and wish.wait < retention(snapshot.metadata):
            yield "a write that takes longer than the shortened retention can damage the table"
    elif any(BY_NAME[name].reads for name in gone):
        yield "time travel: clients that do not know the feature read from the drop on, the others all of it"


def _hours(wait: timedelta) -> str:
    hours = wait.total_seconds() / 3600
    return f"{hours:g} hours"


def _notes(snapshot: Snapshot, gone: set[str], after: Protocol, wish: Wish) -> Iterable[str]:
    if lie := checksum_lies(snapshot):
        yield f"checksum: {lie}; it is ignored, the log counts"
    if gone and needs_lists(snapshot.protocol, after):
        yield (
            f"worse: {shown(snapshot.protocol)} becomes {shown(after)}, which writers that know only version numbers "
            f"refuse"
        )
    if PROTECTED in snapshot.metadata.configuration and "checkpointProtection" not in gone:
        yield (
            "the history before version "
            f"{snapshot.metadata.configuration[PROTECTED]} is protected since an earlier drop"
        )


def _protocol(protocol: Protocol) -> dict[str, Any]:
    return {
        "reader": protocol.reader,
        "writer": protocol.writer,
        "features": sorted(features_of(protocol)),
        "shown": shown(protocol),
    }
