"""Threads for work that waits for the disk, so that the listener never waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_AT_ONCE = 32  # syncs: a file system writes several in one turn of its journal


class Workers:
    """A pool of threads, started when first needed."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="storage")

    async def run(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `act` gives back, called in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: act(*args, **kwargs))

    def later(self, act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Has `act` called in a thread; nobody waits for it."""
        self._pool.submit(act, *args, **kwargs)

    def close(self) -> None:
        """Ends the threads once what they do is done."""
        self._pool.shutdown(wait=True)
