"""A soak: random publishers, faults and other writers for some minutes; then the tables must be what the model says.

    seed ─▶ steps, one line each in steps.jsonl ─▶ all faults end ─▶ last passes ─▶ verify ─▶ model ─▶ findings

Same seed, same steps, whatever came of the steps before. What the machine does in between is not repeated: run a seed
several times.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.landing import folder
from tests.random_histories import compare_with
from tests.soak import foreign
from tests.soak.disks import Disk, disk
from tests.soak.engines import DROP_AFTER, Engines
from tests.soak.events import lost_events
from tests.soak.kinds import kinds
from tests.soak.served import Served
from tests.soak.spark_writer import SparkWriter
from tests.soak.world import World

from lakemirror import MirroredDatabase, failpoints
from lakemirror.error_codes import CODES
from lakemirror.errors import LakemirrorError
from lakemirror.mirror.dropped_tables import NOTE
from lakemirror.storage import LocalStorage
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options
from lakemirror.verify.source_rows import Source

_DAY = 86_400.0
_BY_DELTA_RS = ".zstd."  # in the name of a data file
_NOT_IN_A_SOAK = {"soft-deletes.before-commit", "move.before-move"}
_ASKED_FOR = ("RESTORE", "UPDATE")  # what other writers do to rows here
_UNKNOWN_TIMES = ("column '__START_AT'", "column '__END_AT'")
_OPERATOR = ("pause", "resume", "resync", "replay", "restore")


@dataclass
class Outcome:
    """What a soak did, and what it found: nothing, if all is well."""

    seed: int
    steps: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    rows: int = 0
    findings: list[str] = field(default_factory=list)

    def text(self) -> str:
        counted = ", ".join(f"{name} {count}" for name, count in sorted(self.steps.items()))
        head = (
            f"seed {self.seed}: {sum(self.steps.values())} steps ({counted}), {self.changes} changes, {self.rows} rows"
        )
        return "\n".join([head, *(f"FINDING {finding}" for finding in self.findings)])


def soak(
    place: Path, seed: int, seconds: float, *, spark: bool = False, everything: bool = False, most_steps: int = 0
) -> Outcome:
    """Runs one soak in a new folder, and says what it found.

    `spark`: engines may start Spark. `everything`: without Spark, too, all kinds of tables and steps take part.
    """
    place.mkdir(parents=True, exist_ok=True)
    with disk(place / "disk", seconds) as own, (place / "steps.jsonl").open("w") as log:
        run = _Soak(place, own, seed, log, spark=spark, everything=everything)
        try:
            run.go(seconds, most_steps)
            run.settle()
            run.judge()
        finally:
            run.engines.kill_all()
            run.spark_writer.stop()
            run.served.kill()
        return run.outcome


class _Soak:
    def __init__(self, place: Path, own: Disk, seed: int, log: Any, *, spark: bool, everything: bool) -> None:
        self.outcome = Outcome(seed)
        self._place, self._disk, self._log = place, own, log
        self._seed = seed
        self._chance = random.Random(seed)
        self._database = own.place / "db"
        self._world = World(self._database, kinds(spark=spark or everything), self._chance)
        self._names = list(self._world.tables)
        self._replaced = [name for name in self._names if not self._world.tables[name].kind.has_history]
        self._recreates = spark or everything
        self.engines = Engines(self._database, place, spark=spark)
        self.spark_writer = SparkWriter()
        self.served = Served(place)
        self._renamed: dict[str, foreign.Renamed] = {}
        self._spark = spark
        self._full_until = 0
        self._number = 0

    def go(self, seconds: float, most_steps: int) -> None:
        """Random steps until the time is over."""
        until = time.monotonic() + seconds
        steps: list[tuple[str, int, Callable[[], str]]] = [
            ("publish", 60, self._publish), ("publish slowly", 3, self._publish_slowly),
            ("wrong file time", 3, self._publish_shifted), ("bad file", 2, self._bad), ("repair", 5, self._repair),
            ("grow", 1, self._grow), ("recreate", 1, self._recreate), ("start", 10, self._start),
            ("kill", 4, self._kill), ("stop", 1, self._stop), ("failpoint", 4, self._failpoint),
            ("failing disk", 3, self._failing), ("limited files", 1, self._limited), ("wrong clock", 1, self._clock),
            ("full disk", 1, self._full), ("other writer", 6, self._foreign), ("operator", 4, self._operate),
            ("drop", 1, self._drop), ("status", 2, self._status), ("away for a moment", 4, self._away),
            ("rename a key", 1, self._rename_key), ("slow clients", 1, self._slow_clients),
            ("foreign setting", 1, self._foreign_setting),
        ]  # fmt: skip
        if self._spark:
            steps.append(("spark writer", 3, self._foreign_spark))
        weights = [weight for _, weight, _ in steps]
        while time.monotonic() < until and not (most_steps and self._number >= most_steps):
            self._number += 1
            self._chance.seed(f"{self._seed} {self._number}")
            name, _, act = self._chance.choices(steps, weights)[0]
            pause = self._chance.uniform(0.0, 0.15)
            try:
                said = act()
            except OSError as error:  # of a publisher: the disk is full, or the engine has just moved something
                said = f"not possible: {error}"
            self._note(name, said)
            if self._full_until and self._number >= self._full_until:
                self._full_until = 0
                self._note("space again", str(self._disk.free()))
            time.sleep(pause)

    def settle(self) -> None:
        """All faults end; passes without faults until nothing is left to do."""
        self._disk.free()
        self.engines.stop_all()
        self.served.end()
        for name in self._names:
            while self._world.repair(name):
                pass
            self._put_right(name)
        self.spark_writer.stop()
        time.sleep(1.2)  # a file that was half written has settled
        code = 3
        for _ in range(5):
            code = self.engines.sync()
            self._take_ways_out()
            if code == 0 and not self._pending():
                break
        if code != 0:
            self._find(f"the last pass ended with {code}: {self._said()}")
        for name, waits in self._pending().items():
            self._find(f"{name} still has {waits} pending files")
        living = [name for name in self._names if not self._world.tables[name].gone]
        self.outcome.findings += lost_events(self._database, living, self.engines.sync)

    def judge(self) -> None:
        """`verify`, then every table against the model."""
        self.outcome.findings += [*self.engines.findings, *self.served.findings]
        storage = LocalStorage(self._database)
        report = verify_database(storage, (), Options(against_files=True))
        kinds_found = Counter((finding.table, finding.code) for finding in report.findings)
        for finding in report.findings:
            if finding.code == "verify-bounds-untrue" and _BY_DELTA_RS in finding.file and "NaN" in finding.message:
                continue  # delta-rs leaves NaN out of its bounds
            if finding.code == "verify-changed-by-others" and any(each in finding.message for each in _ASKED_FOR):
                continue  # it was asked for, and the table is made again or has lost nothing of ours
            if finding.code == "verify-not-compared" and (
                "__" not in (finding.table or "") or finding.message.startswith(_UNKNOWN_TIMES)
            ):
                continue  # files do not keep the times of changes
            count = kinds_found.pop((finding.table, finding.code), 0)
            if count:
                self._find(f"{finding.table}: {finding.code}, {count} times: {finding.message} {finding.file}")
        self.outcome.rows = sum(table.rows for table in report.tables)
        for name in self._names:
            if not self._world.tables[name].files:
                continue
            if self._world.tables[name].kind.sequence:
                self._compare_all(name)
                continue
            path = self._place / f"model-{name}.parquet"
            self._world.write_model(name, path)
            against = verify_database(storage, (name,), Options(source=Source(str(path))))
            differing = [f for f in against.findings if f.code.startswith(("verify-row-", "verify-impossible"))]
            if differing:
                first = differing[0]
                self._find(f"{name} differs from the model, {len(differing)} times: {first.code}: {first.message}")

    def _compare_all(self, name: str) -> None:
        """The mirrored table and its history against the model, as another reader reads them."""
        ever = datetime.min.replace(tzinfo=timezone.utc), datetime.max.replace(tzinfo=timezone.utc)
        try:
            compare_with(self._database, name, self._world.tables[name].history(), ever)
        except AssertionError as error:
            self._find(f"{name} differs from the model: {str(error)[:500]}")

    def _publish(self) -> str:
        name = self._chance.choice(self._names)
        changes = self._world.publish(name)
        self.outcome.changes += changes
        return f"{name}: {changes}"

    def _publish_slowly(self) -> str:
        name = self._chance.choice(self._names)
        return f"{name}: {self._world.publish(name, slow=True)}"

    def _publish_shifted(self) -> str:
        name, shifted = self._chance.choice(self._names), self._chance.choice([-400, -1, 1, 400]) * _DAY
        return f"{name}: {self._world.publish(name, shifted=shifted)} at {shifted / _DAY:+.0f} days"

    def _bad(self) -> str:
        name = self._chance.choice([n for n in self._replaced if n != "events"])
        return f"{name}: {self._world.publish(name, bad=True)}"

    def _repair(self) -> str:
        name = self._chance.choice(self._names)
        return f"{name}: {self._world.repair(name)}"

    def _grow(self) -> str:
        name = self._chance.choice(self._names)
        self._world.grow(name)
        return name

    def _recreate(self) -> str:
        name = self._chance.choice(self._replaced)
        if not self._recreates:
            return "left out: it needs Spark"
        self._world.recreate(name)
        return name

    def _start(self) -> str:
        settings = {
            "LAKEMIRROR_DURABILITY": self._chance.choice(["power", "process"]),
            "LAKEMIRROR_KEY_INDEX": self._chance.choice(["true", "true", "false"]),
            "LAKEMIRROR_ON_BAD_FILE": self._chance.choice(["stop", "stop", "quarantine"]),
            "LAKEMIRROR_BATCH_FILES": self._chance.choice(["1", "3", "1000"]),
        }
        said = " ".join(settings.values())
        return f"{said}: {self.engines.start(settings=settings)}"

    def _kill(self) -> str:
        return str(self.engines.kill(self._chance.randrange(2)))

    def _stop(self) -> str:
        return str(self.engines.stop(self._chance.randrange(2)))

    def _failpoint(self) -> str:
        failpoint = f"{self._named()}:{self._chance.randrange(1, 4)}"
        return f"{failpoint} {self.engines.start(failpoint=failpoint)}"

    def _failing(self) -> str:
        failpoint = f"{self._named()}:{self._chance.randrange(1, 4)}:error"
        return f"{failpoint} {self.engines.start(failpoint=failpoint)}"

    def _limited(self) -> str:
        limit = self._chance.choice([500, 3000, 8000])
        return f"{limit} {self.engines.start(limit=limit)}"

    def _clock(self) -> str:
        clock = self._chance.choice(["+1d", "-1d", "+3d", "-300d"])
        return f"{clock} {self.engines.start(clock=clock)}"

    def _full(self) -> str:
        self._full_until = self._number + self._chance.randrange(3, 25)
        return str(self._disk.fill(self._chance.choice([0, 4096, 20_000, 200_000])))

    def _foreign(self) -> str:
        name = self._chance.choice(self._replaced)
        return f"{name}: {foreign.act(self._table(name), self._chance)}"

    def _foreign_spark(self) -> str:
        name = self._chance.choice(self._replaced)
        return f"{name}: {self.spark_writer.act(name, self._table(name), self._chance)}"

    def _operate(self) -> str:
        """One act of an operator; a third of them are killed, or meet a failing disk."""
        name, act = self._chance.choice(self._replaced), self._chance.choice([*_OPERATOR, "resume", "restore"])
        places = [each for each in failpoints.OPERATION_NAMES if each.split(".")[0] in (act, "resync", "act")]
        failpoint = f"{self._chance.choice(places)}{self._chance.choice([':1', ':1:error', ':2'])}"
        failing = self._chance.random() < 0.33
        return f"{failpoint} {self.engines.act(act, name, failpoint)}" if failing else self._act(act, name)

    def _drop(self) -> str:
        name = self._chance.choice(self._replaced)
        if not self._recreates:
            return "left out: it needs Spark"
        return f"{name}: {self._world.drop(name)}"

    def _away(self) -> str:
        """A table folder is somewhere else for less than `drop_after`: the table is not dropped for that."""
        name = self._chance.choice(self._names)
        seconds = self._chance.choice([0.05, 0.3, 1.0])
        place, log = folder(self._database, name), self._table(name) / "_delta_log"
        target = log.parent.relative_to(self._database).as_posix()
        if not ((place / "_mirror.json").exists() and log.exists()):
            return f"{name}: no engine has applied it"
        if target in _text(self._database / NOTE):
            return f"{name}: an earlier look has missed it"
        took = self._world.be_away(name, seconds)
        if took < DROP_AFTER / 2 and not log.exists():
            self._find(f"{name} was dropped in step {self._number}: its folder was away for {took:.2f} s")
        return f"{name}: {took:.2f} s"

    def _rename_key(self) -> str:
        """Another writer renames a key column: nothing is applied on top of that, until it is taken back."""
        name = self._chance.choice([n for n in self._replaced if self._world.tables[n].kind.keys])
        if foreign.KEYS_MISSING not in CODES:
            return "left out: the engine has no word for it"
        done = foreign.rename_key(self._table(name), self._world.tables[name].kind.keys[0])
        if isinstance(done, str):
            return f"{name}: {done}"
        self._renamed[name] = done
        return f"{name}: {done.column} is {done.now}, at position {done.position}"

    def _slow_clients(self) -> str:
        return self.served.be_slow(self._chance)

    def _foreign_setting(self) -> str:
        return self.served.set_foreign(self._chance)

    def _status(self) -> str:
        """What a person sees: no table is `internal`, no table is found unsound in idle time."""
        status = MirroredDatabase(self._database).status()
        codes = {table.name: table.error_code for table in status.tables if table.error_code}
        for name, code in codes.items():
            if code == "internal":
                self._find(f"{name} is internal in step {self._number}")
        expected = {"verify-restored"}
        if self._renamed:  # and not taken back before the end
            expected.add("verify-key-column-missing")
        unsound = [each for each in status.warnings if each.code.startswith("verify-") and each.code not in expected]
        for each in unsound[:3]:
            self._find(f"step {self._number}: {each.code}: {each.message}")
        return json.dumps(codes)

    def _table(self, name: str) -> Path:
        return self._database / "Tables" / name.replace(".", "/")

    def _put_right(self, name: str) -> None:
        """What people do in the end: no pause, no rule in the way, no file set aside, no rows of somebody else."""
        self.spark_writer.take_back(self._table(name))
        if (renamed := self._renamed.pop(name, None)) is not None:
            said = foreign.rename_back(self._table(name), renamed)
            self._note("rename back", f"{name}: {said}")
            if said == foreign.APPLIED_ON_TOP:
                self._find(f"{name}: files were applied though its key column {renamed.column} was renamed")
        if self._world.tables[name].gone:
            return
        self._note("resume", self._act("resume", name))
        if self._world.correct_set_aside(name):
            said = self._act("replay", name)
            self._note("replay", said)
            if "refused" in said:
                self._world.recreate(name)
        if name in self.spark_writer.changed:
            self._made_again(name)

    def _made_again(self, name: str) -> None:
        """A resync; where files are gone, a folder made again."""
        said = self._act("resync", name)
        self._note("resync", said)
        if "refused" in said:
            self._world.recreate(name)
            self._note("recreate", name)

    def _act(self, act: str, name: str) -> str:
        """An operator's act in this process; what was said."""
        try:
            return f"{act}: {getattr(MirroredDatabase(self._database), act)(name).text}"
        except LakemirrorError as error:
            return f"{act}: {name}: refused: {error}"

    def _take_ways_out(self) -> None:
        """What a person does about `table-restored`: resync, and where files are gone, a folder made again."""
        for table in MirroredDatabase(self._database).status().tables:
            if table.error_code == "table-restored":
                self._made_again(table.name)

    def _named(self) -> str:
        names = [*failpoints.NAMES, "history.after-commit"]
        return self._chance.choice([name for name in names if name not in _NOT_IN_A_SOAK])

    def _pending(self) -> dict[str, int]:
        tables = MirroredDatabase(self._database).status().tables
        return {table.name: table.pending_files for table in tables if table.pending_files}

    def _said(self) -> str:
        logs = sorted(self._place.glob("engine-*-sync.log"), key=lambda path: path.stat().st_mtime)
        return logs[-1].read_text(errors="replace").strip()[-600:] if logs else ""

    def _note(self, name: str, said: str) -> None:
        self.outcome.steps[name] += 1
        line = {"step": self._number, "at": round(time.time(), 3), "what": name, "outcome": said}
        self._log.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._log.flush()

    def _find(self, text: str) -> None:
        self.outcome.findings.append(text)
        print(f"FINDING {text}", file=sys.stderr, flush=True)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
