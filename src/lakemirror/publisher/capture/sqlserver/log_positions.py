"""Positions in SQL Server's log: a log sequence number has 80 bits, of which the position is the whole number.

The position of an event is that of its transaction's commit, whose text is the transaction's name: transactions come
one by one, in the order of their commits.
"""

from __future__ import annotations

import pyarrow as pa

from lakemirror.errors import LakemirrorError


def position_of(text: str) -> int:
    """A position that Debezium writes as `00000027:00000ac0:0002`, and the server in hexadecimal digits alone."""
    try:
        return int(text.replace(":", ""), 16)
    except ValueError:
        raise LakemirrorError("capture-source-failed", f"{text!r} is no position of SQL Server's log") from None


def text_of(position: int) -> str:
    """The same as Debezium writes it."""
    digits = f"{position:020x}"
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


def places(source: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    """The position and the transaction of each event."""
    texts = source.field("commit_lsn")
    numbers = [position_of(text or "") for text in texts.to_pylist()]
    return pa.array(numbers, pa.decimal128(38, 0)), texts
