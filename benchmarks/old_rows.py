"""`python -m benchmarks.old_rows`: what a few random old rows cost, by their pages and by whole row groups, in turn.

A file of a table of versions is written as an apply writes it. Then all columns of random rows are read in both ways,
one after the other, seven times: milliseconds of CPU, the least of each.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels import given_rows
from lakemirror.engines.kernels.live_rows import chosen_rows
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.row_work import Target, TargetColumn
from lakemirror.landing_zone.reserved_columns import END_AT

_ROUNDS = 7
_COLUMNS = {"id": "bigint", "n": "bigint", "amount": "bigint", "price": "double", "name": "string", END_AT: "bigint"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--wanted", type=int, nargs="+", default=[10, 100, 500, 2_000, 10_000])
    given = parser.parse_args()
    random = np.random.default_rng(7)
    with tempfile.TemporaryDirectory(prefix="lakemirror-old-rows-") as folder:
        target = Target(folder, tuple(TargetColumn(name, name, kind) for name, kind in _COLUMNS.items()))
        ids = np.arange(given.rows)
        rows = pa.table({
            "id": ids, "n": np.zeros(given.rows, np.int64), "amount": random.integers(0, 10_000, given.rows),
            "price": random.random(given.rows), "name": [f"customer {number % 50_000}" for number in ids],
            END_AT: pa.nulls(given.rows, pa.int64()),
        })  # fmt: skip
        (add,) = write_rows(rows.to_batches(), target)
        for count in given.wanted:
            numbers = np.sort(random.choice(given.rows, count, replace=False))
            found = [(_cpu(add, target, numbers, 0.6), _cpu(add, target, numbers, -1.0)) for _ in range(_ROUNDS)]
            pages, groups = (min(values) * 1000 for values in zip(*found, strict=True))
            size = round((Path(folder) / add["path"]).stat().st_size / 1e6, 1)
            figures = {"rows": count, "pages_ms": round(pages, 1), "groups_ms": round(groups, 1), "file_mb": size}
            print(json.dumps(figures), flush=True)


def _cpu(add: dict[str, object], target: Target, numbers: np.ndarray, worth: float) -> float:
    """Seconds of CPU to read these rows. `worth`: the share of rows up to which pages are read; below 0 never."""
    given_rows._WORTH_IT = worth
    begun = time.thread_time()
    rows = sum(len(table) for table in chosen_rows(add, target, numbers, target.columns))
    assert rows == len(numbers)
    return time.thread_time() - begun


if __name__ == "__main__":
    main()
