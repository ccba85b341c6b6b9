"""What an idle `run` of many tables costs, and how soon it sees a file.

python -m benchmarks.watching                         1,000 tables, a minute
python -m benchmarks.watching --tables 10000          about four minutes
python -m benchmarks.goals RESULTS.json               the figures beside their goals, in docs/

One table is mirrored and copied, folder and table. `run` applies what the copies hold, and is left alone until it is
quiet. Then its processor time counts, and after that files are renamed into tables that are chosen at random.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks import data, process
from benchmarks.figures import percentile
from benchmarks.mirror import TABLE, Mirror
from benchmarks.runner import machine, say

RESULTS = Path(__file__).parent / "results"

_FILES = 40
_QUIET = 15.0  # seconds without a commit after which `run` is left alone


class Run:
    """`run` of one database in this process, and when it looked at each table and committed to it."""

    def __init__(self, folder: Path) -> None:
        from lakemirror import MirroredDatabase
        from lakemirror.mirror.scheduler import Scheduler

        self.looks: dict[str, list[float]] = defaultdict(list)
        self.commits: dict[str, float] = {}
        self.last = time.monotonic()
        self._stop = threading.Event()
        look = Scheduler._look

        def noted(scheduler: Scheduler, name: Any) -> Any:
            self.looks[str(name)].append(time.monotonic())
            return look(scheduler, name)

        Scheduler._look = noted  # type: ignore[method-assign]
        self._thread = threading.Thread(target=MirroredDatabase(folder).run, args=(self._stop, self))
        self._thread.start()

    def applied(self, name: Any, _: Any) -> None:
        self.commits[str(name)] = self.last = time.monotonic()

    def failed(self, name: Any, error: Any) -> None:
        say(f"{name}: {error}")

    def dropped(self, target: str) -> None:
        say(f"{target} was dropped")

    def quiet(self, tables: int) -> None:
        """Waits until it has looked at every table and nothing was committed for a while."""
        while len(self.looks) < tables or time.monotonic() - self.last < _QUIET:
            time.sleep(0.5)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks.watching", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long it is left alone")
    parser.add_argument("--into", type=Path, help="where the results are written")
    given = parser.parse_args()
    process.hide_pandas()
    say(machine())
    with tempfile.TemporaryDirectory(prefix="lakemirror-watching-") as place:
        files = _database(Path(place), given.tables)
        begun = time.monotonic()
        run = Run(Path(place) / "db")
        try:
            run.quiet(given.tables)
            say(f"{given.tables:,} tables; quiet after {time.monotonic() - begun - _QUIET:.1f} s")
            share = _idle_share(given.seconds)
            say(f"processor, share of a core: {share:.2%}")
            seen, committed = _lags(run, Path(place) / "db", files, given.tables)
        finally:
            run.end()
    for what, lags in (("rename to look", seen), ("rename to commit", committed)):
        figures = ", ".join(f"{name} {percentile(lags, part) * 1000:.1f} ms" for name, part in _SHOWN)
        say(f"{what}: {figures}")
    into = given.into or RESULTS / f"watching-{time.strftime('%Y%m%d-%H%M%S')}.json"
    into.parent.mkdir(parents=True, exist_ok=True)
    found = {"tables": given.tables, "share": share, "seen": seen, "committed": committed}
    into.write_text(json.dumps({"machine": machine(), "watching": found}, indent=1))
    say(f"results: {into}")


_SHOWN = (("median", 0.5), ("95 %", 0.95), ("most", 1.0))


def _database(place: Path, tables: int) -> list[Path]:
    """Makes a database of so many equal tables. Returns further change files for each of them."""
    data.appends(place / "changes", _FILES, 100)
    files = sorted((place / "changes").iterdir())
    mirror = Mirror(place / "db")
    mirror.applies(files[:1])
    for part in (mirror.zone, place / "db/Tables"):
        for number in range(1, tables):
            shutil.copytree(part / TABLE, part / f"{TABLE}_{number:05}", symlinks=True)
    return files[1:]


def _idle_share(seconds: float) -> float:
    begun, spent = time.monotonic(), _processor()
    time.sleep(seconds)
    return (_processor() - spent) / (time.monotonic() - begun)


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _lags(run: Run, database: Path, files: list[Path], tables: int) -> tuple[list[float], list[float]]:
    """Seconds from each rename to the next look at its table, and to its commit; each file in another table."""
    seen, committed = [], []
    chosen = random.Random(7).sample(range(1, tables), min(len(files), tables - 1))
    for number, file in zip(chosen, files, strict=False):
        name = f"{TABLE}_{number:05}"
        folder = database / "Files/LandingZone" / name
        temporary = Path(shutil.copyfile(file, folder / "_next.parquet"))
        time.sleep(1.0)  # what the copy has caused is over
        run.commits.pop(name, None)
        looks, renamed = len(run.looks[name]), time.monotonic()
        temporary.rename(folder / f"{2:020}.parquet")
        while name not in run.commits:
            if time.monotonic() - renamed > 60.0:
                raise RuntimeError(f"{name}: no commit within a minute")
            time.sleep(0.001)
        seen.append(run.looks[name][looks] - renamed)
        committed.append(run.commits[name] - renamed)
    return seen, committed


if __name__ == "__main__":
    main()
