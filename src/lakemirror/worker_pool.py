"""Threads for a generator that yields while they work."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def worker_pool(threads: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """A pool that ends with the block: calls that have begun are waited for, also after an error.

    If the generator is abandoned, they are not waited for. The garbage collector ends an abandoned generator in any
    thread, in the middle of anything, also while that thread holds the lock that the end of every thread needs. If it
    waited for a thread there, no thread of the process could start or end any more.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    try:
        yield pool
    except GeneratorExit:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()
