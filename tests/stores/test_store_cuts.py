"""Cuts in an object store (sources.md, section 8)."""

from __future__ import annotations

import json

from tests.databases import Database
from tests.object_stores import StoreServer


def test_the_first_cut_is_found_however_late_it_comes(s3: StoreServer) -> None:
    """A running engine has looked for manifests a moment before, and there were none."""
    database = Database(f"{s3.bucket()}/shop", s3.options)
    for number in (1, 2):
        database.put("t", number, {"n": [number]})
    opened = database.opened()
    assert opened.sync().tables["t"].commits == 1
    for number in (3, 4):
        database.put("t", number, {"n": [number]})
    database.write("_cuts/00000000000000000001.json", json.dumps({"cut": 1, "tables": {"t": 3}}).encode())
    assert opened.sync().tables["t"].commits == 2
    (cut,) = database.opened().cuts()
    assert cut.is_complete and cut.versions == {"t": 1}
