"""Which engine of several runs which table: simulated with a clock and a storage that counts requests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from tests.rounds import rounds

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror import engine_group
from lakemirror.mirror.engine_group import BEAT, GONE, SETTLES, EngineGroup, owner_of
from lakemirror.storage import Entry


@dataclass
class CountingStore:
    """Objects that every engine sees at once, and how many requests were made."""

    objects: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    requests: int = 0
    down_for: set[str] = field(default_factory=set)
    written: int = 0

    def write(self, path: str, data: bytes) -> None:
        self._ask(path)
        self.written += 1
        self.objects[path] = self.written, data

    def list(self, path: str) -> Any:
        self.requests += 1
        entries = [Entry(each, len(data), 0, str(tag)) for each, (tag, data) in self.objects.items()]
        return SimpleNamespace(files=entries)

    def delete(self, path: str) -> None:
        self._ask(path)
        self.objects.pop(path, None)

    def _ask(self, path: str) -> None:
        self.requests += 1
        if any(id in path for id in self.down_for):
            raise LakemirrorError("storage-unavailable", "no answer")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def engine(store: CountingStore, clock: Clock) -> EngineGroup:
    return EngineGroup(store, clock=clock)  # type: ignore[arg-type]


def owners(engines: list[EngineGroup], table: str) -> list[str]:
    return [each.id for each in engines if each.owns(TableName("", table))]


def test_one_engine_alone_has_all_tables_at_once() -> None:
    store, clock = CountingStore(), Clock()
    one = engine(store, clock)
    assert not one.owns(TableName("", "orders"))
    one.beat()
    assert one.owns(TableName("", "orders")) and one.leads
    clock.now += engine_group.FENCED + 1
    assert not one.owns(TableName("", "orders")) and not one.leads


def test_a_second_engine_waits_until_the_first_has_seen_it() -> None:
    store, clock = CountingStore(), Clock()
    one, two = engine(store, clock), engine(store, clock)
    one.beat()
    two.beat()
    mine = next(str(n) for n in range(100) if owner_of(str(n), (one.id, two.id)) == two.id)
    assert owners([one, two], mine) == [one.id]
    clock.now += BEAT
    one.beat()
    assert owners([one, two], mine) == []
    clock.now += BEAT
    one.beat(), two.beat()
    clock.now += BEAT
    one.beat(), two.beat()
    assert SETTLES == 3 * BEAT and owners([one, two], mine) == [two.id]


def test_an_engine_that_leaves_gives_its_tables_at_once() -> None:
    store, clock = CountingStore(), Clock()
    one, two = settled(store, clock, 2)
    two.leave()
    one.beat()
    assert one.members == (one.id,) and all(one.owns(TableName("", str(n))) for n in range(100))


def test_files_of_dead_engines_go() -> None:
    store, clock = CountingStore(), Clock()
    one, two = settled(store, clock, 2)
    store.write(engine_group.status_of(two.id), b"{}")
    store.write(f"{engine_group.FOLDER}/somebody-elses.json", b"{}")
    pass_time([one], clock, engine_group.FORGOTTEN - BEAT)
    assert len(store.objects) == 4
    pass_time([one], clock, 3 * BEAT)
    assert {each.rpartition("/")[2] for each in store.objects} == {f"{one.id}.json", "somebody-elses.json"}


def test_an_engine_without_the_store_owns_nothing_and_comes_back_as_a_new_one() -> None:
    store, clock = CountingStore(), Clock()
    one, two = settled(store, clock, 2)
    mine = next(str(n) for n in range(100) if two.owns(TableName("", str(n))))
    store.down_for.add(two.id)
    taken: float | None = None
    for second in range(40):
        clock.now += 1
        if second % int(BEAT) == 0:
            one.beat()
            with pytest.raises(LakemirrorError):
                two.beat()
        assert len(owners([one, two], mine)) < 2
        if taken is None and owners([one], mine):
            taken = second
    assert taken is not None and GONE <= taken + 1 <= 30
    store.down_for.clear()
    two.beat()
    assert not two.is_settled, "the others may still think that it is dead"
    pass_time([one, two], clock, SETTLES + BEAT)
    assert owners([one, two], mine) == [two.id]


def test_a_hundred_thousand_tables_and_twenty_engines_that_come_and_go() -> None:
    """One owner at a time, each death noticed in 30 seconds; requests do not grow with the tables."""
    chance = random.Random(7)
    store, clock = CountingStore(), Clock()
    alive = settled(store, clock, 20)
    tables = [f"table_{number}" for number in range(100_000)]
    counts = [sum(owner_of(table, alive[0].members) == each.id for table in tables[:5000]) for each in alive[:3]]
    assert all(150 < count < 350 for count in counts), counts
    some, before = tables[::997], store.requests
    unowned = dict.fromkeys(some, 0)
    phase = {each.id: chance.uniform(0, BEAT) for each in alive}
    due = {each.id: clock.now + phase[each.id] for each in alive}
    seconds = rounds(240, 600)
    for second in range(seconds):
        clock.now += 1
        if second % 60 == 20:
            dead = alive.pop(chance.randrange(len(alive)))
            del due[dead.id]
        if second % 60 == 50:
            alive.append(engine(store, clock))
            due[alive[-1].id] = clock.now
        for each in alive:
            if due[each.id] <= clock.now:
                each.beat()
                due[each.id] += BEAT
        for table in some:
            of = owners(alive, table)
            assert len(of) <= 1, (second, table)
            unowned[table] = 0 if of else unowned[table] + 1
            assert unowned[table] <= 30, (second, table)
    an_hour = (store.requests - before) * 3600 / seconds
    assert an_hour <= 20 * 2 * 3600 / BEAT * 1.1, "one put and one listing for each heartbeat"


def settled(store: CountingStore, clock: Clock, count: int) -> list[EngineGroup]:
    engines = [engine(store, clock) for _ in range(count)]
    for each in engines:
        each.beat()
    pass_time(engines, clock, SETTLES + BEAT)
    assert all(each.is_settled and len(each.members) == count for each in engines)
    return engines


def pass_time(engines: list[EngineGroup], clock: Clock, seconds: float) -> None:
    for _ in range(int(seconds / BEAT)):
        clock.now += BEAT
        for each in engines:
            each.beat()
