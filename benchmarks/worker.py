"""One peer, one round, in its own process: prints its seconds and its digest as JSON on the last line."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.peers import PEERS


def main() -> None:
    peer_name, data = sys.argv[1], Path(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="lakemirror-bench-") as place:
        peer = PEERS[peer_name](Path(place))
        load = sorted((data / "load").iterdir())
        changes = sorted((data / "changes").iterdir())
        began = time.perf_counter()
        peer.load(load)
        loaded = time.perf_counter()
        peer.changes(changes)
        changed = time.perf_counter()
        kept = [f for f in Path(place).rglob("*.parquet") if "LandingZone" not in f.parts]
        written = sum(f.stat().st_size for f in kept)
        result = {"load": loaded - began, "changes": changed - loaded, "files": len(kept), "bytes": written}
        print(json.dumps({**result, "digest": peer.digest()}))


if __name__ == "__main__":
    main()
