"""One peer in a new process appends one file to a new table: what scenario S9 times from outside.

python -m benchmarks.append_once MODULE CLASS FOLDER TABLE FILE
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from benchmarks.peers.peer import Peer


def main() -> None:
    module, member, folder, table, file = sys.argv[1:]
    peer: Peer = getattr(importlib.import_module(module), member)(Path(folder))
    peer.start(Path(file).stat().st_size)
    peer.append({table: [Path(file)]})


if __name__ == "__main__":
    main()
