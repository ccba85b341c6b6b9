"""One peer, one scenario, one round, in its own process: prints what it found as JSON on the last line.

python -m benchmarks.worker SCENARIO PEER DATA.json FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from benchmarks.peers import peer_class
from benchmarks.process import hide_pandas
from benchmarks.scenarios import SCENARIOS, Data


def main() -> None:
    hide_pandas()
    scenario, peer, data, folder = sys.argv[1:]
    try:
        found = SCENARIOS[scenario].run(peer_class(peer)(Path(folder)), Data.read(Path(data)))
    except Exception as error:
        traceback.print_exc()
        found = {"failed": _sentence(error).replace(folder, "…")}
    print(json.dumps(found), flush=True)
    os._exit(0)  # threads that hang, and a JVM's slow good-bye, are no part of a measurement


def _sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"[:300]


if __name__ == "__main__":
    main()
