"""Which engine a batch gets, and the reason that is told."""

from __future__ import annotations

import pytest

from lakemirror.engines.engine import FROM_BYTES, FROM_BYTES_WITH_SPARK, Choice, Preference, choose

CHECK = "the table has the constraint c"


@pytest.mark.parametrize(
    ("preference", "size", "needs", "engine"),
    [
        (Preference(), FROM_BYTES - 1, "", "local"),
        (Preference(), FROM_BYTES, "", "spark"),
        (Preference(spark_given=True), FROM_BYTES_WITH_SPARK - 1, "", "local"),
        (Preference(spark_given=True), FROM_BYTES_WITH_SPARK, "", "spark"),
        (Preference(from_bytes=10), 10, "", "spark"),
        (Preference(from_bytes=10, spark_given=True), 9, "", "local"),
        (Preference("spark"), 1, "", "spark"),
        (Preference("local", spark_given=True), FROM_BYTES, "", "local"),
        (Preference(), 1, CHECK, "spark"),
        (Preference("local"), 1, CHECK, "local"),
    ],
)
def test_the_choice(preference: Preference, size: int, needs: str, engine: str) -> None:
    assert choose(preference, size, needs_spark=needs).engine == engine


def test_the_reason_names_sizes_or_what_needs_spark() -> None:
    assert choose(Preference(), 3 << 20) == Choice("local", "the batch has 3.0 MiB, less than 16.0 GiB")
    assert choose(Preference(from_bytes=1 << 10), 4 << 30).reason == "the batch has 4.0 GiB, Spark is used from 1.0 KiB"
    assert choose(Preference(), 1, needs_spark=CHECK).reason == CHECK
