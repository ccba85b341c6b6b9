"""What `verify` expects of tables with options, held against the model: two ways to say what the contract says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.history_model import APPLY_TIME, DELETED_AT, END_AT, START_AT
from tests.random_histories import SEQUENCE_KINDS, Story, _plain, stories
from tests.rounds import rounds

from lakemirror.verify.expected_rows import (
    MARK,
    PLACE,
    TIME,
    Memory,
    current_rows,
    version_rows,
    with_left_out,
)
from lakemirror.verify.option_phases import Meaning, Phase


def changes_of(story: Story) -> pa.Table:
    """All changes of a story as `verify` reads them."""
    model = story.model()
    default = 4 if story.upsert_by_default else 0
    found = [(file, change) for file in story.files for change in file.changes]
    table = pa.table({name: pa.array([c.row.get(name) for _, c in found], story.types[name]) for name in model.columns})
    table = table.append_column(PLACE, pa.array(range(len(found)), pa.uint64()))
    table = table.append_column(
        MARK, pa.array([default if c.marker is None else c.marker for _, c in found], pa.uint64())
    )
    times = (
        [c.at or file.modified for file, c in found] if not story.options.get("sequence") else [c.at for _, c in found]
    )
    if story.options.get("deletes") == "soft" and not story.options.get("sequence"):
        times = [c.at for _, c in found]
    table = table.append_column(TIME, pa.array(times, pa.timestamp("us", "UTC")))
    names = {name for _, change in found for name in change.unchanged}
    return with_left_out(table, {name: np.array([name in c.unchanged for _, c in found]) for name in sorted(names)})


def phases_of(story: Story, ends: list[int]) -> list[Phase]:
    """The same options for all changes, as if they had been declared again at these places."""
    model = story.model()
    track, versions = (model.history("scd2") or {}).get("track") or (), bool(model.history("scd2"))
    meaning = Meaning(tuple(story.keys), model.deletes, model.sequence, versions, tuple(track))
    forgets = not meaning.sequence or meaning.deletes == "ignore"
    return [Phase(meaning, end, forgets=forgets) for end in (*ends, 1 << 63)]


def bag(rows: pa.Table) -> Counter[Any]:
    return Counter(tuple(_plain(value) for value in row.values()) for row in rows.to_pylist())


AT_ONCE = Memory(np.zeros(1, np.int64), 1)
"""All files were applied at one time."""

SLOW: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=rounds(100, 1500), **SLOW)
@given(data=st.data())
def test_expected_rows_are_those_of_the_model(data: Any) -> None:
    deletes = data.draw(st.sampled_from(["hard", "soft", "ignore"]))
    sequence = data.draw(st.sampled_from(["", *SEQUENCE_KINDS]))
    history = data.draw(st.sampled_from([None, "scd2", {"mode": "scd2", "track": ["v"]}]))
    story = data.draw(stories(deletes, sequence, history, partial=data.draw(st.booleans())))
    model, changes = story.model(), changes_of(story)
    phases = phases_of(story, sorted(data.draw(st.sets(st.integers(0, changes.num_rows), max_size=2))))
    found = current_rows(changes, phases, AT_ONCE, marks_deleted=deletes == "soft")
    if deletes == "soft":
        at = found.column_names.index(DELETED_AT)
        assert (
            Counter(
                tuple(APPLY_TIME if i == at and v is None and row[at - 1] else v for i, v in enumerate(row))
                for row in bag(found).elements()
            )
            == model.current()
        )
    else:
        assert bag(found) == model.current()
    if history:
        if not sequence and deletes == "soft":
            times = [c.at or f.modified for f in story.files for c in f.changes]
            place = changes.schema.get_field_index(TIME)
            changes = changes.set_column(place, TIME, pa.array(times, pa.timestamp("us", "UTC")))
        versions = version_rows(changes, phases)
        assert bag(versions.select([*model.columns, START_AT, END_AT])) == model.versions()
