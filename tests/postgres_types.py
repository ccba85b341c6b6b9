"""Types that users made in PostgreSQL, for tests of all types."""

TYPES = (
    "create extension citext", "create extension hstore", "create extension ltree",
    "create type mood as enum ('fine', 'bad')", "create type place as (x int, name text)",
    "create type dates as (d date, i interval, t timestamptz, n numeric)", "create domain rate as numeric(5,2)",
    "create domain rates as rate", "create domain dtags as text[]", "create domain dint as int",
    "create domain moods as mood[]",
)  # fmt: skip
"""The statements that make them."""


def is_known(version: int, kind: str, value: str) -> bool:
    """True where this version of the server (15, say) has the type, and the value of it."""
    since = {"int4multirange": 14, "numeric(5,-2)": 15, "numeric(3,5)": 15}.get(kind, 0)
    return version >= (14 if kind == "numeric" and "Infinity" in value else since)


__all__ = ["TYPES", "is_known"]
