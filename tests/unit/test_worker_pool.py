"""Threads behind a generator: waited for when it ends, never when it is abandoned."""

from __future__ import annotations

import ast
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.source import nodes

import lakemirror
from lakemirror.landing_zone.delimited.convert import read_columns
from lakemirror.landing_zone.delimited.fast_reader import FastReader, Piece
from lakemirror.landing_zone.metadata import DelimitedFormat, TableMetadata
from lakemirror.worker_pool import worker_pool


class Gate:
    """A call that begins, and ends when it may."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> int:
        self.begun.set()
        self.may_end.wait(10)
        self.ended.set()
        return 7


def numbers(gate: Gate, error: Exception | None = None) -> Iterator[int]:
    with worker_pool(2, "test") as pool:
        future = pool.submit(gate)
        assert gate.begun.wait(30)
        yield 1
        threading.Timer(0.05, gate.may_end.set).start()
        if error is not None:
            raise error
        yield future.result()


def test_the_end_waits() -> None:
    gate = Gate()
    assert list(numbers(gate)) == [1, 7]


def test_an_error_waits() -> None:
    gate = Gate()
    with pytest.raises(ValueError, match="of the block"):
        list(numbers(gate, ValueError("of the block")))
    assert gate.ended.is_set()


def test_an_abandoned_generator_waits_for_no_thread() -> None:
    """The garbage collector may end it in a thread that holds what every thread needs to end."""
    gate = Gate()
    abandoned = numbers(gate)
    assert next(abandoned) == 1
    abandoned.close()
    assert not gate.ended.is_set()
    gate.may_end.set()


def test_delimited_text_that_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a row cannot be published: its reader is kept by the error, and goes with it."""
    gate = Gate()
    parsed = FastReader.parsed

    def slow(self: FastReader, piece: Piece) -> pa.RecordBatch:
        if piece.line > 2:
            gate()
        return parsed(self, piece)

    monkeypatch.setattr(FastReader, "parsed", slow)
    text = io.BytesIO(b"v\n" + b"a long enough line of text\n" * 300_000)
    metadata = TableMetadata(file_format="CSV", delimited=DelimitedFormat())
    batches = read_columns(text, file="t.csv", metadata=metadata, undeclared="string")
    assert [next(batches).num_rows > 0 for _ in range(2)] == [False, True]
    assert gate.begun.wait(30)
    batches.close()  # type: ignore[attr-defined]
    assert not gate.ended.is_set()
    gate.may_end.set()


def test_no_generator_has_threads_of_another_kind() -> None:
    """A `yield` within `with ThreadPoolExecutor(…)` waits when the garbage collector ends the generator."""
    wrong = []
    for path in Path(lakemirror.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        for block in nodes(path) if "ThreadPoolExecutor(" in text else ():
            if isinstance(block, ast.With) and "ThreadPoolExecutor(" in ast.unparse(block).partition(":\n")[0]:
                wrong += [path.name for node in ast.walk(block) if isinstance(node, ast.Yield | ast.YieldFrom)]
    assert wrong == []
