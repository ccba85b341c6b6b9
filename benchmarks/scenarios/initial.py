"""S1: the first load of a table, from Parquet and from delimited text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks import data as make
from benchmarks import digest
from benchmarks.peers.peer import Peer
from benchmarks.process import Meter
from benchmarks.scenarios.scenario import TABLE, Data, Scenario, Size, costs


class Initial(Scenario):
    """Rows without a marker; the session is started before."""

    name, title = "S1", "initial load"
    timed = "The rows of a new table are loaded by a started engine, from files without a row marker."
    peers = (
        "lakemirror",
        "lakemirror-process",
        "lakemirror-trusting",
        "plain-delta",
        "delta-rs",
        "iceberg",
        "hudi",
        "ducklake",
        "duckdb",
        "copy",
    )
    small, full = Size(1_000_000), Size(10_000_000)

    def make(self, store: Path, size: Size) -> Data:
        load = make.load(store / f"load-{size.rows}", size.rows)
        return Data(size, load, expected=digest.expected(load, ()))

    def run(self, peer: Peer, data: Data) -> dict[str, Any]:
        with Meter() as start:
            peer.start(data.load_bytes)
        work = {TABLE: data.load}
        peer.offer(work)
        with Meter() as meter:
            peer.load(work)
        return {"seconds": meter.seconds, "start": start.seconds, **costs(peer, meter, data.load_bytes, data)}


class InitialText(Initial):
    """The same rows as delimited text with declared types."""

    name, title = "S1c", "initial load of delimited text"
    timed = "The same as S1, from delimited text with declared types."
    peers = ("lakemirror", "lakemirror-process", "plain-delta", "delta-rs", "duckdb")
    small, full = Size(200_000), Size(2_000_000)

    def make(self, store: Path, size: Size) -> Data:
        parquet = make.load(store / f"load-{size.rows}", size.rows)
        folder = store / self.name
        folder.mkdir()
        options = pyarrow.csv.WriteOptions(quoting_style="needed")
        for file in parquet:
            pyarrow.csv.write_csv(pq.read_table(file), folder / f"{file.stem}.csv", options)
        return Data(size, sorted(folder.iterdir()), expected=digest.expected(parquet, ()))
