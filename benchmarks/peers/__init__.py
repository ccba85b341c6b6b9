"""Who is measured: each loads tables, applies change files, and tells what its tables then hold.

One module per engine, imported only in the process that runs it; the list below is all that the runner needs.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from benchmarks.peers.peer import Peer


@dataclass(frozen=True)
class Entry:
    """One peer: its sentence in the report, where its class is, and what its own virtual environment holds."""

    name: str
    what: str
    place: str  # module:class
    environment: str = ""  # the one that runs the benchmark, where empty


PEERS = {
    entry.name: entry
    for entry in (
        Entry(
            "lakemirror",
            "lakemirror, whose commits survive a power cut",
            "lakemirror:Lakemirror",
        ),
        Entry(
            "lakemirror-process",
            "lakemirror with `durability = process`: it waits for the disk no more than the peers do",
            "lakemirror:NotWaiting",
        ),
        Entry(
            "lakemirror-trusting",
            "lakemirror with `trust_footers`: files that are copied whole are not read",
            "lakemirror:Trusting",
        ),
        Entry(
            "lakemirror-spark",
            "lakemirror with `engine = spark`: the row work as Spark tasks, the start of Spark included",
            "lakemirror:OnSpark",
        ),
        Entry("plain-delta", "Delta Lake on Spark, one MERGE or append per file, default settings", "delta:Plain"),
        Entry(
            "expert-delta",
            "Delta Lake on Spark, files folded into one MERGE or append, deletion vectors, few shuffle partitions",
            "delta:Expert",
        ),
        Entry("delta-rs", "delta-rs, one MERGE or append per file; it does not wait for the disk", "delta_rs:DeltaRs"),
        Entry(
            "delta-rs-power",
            "delta-rs, and after each commit fsync of its data files, its log entry and their folders",
            "delta_rs:Durable",
        ),
        Entry(
            "iceberg",
            "Apache Iceberg on Spark, files folded into one MERGE, merge-on-read (format 3, deletion vectors)",
            "iceberg:Iceberg",
            "iceberg",
        ),
        Entry(
            "hudi",
            "Apache Hudi on Spark with 4 GB of heap, files folded into one upsert, merge-on-read, record index",
            "hudi:Hudi",
            "hudi",
        ),
        Entry("auto-cdc", "Spark declarative pipelines, AUTO CDC into a Delta table", "auto_cdc:AutoCdc", "pipelines"),
        Entry("ducklake", "DuckLake, files folded into one delete and insert", "ducklake:DuckLake", "ducklake"),
        Entry("duckdb", "floor: DuckDB writes the whole table again as Parquet, no table format", "floor:DuckDB"),
        Entry("copy", "floor: the files copied byte by byte, no table at all", "floor:Copy"),
    )
}


def peer_class(name: str) -> type[Peer]:
    """The class of a peer; ImportError where its environment lacks something."""
    module, _, member = PEERS[name].place.partition(":")
    found: type[Peer] = getattr(importlib.import_module(f"benchmarks.peers.{module}"), member)
    return found


__all__ = ["PEERS", "Entry", "Peer", "peer_class"]
