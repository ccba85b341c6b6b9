"""Which engine a batch gets, and the reason that is told."""

from __future__ import annotations

import pytest

from lakemirror.engines.engine import (
    COLD,
    FROM_BYTES,
    FROM_BYTES_WITH_SPARK,
    READY,
    STARTING,
    Choice,
    Preference,
    choose,
    preference_of,
)
from lakemirror.settings.settings import Settings

CHECK = "the table has the constraint c"
LARGE = 64 << 30


@pytest.mark.parametrize(
    ("preference", "size", "needs", "engine"),
    [
        (Preference(), FROM_BYTES - 1, "", "local"),
        (Preference(waiting=LARGE), LARGE, "", "local"),
        (Preference(waiting=LARGE, spark=STARTING), LARGE, "", "local"),
        (Preference(waiting=LARGE, spark="no Java"), LARGE, "", "local"),
        (Preference(waiting=FROM_BYTES // 2 - 1, spark=COLD), FROM_BYTES // 4, "", "local"),
        (Preference(waiting=FROM_BYTES // 2, spark=COLD), FROM_BYTES // 4, "", "spark"),
        (Preference(waiting=LARGE, spark=COLD), FROM_BYTES_WITH_SPARK - 1, "", "local"),
        (Preference(from_bytes=10, waiting=10, spark=COLD), 10, "", "spark"),
        (Preference(waiting=LARGE, spark=READY), FROM_BYTES_WITH_SPARK, "", "spark"),
        (Preference(waiting=LARGE, spark=READY), FROM_BYTES_WITH_SPARK - 1, "", "local"),
        (Preference(spark_given=True), FROM_BYTES_WITH_SPARK - 1, "", "local"),
        (Preference(spark_given=True), FROM_BYTES_WITH_SPARK, "", "spark"),
        (Preference(from_bytes=10, spark=READY), 10, "", "spark"),
        (Preference(from_bytes=10, spark=READY), 9, "", "local"),
        (Preference(from_bytes=LARGE, spark=READY), FROM_BYTES_WITH_SPARK, "", "spark"),
        (Preference(from_bytes=10, spark_given=True), 9, "", "local"),
        (Preference(from_bytes=LARGE, spark_given=True), LARGE - 1, "", "local"),
        (Preference("spark"), 1, "", "spark"),
        (Preference("local", spark_given=True), LARGE, "", "local"),
        (Preference("local", spark=READY), LARGE, "", "local"),
        (Preference(), 1, CHECK, "spark"),
        (Preference(spark="no Java"), 1, CHECK, "spark"),
        (Preference("local"), 1, CHECK, "local"),
    ],
)
def test_the_choice(preference: Preference, size: int, needs: str, engine: str) -> None:
    assert choose(preference, size, needs_spark=needs).engine == engine


def test_the_reason_names_sizes_or_what_needs_spark() -> None:
    assert choose(Preference(), 3 << 20) == Choice("local", "3.0 MiB wait, Spark is started from 10.0 GiB")
    waits = Preference(waiting=4 << 30)
    assert choose(waits._replace(spark=STARTING), 3 << 20).reason.startswith("4.0 GiB wait, and Spark is starting")
    assert choose(waits._replace(spark="no Java"), 1).reason == "4.0 GiB wait, and Spark cannot help: no Java"
    given = Preference(spark_given=True, from_bytes=1 << 10)
    assert choose(given, 4 << 30).reason == "the batch has 4.0 GiB, Spark is used from 1.0 KiB"
    assert choose(Preference(), 1, needs_spark=CHECK).reason == CHECK


@pytest.mark.parametrize(
    ("settings", "session", "given"),
    [
        (Settings(), False, False),
        (Settings(), True, True),
        (Settings(master="local[2]"), False, True),
        (Settings(spark_remote="sc://host:15002"), False, True),
    ],
)
def test_when_spark_is_given(settings: Settings, session: bool, given: bool) -> None:
    assert preference_of(settings, spark_given=session).spark_given is given


def test_the_status_says_what_the_driver_does() -> None:
    """`engine = spark`: tasks do what is large, and nobody is told that Spark carried what it did not."""
    said = "the setting `engine` says spark"
    assert choose(Preference("spark"), 1000).reason == f"{said}; its driver does up to 32.0 MiB itself"
    assert choose(Preference("spark"), 33 << 20).reason == said
    assert choose(Preference("spark", from_bytes=1), 1000).reason == said
