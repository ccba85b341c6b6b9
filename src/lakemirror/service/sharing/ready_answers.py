"""Answers of this minute, kept as they are sent: many readers with one profile ask the same question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from lakemirror.service.storage.workers import Workers

_MOST = 32


class ReadyAnswers:
    """The last few answers. Whoever asks what is being made waits for it. For one event loop."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._until = 0
        self._made: dict[Hashable, asyncio.Future[bytes]] = {}

    async def body(self, question: Hashable, until: int, make: Callable[[], bytes]) -> bytes:
        """The answer. `until`: those that were made for another time are forgotten."""
        if until != self._until or (question not in self._made and len(self._made) >= _MOST):
            self._made, self._until = {}, until
        made = self._made.get(question)
        if made is None:
            made = self._made[question] = asyncio.ensure_future(self._workers.run(make))
        try:
            return await asyncio.shield(made)
        except Exception:
            self._made.pop(question, None)
            raise
