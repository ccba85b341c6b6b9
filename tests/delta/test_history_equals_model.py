"""Random histories by Spark's tasks: the tables equal the model, as those of the local engine do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.random_histories import play, stories
from tests.rounds import SLOW


@pytest.mark.full
@pytest.mark.parametrize("history", [None, "changes", "scd2", ["scd2", "changes"]], ids=str)
@pytest.mark.parametrize("deletes", ["hard", "soft", "ignore"])
@pytest.mark.parametrize("sequence", ["", "number", "list"])
@settings(max_examples=4, **SLOW)
@given(data=st.data())
def test_tables_by_spark(spark: Any, sequence: str, deletes: str, history: Any, data: Any) -> None:
    story = data.draw(stories(deletes, sequence, history, partial=data.draw(st.booleans())))
    play(story, spark=spark, engine="spark", spark_from_bytes=data.draw(st.sampled_from([0, 1])))  # 1: tasks do all
