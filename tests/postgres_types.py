"""Types that users made in PostgreSQL, for tests of all types."""

TYPES = (
    "create extension citext", "create extension hstore", "create extension ltree",
    "create type mood as enum ('fine', 'bad')", "create type place as (x int, name text)",
    "create type dates as (d date, i interval, t timestamptz, n numeric)", "create domain rate as numeric(5,2)",
    "create domain rates as rate", "create domain dtags as text[]", "create domain dint as int",
    "create domain moods as mood[]",
)  # fmt: skip
"""The statements that make them."""

__all__ = ["TYPES"]
