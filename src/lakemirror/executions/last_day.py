"""The last day of a database as figures for plots: rows a minute, lag, errors, in bins of ten minutes.

executions table, spool ─▶ DayRows: a few columns as arrays ─▶ plot(table): 144 bins
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.executions.execution import FAIL
from lakemirror.executions.execution_log import read_both
from lakemirror.executions.executions_table import as_arrow
from lakemirror.settings.settings import Settings
from lakemirror.status.status import format_time
from lakemirror.storage import Storage

DAY = 86_400.0
BIN = 600.0  # seconds
BINS = round(DAY / BIN)
_COLUMNS = (
    "Timestamp", "OperationName", "SourceSchemaName", "SourceTableName", "ProcessedRows", "ReplicatorBatchLatency",
)  # fmt: skip


@dataclass(frozen=True)
class DayRows:
    """What happened in the last day: when (seconds since the epoch), to which table, changes, lag (NaN: no apply)."""

    ended: np.ndarray
    table: pa.Array
    rows: np.ndarray
    lag: np.ndarray
    failed: np.ndarray

    def plot(self, now: float, table: str = "") -> dict[str, Any]:
        """The figures of the day that ends `now`, whose last bin is not over; of one table alone where it is named."""
        end = (math.floor(now / BIN) + 1) * BIN
        place = np.floor((self.ended - (end - DAY)) / BIN).astype(int)
        chosen = (place >= 0) & (place < BINS)
        if table:
            chosen &= pc.equal(self.table, table).to_numpy(zero_copy_only=False)
        applies = chosen & ~np.isnan(self.lag)
        rows = np.bincount(place[applies], self.rows[applies], BINS)
        failed = np.bincount(place[chosen & self.failed], minlength=BINS)
        halves, most = _quantiles(place[applies], self.lag[applies])
        return {
            "from": format_time(end - DAY),
            "to": format_time(end),
            "secondsABin": BIN,
            "rowsAMinute": [round(float(each) * 60 / BIN, 2) for each in rows],
            "lagP50Seconds": halves,
            "lagP95Seconds": most,
            "errors": failed.tolist(),
        }


def _quantiles(place: np.ndarray, lag: np.ndarray) -> tuple[list[float | None], list[float | None]]:
    """Of each bin the lag that half of its applies, and 95 of 100, do not exceed; None where there is none."""
    order = np.lexsort((lag, place))
    place, lag = place[order], lag[order]
    begins = np.searchsorted(place, np.arange(BINS + 1))
    counts = np.diff(begins)

    def at(share: float) -> list[float | None]:
        index = begins[:-1] + np.maximum(0, np.ceil(share * counts).astype(int) - 1)
        return [round(float(lag[i]), 3) if n else None for i, n in zip(index, counts, strict=True)]

    return at(0.5), at(0.95)


def last_day(storage: Storage, settings: Settings, now: float) -> DayRows:
    """What happened in the last day. LakemirrorError where the table of executions cannot be read."""
    rows, spooled = read_both(storage, settings, now - DAY - BIN, _COLUMNS)
    found = pa.concat_tables([rows, as_arrow(spooled).select(list(_COLUMNS))]).combine_chunks()
    schema, table = found.column("SourceSchemaName"), found.column("SourceTableName")
    named = pc.if_else(pc.equal(schema, ""), table, pc.binary_join_element_wise(schema, table, "."))
    return DayRows(
        found.column("Timestamp").cast(pa.int64()).to_numpy() / 1e6,
        named.combine_chunks() if isinstance(named, pa.ChunkedArray) else named,
        found.column("ProcessedRows").to_numpy(),
        found.column("ReplicatorBatchLatency").to_numpy(),
        pc.equal(found.column("OperationName"), FAIL).to_numpy(),
    )
