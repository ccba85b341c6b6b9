"""How far long work is, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int | None], None]]:
    """Gives a function that shows how much of something is done: its name, the count, the total if it is known.

    Each name has one bar, with its rate and how long the rest takes. Nothing is shown where stderr is no terminal.
    """
    if not sys.stderr.isatty():
        yield lambda name, done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed or 0:,.0f}/s")

    counts = (MofNCompleteColumn(), Rate())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), *counts, *times)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks = {}

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done, total=total)

        yield show
