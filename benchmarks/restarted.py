"""lakemirror in a process that has just started: seconds of its first apply, for scenario S3u.

python -m benchmarks.restarted CLASS FOLDER TABLE FILE     says `ready`, reads a line, applies, prints the seconds
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.peers import lakemirror
from benchmarks.process import hide_pandas


def main() -> None:
    hide_pandas()
    member, folder, table, file = sys.argv[1:]
    peer: lakemirror.Lakemirror = getattr(lakemirror, member)(Path(folder))
    peer.start(0)
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.perf_counter()
    peer.upsert({table: [Path(file)]})
    print(time.perf_counter() - begun, flush=True)


if __name__ == "__main__":
    main()
