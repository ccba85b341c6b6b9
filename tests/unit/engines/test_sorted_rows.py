"""Compaction sorts rows by key: whole numbers as fast as they can be, in the order of Arrow's sort; equal keys stay."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from tests.rounds import rounds

from lakemirror.engines.kernels.compact import _sorted
from lakemirror.engines.row_work import Target

KINDS = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"),
    pa.string(), pa.float64(),
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_order_is_that_of_arrow(kind: pa.DataType) -> None:
    for seed in range(rounds(40, 500)):
        rng = random.Random(seed)
        most = rng.choice([5, (1 << min(kind.bit_width, 64) - 1) - 1 if pa.types.is_primitive(kind) else 99])
        numbers = [rng.randint(-most - 1, most) for _ in range(rng.randint(0, 40))]
        chosen = [None if rng.random() < 0.1 and seed % 2 else number for number in numbers]
        whole = pa.array(chosen, pa.int64())
        keys = whole.cast(pa.int32()).cast(kind) if pa.types.is_date32(kind) else whole.cast(kind, safe=False)
        rows = pa.table({"K": keys, "place": np.arange(len(keys))})
        parts = pa.concat_tables([rows.slice(0, len(keys) // 2), rows.slice(len(keys) // 2)])
        assert _sorted(parts, Target("", (), key_columns=("k",))).equals(rows.sort_by("K")), f"seed {seed}"
