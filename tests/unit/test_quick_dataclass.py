"""`quick_dataclass` makes what the standard dataclass makes, and what `lakemirror sync` imports is made by it."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from dataclasses import dataclass as standard
from dataclasses import field
from typing import Any

import pytest

from lakemirror.quick_dataclass import dataclass as quick


@quick(frozen=True)
class Point:
    """A class that can be pickled by its name."""

    x: int
    y: int = 2


def _both(frozen: bool) -> list[Any]:
    made = []
    for decorate in (standard, quick):

        class Thing:
            name: str
            size: int = 3
            tags: list[str] = field(default_factory=list, hash=False)
            note: str = field(default="n", compare=False, repr=False)
            counted: int = field(default=7, init=False)

        made.append(decorate(frozen=frozen)(Thing))
    return made


@pytest.mark.parametrize("frozen", [False, True])
def test_instances_behave_as_standard_ones(frozen: bool) -> None:
    seen = []
    for kind in _both(frozen):
        one, same, other = kind("a", 3, ["t"], "x"), kind("a", tags=["t"], note="y"), kind("a", 4)
        assert other.tags == [] and other.tags is not kind("a", 4).tags
        with pytest.raises(TypeError):
            kind()
        with pytest.raises(TypeError):
            kind("a", counted=1)
        changed = dataclasses.replace(one, size=9)
        seen.append(
            (
                repr(one), one == same, one == other, one != other, one == ("a", 3), changed.size, changed.note,
                dataclasses.asdict(one), [each.name for each in dataclasses.fields(kind)],
                dataclasses.is_dataclass(one), kind.__match_args__,
                hash(one) == hash(same) if frozen else kind.__hash__,
            )
        )  # fmt: skip
    assert seen[0] == seen[1]


def test_frozen_instances_refuse_changes() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert (point, {point: 1}[Point(1, 2)]) == (Point(1, 2), 1)
    assert pickle.loads(pickle.dumps(point)) == point


def test_own_methods_are_kept() -> None:
    @quick
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

    assert repr(Named("a")) == "a"
    with pytest.raises(TypeError):
        hash(Named("a"))


def test_an_order_is_that_of_the_fields() -> None:
    @quick(frozen=True, order=True)
    class Version:
        major: int
        minor: int = 0
        note: str = field(default="", compare=False)

    assert sorted([Version(2), Version(1, 5), Version(1)]) == [Version(1), Version(1, 5), Version(2)]
    assert Version(1, 0, "a") <= Version(1, 0, "b") and not Version(1) > Version(1) and Version(2) >= Version(1)
    with pytest.raises(TypeError):
        assert Version(1) < 2  # type: ignore[operator]


def test_inheritance_keeps_frozen_apart() -> None:
    with pytest.raises(TypeError, match="frozen"):

        @standard
        class Changeable(Point):
            z: int = 0

    @quick(frozen=True)
    class Space(Point):
        z: int = 0

    assert Space(1, z=3) == Space(1, 2, 3) and {Space(1)} == {Space(1, 2, 0)}


def test_what_a_pass_imports_is_made_by_it() -> None:
    script = (
        "import dataclasses, sys; made = [];"
        "old = dataclasses.dataclass;"
        "dataclasses.dataclass = lambda cls=None, /, **k: ("
        " made.append(sys._getframe(1).f_globals['__name__']) or old(cls, **k));"
        "import lakemirror.cli.sync, lakemirror.database;"
        "print(*sorted({each for each in made if each.startswith('lakemirror.')} - {'lakemirror.quick_dataclass'}))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
