"""What a peer does in a process of its own, on tables in a store or on the disk: prints its figures as JSON.

    python -m benchmarks.store_work ACT PEER ADDRESS DATA.json

`ADDRESS`: the database, a folder or `s3://…`; how a store is reached is in the environment. The measured part is
between two questions to the relay that BENCHMARK_RELAY names: its requests are those of this part alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.peers.delta_rs import DeltaRs
from benchmarks.process import Meter, hide_pandas
from benchmarks.relay import Relay
from benchmarks.scenarios.scenario import TABLE, Data
from lakemirror import MirroredDatabase
from lakemirror.storage.connections import options_of
from lakemirror.storage.place import place
from lakemirror.storage.store_path import StorePath

_ZONE = "Files/LandingZone"
_AT_ONCE = 4
_COMMIT = re.compile(r"/_delta_log/\d{20}\.json")
_SHOWN = 400  # requests that are kept with the figures, in order


class Measured:
    """Figures of one measured part: seconds, processor time, requests and their bytes."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}

    @contextmanager
    def part(self) -> Iterator[None]:
        url = os.environ.get("BENCHMARK_RELAY")
        relay = Relay(url) if url else None
        if relay is not None:
            relay.requests()
        with Meter() as meter:
            yield
        self.figures = {"seconds": meter.seconds, "cpu": meter.cpu}
        if relay is not None:
            asked = relay.requests()
            commits = [each.answered for each in asked if each.method == "PUT" and _COMMIT.search(each.path)]
            if commits:
                self.figures["until commit"] = commits[0] - asked[0].began
            self.figures |= {
                "requests": len(asked),
                "sent": sum(each.sent for each in asked),
                "received": sum(each.received for each in asked),
                "asked": [each.shown(asked[0].began) for each in asked[:_SHOWN]],
            }


def publish(address: str, table: str, files: Sequence[Path], first: int = 1) -> None:
    """Puts change files into the landing zone of a database."""
    zone = place(address) / _ZONE / table
    zone.mkdir(parents=True, exist_ok=True)
    if first == 1:
        content = json.dumps({"keyColumns": ["id"]}).encode()
        if isinstance(zone, Path):
            (zone / "_metadata.json").write_bytes(content)
        else:
            _put(zone, "_metadata.json", content)
    for number, file in enumerate(files, first):
        name = f"{number:020}.parquet"
        if isinstance(zone, Path):
            shutil.copyfile(file, zone / f"_{name}").rename(zone / name)
        else:
            _put(zone, name, file.read_bytes())


def _put(zone: StorePath, name: str, data: bytes) -> None:
    """Puts an object by a connection of its own: what lakemirror has in memory is not what a publisher had."""
    import obstore
    from obstore.store import from_url

    given = {option: text for option, text in options_of(zone.root).items() if option != "aws_allow_http"}
    store: Any = from_url(zone.root, config=given or None, client_options={"allow_http": True})  # type: ignore[call-overload]
    obstore.put(store, f"{zone.key}/{name}", data)


class FromStore(DeltaRs):
    """delta-rs on tables that may be in a store; it gets the change files from the same landing zone."""

    def __init__(self, address: str) -> None:
        super().__init__(Path(address))
        self._address = address

    def _path(self, table: str) -> str:
        return str(place(self._address) / "Tables" / table)


def fetched(address: str, table: str, folder: Path, first: int, count: int) -> list[Path]:
    """Change files of the landing zone as local files."""
    zone = place(address) / _ZONE / table
    if isinstance(zone, Path):
        return [zone / f"{number:020}.parquet" for number in range(first, first + count)]

    def fetch(number: int) -> Path:
        file = folder / f"{number:020}.parquet"
        file.write_bytes((zone / file.name).read_bytes())
        return file

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(fetch, range(first, first + count)))


def _lakemirror(address: str, **settings: Any) -> None:
    result = MirroredDatabase(address, engine="local", **settings).sync()
    if result.failed:
        raise RuntimeError("; ".join(f"{error.code}: {error}" for error in result.failed.values()))


