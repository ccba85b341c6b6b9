"""Mirrors a table by the lakemirror that is installed, and imports the modules that are named.

    python -I scripts/smoke.py [MODULE …]

Needs nothing but what the wheel brings. Ends with exit code 1 if the table does not hold what was published.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def main(modules: list[str]) -> None:
    """Publishes three rows, changes two, and reads what is there."""
    for name in modules:
        importlib.import_module(name)
    folder = Path(tempfile.mkdtemp())
    try:
        database = folder / "shop"
        command = Path(sys.executable).with_name("lakemirror")
        (folder / "rows.csv").write_text("id,name\n1,Ada\n2,Bob\n3,Eve\n", encoding="utf-8")
        for words in (
            ["init", database],
            ["publish", database, "people", "--from", folder / "rows.csv", "--keys", "id"],
            ["sync", database, "--engine", "local"],
        ):
            subprocess.run([command, *map(str, words)], check=True, capture_output=True)
        from lakemirror import MirroredDatabase, __version__
        from lakemirror.publisher import Landing

        people = Landing(database).table("people", keys=["id"])
        people.upsert([{"id": 1, "name": "Ann"}])
        people.delete([{"id": 2}])
        MirroredDatabase(database, engine="local").sync()
        from lakemirror.delta.log import read_snapshot

        snapshot = read_snapshot(database / "Tables/people")
        assert snapshot is not None and sum(1 for _ in snapshot.files) >= 1, "no table"
        status = {table.name: table for table in MirroredDatabase(database).status().tables}
        assert status["people"].processed_rows == 5, status
        assert not status["people"].error_code, status
        shown = subprocess.run([command, "--version"], check=True, capture_output=True, text=True).stdout
        assert shown.split() == ["lakemirror", __version__], shown
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
