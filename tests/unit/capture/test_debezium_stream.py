"""A run of Debezium's engine that ends while a batch is handled: by `stop`, or by what the handler raises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakemirror.publisher.capture import debezium

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

    java = SimpleNamespace(engine=engine, groups=lambda _: [])
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