def backlog(peer: str, address: str, data: Data, measured: Measured) -> None:
    """A table is loaded; all change files wait; they are applied."""
    publish(address, TABLE, data.load)
    with TemporaryDirectory() as scratch:
        if peer == "lakemirror":
            _lakemirror(address)
        else:
            FromStore(address).append_one(TABLE, fetched(address, TABLE, Path(scratch), 1, len(data.load)))
        first = len(data.load) + 1
        publish(address, TABLE, data.changes, first)
        with measured.part():
            if peer == "lakemirror":
                _lakemirror(address)
            else:
                FromStore(address).upsert_one(TABLE, fetched(address, TABLE, Path(scratch), first, len(data.changes)))


def load(peer: str, address: str, data: Data, measured: Measured) -> None:
    """The first load of a table; or copies of the same objects."""
    publish(address, TABLE, data.load)
    zone, target = place(address) / _ZONE / TABLE, place(address) / "Tables" / TABLE

    def copied(number: int) -> None:
        name = f"{number:020}.parquet"
        if isinstance(zone, Path):
            shutil.copyfile(zone / name, target / name)
        elif peer == "copied by the store" and isinstance(target, StorePath):
            zone.store.copy(f"{zone.key}/{name}", f"{target.key}/{name}")
        else:
            (target / name).write_bytes((zone / name).read_bytes())

    if peer.startswith("lakemirror"):
        MirroredDatabase(address).storage.probe()  # a connection is open, as in an engine that runs
        with measured.part():
            _lakemirror(address, trust_footers=peer.endswith("trust_footers"))
    elif peer == "delta-rs":
        with TemporaryDirectory() as scratch, measured.part():
            files = fetched(address, TABLE, Path(scratch), 1, len(data.load))
            FromStore(address).append_one(TABLE, files)
    else:
        target.mkdir(parents=True, exist_ok=True)
        with measured.part(), ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(copied, range(1, len(data.load) + 1)))


def tables_loaded(peer: str, address: str, data: Data, measured: Measured) -> None:
    """Many tables with one change file each, applied; what they are restarted on."""
    for number in range(data.size.tables):
        publish(address, f"t{number:05}", data.changes[:1])
    with measured.part():
        _lakemirror(address)


def start(peer: str, address: str, data: Data, measured: Measured) -> None:
    """A new process brings all tables up to date: nothing waits, or with `data.size.files` a file in each."""
    if data.size.files > 1:
        for number in range(data.size.tables):
            publish(address, f"t{number:05}", data.changes[1:2], 2)
    with measured.part():
        if peer == "lakemirror":
            _lakemirror(address)
        else:
            from deltalake import DeltaTable

            for number in range(data.size.tables):
                DeltaTable(str(place(address) / "Tables" / f"t{number:05}"))


def follow(peer: str, address: str, data: Data, measured: Measured) -> None:
    """A running engine, until a line comes in; delta-rs merges each file as it comes."""
    print("ready", flush=True)
    stop = threading.Event()

    def wait() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    with measured.part():
        if peer == "lakemirror":
            MirroredDatabase(address, engine="local").run(stop)
            return
        number, table = len(data.load) + 1, FromStore(address)
        with TemporaryDirectory() as scratch:
            while not stop.is_set():
                try:
                    files = fetched(address, TABLE, Path(scratch), number, 1)
                    assert files[0].exists()
                except (FileNotFoundError, AssertionError):
                    time.sleep(0.05)
                    continue
                table.upsert_one(TABLE, files)
                number += 1


def prepared(peer: str, address: str, data: Data, measured: Measured) -> None:
    """A loaded table."""
    publish(address, TABLE, data.load)
    with measured.part(), TemporaryDirectory() as scratch:
        if peer == "lakemirror":
            _lakemirror(address)
        else:
            FromStore(address).append_one(TABLE, fetched(address, TABLE, Path(scratch), 1, len(data.load)))


ACTS: dict[str, Callable[[str, str, Data, Measured], None]] = {
    "backlog": backlog,
    "load": load,
    "tables_loaded": tables_loaded,
    "start": start,
    "prepared": prepared,
    "follow": follow,
}


def main() -> None:
    hide_pandas()
    act, peer, address, data = sys.argv[1:]
    measured = Measured()
    try:
        ACTS[act](peer, address, Data.read(Path(data)), measured)
        found = measured.figures
    except Exception as error:
        import traceback

        traceback.print_exc()
        found = {"failed": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
