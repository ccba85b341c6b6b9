"""S10: killed amid a backlog, started again: seconds until all is applied, and every change there once."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks import data as make
from benchmarks import digest, process
from benchmarks.peers.peer import Peer
from benchmarks.process import Meter
from benchmarks.scenarios.scenario import TABLE, Data, Scenario, Size, costs


class Restart(Scenario):
    """lakemirror alone: the others keep no position, so what a restart means is their user's own code."""

    name, title = "S10", "killed and started again"
    timed = (
        "The command is killed when it begins to write, amid its backlog. The time is of the command that is started "
        "afterwards, until all is applied."
    )
    peers = ("lakemirror", "lakemirror-process")
    small, full = Size(500_000, 10, 5_000), Size(5_000_000, 20, 10_000)

    def make(self, store: Path, size: Size) -> Data:
        load = make.load(store / f"load-{size.rows}", size.rows)
        folder = store / self.name / "changes"
        make.upserts(folder, size.rows, size.files, size.changes, make.uniform)
        changes = sorted(folder.iterdir())
        return Data(size, load, changes, expected=digest.expected(load, changes))

    def run(self, peer: Peer, data: Data) -> dict[str, Any]:
        command = peer.command()
        peer.offer({TABLE: data.load})
        subprocess.run(command, check=True, capture_output=True)
        before = set(peer.on_disk())
        peer.offer({TABLE: data.changes})
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while set(peer.on_disk()) == before and child.poll() is None:
            time.sleep(0.01)
        alive = child.poll() is None
        process.end(child.pid)  # the moment it has begun to write
        child.wait()
        with Meter() as meter:
            subprocess.run(command, check=True, capture_output=True)
        peer.start(0)
        return {
            "seconds": meter.seconds,
            "extra": {"killed while at work": float(alive)},
            **costs(peer, meter, data.change_bytes, data),
            "cpu": None,
            "written": None,
        }
