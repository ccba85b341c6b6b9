"""The rows that go, of versions in any order: by file, ascending."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.version_rows import VersionRows
from lakemirror.engines.row_work import FILE, ROW
from lakemirror.engines.versions import ChangedVersions


def test_deleted_rows_come_by_file() -> None:
    for seed in range(200):
        random = np.random.default_rng(seed)
        count = int(random.integers(0, 60))
        files, rows = random.integers(0, 5, count), random.permutation(1000)[:count]
        files = np.sort(files) if seed % 2 else files
        removed = random.permutation(count)[: int(random.integers(0, count + 1))]
        none = pa.table({})
        changed = VersionRows(removed, none, none, np.zeros(0, bool), np.zeros(0, bool))
        found = ChangedVersions(pa.table({FILE: files, ROW: rows}), changed).deleted
        its = [(int(files[each]), int(rows[each])) for each in removed]
        assert {file: part.tolist() for file, part in found.items()} == {
            file: sorted(row for other, row in its if other == file) for file, _ in its
        }
