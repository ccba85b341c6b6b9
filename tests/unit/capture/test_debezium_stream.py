"""How a run of Debezium's engine ends: by `stop`, or by what the handler raises."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lakemirror.publisher.capture import database_capture, debezium

Interrupted = type("java.lang.InterruptedException", (Exception,), {})


def stream_of(handler: Any, monkeypatch: pytest.MonkeyPatch) -> debezium.DebeziumStream:
    """A stream whose engine hands over one batch."""

    def engine(_: Any, batch: Any, end: Any) -> Any:
        def run() -> None:
            try:
                batch(None, None)
            except Exception as error:
                end(False, str(error))

        return SimpleNamespace(run=run, close=lambda: None)

    return stream_in(SimpleNamespace(engine=engine, groups=lambda _: []), handler, monkeypatch)


def stream_in(
    java: Any, handler: Any, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None] = lambda: None
) -> debezium.DebeziumStream:
    """A stream in a Java whose threads are interrupted so."""
    thread = SimpleNamespace(currentThread=lambda: SimpleNamespace(interrupt=interrupt))
    java.class_of = {"java.lang.Thread": thread}.__getitem__
    monkeypatch.setattr(debezium._Java, "get", classmethod(lambda _: java))
    return debezium.DebeziumStream({}, handler)


def test_stop_interrupts_a_batch_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(_: Any) -> bool:
        stream.stop()
        raise Interrupted

    stream = stream_of(handler, monkeypatch)
    stream.run()


@pytest.mark.parametrize("error", [Interrupted("by whom?"), ValueError("ours")])
def test_an_error_of_a_batch_is_raised(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(_: Any) -> bool:
        raise error

    with pytest.raises(type(error)) as raised:
        stream_of(handler, monkeypatch).run()
    assert raised.value is error


def test_an_engine_that_waits_for_the_polling_that_it_threw_away_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Debezium's does that is closed between two of its steps; not before it is closed, which it may refuse."""
    refuses, said, interrupted = [True, True], list[str](), threading.Event()
    Refused = type("java.lang.IllegalStateException", (Exception,), {})

    def close() -> None:
        if refuses:
            refuses.pop()
            raise Refused
        said.append("closed")

    def interrupt() -> None:
        said.append("interrupted")
        interrupted.set()

    engine = SimpleNamespace(run=lambda: said.append(str(interrupted.wait(30))), close=close)
    java = SimpleNamespace(engine=lambda *_: engine)
    database_capture._run_until(stream_in(java, None, monkeypatch, interrupt), lambda: True)
    assert said == ["closed", "interrupted", "True"]
