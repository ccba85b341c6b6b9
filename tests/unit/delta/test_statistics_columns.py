"""The columns with statistics, as a table's properties choose them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lakemirror.delta.statistics_columns import COUNT, NAMES, StatisticsColumns, statistics_columns
from lakemirror.engines.kernels.nested_types import indexed_leaves
from lakemirror.engines.target import target_of

LEAVES = [("id",), ("Place", "City"), ("Place", "at", "x"), ("place.city",), ("tags",), ("v",)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("  ", ()),
        ("id", (("id",),)),
        ("id,v", (("id",), ("v",))),
        (" ID , Place . City ", (("id",), ("place", "city"))),
        ("`place.city`, `a``b`.`c,d`", (("place.city",), ("a`b", "c,d"))),
        ("id,", None),
        (",id", None),
        ("a..b", None),
        ("a.", None),
        ("two words", None),
        ("`open", None),
        ("``", None),
    ],
)
def test_names(text: str, names: tuple[tuple[str, ...], ...] | None) -> None:
    assert statistics_columns({NAMES: text}).names == names


@pytest.mark.parametrize(("text", "count"), [("-1", -1), ("0", 0), ("3", 3), ("-2", 32), ("many", 32), ("", 32)])
def test_counts(text: str, count: int) -> None:
    assert statistics_columns({COUNT: text}) == StatisticsColumns(None, count)


@pytest.mark.parametrize(
    ("configuration", "chosen"),
    [
        ({}, LEAVES),
        ({COUNT: "2"}, LEAVES[:2]),
        ({COUNT: "0"}, []),
        ({COUNT: "-1"}, LEAVES),
        ({NAMES: ""}, []),
        ({NAMES: "v,id"}, [("id",), ("v",)]),
        ({NAMES: "place"}, LEAVES[1:3]),
        ({NAMES: "PLACE.AT"}, LEAVES[2:3]),
        ({NAMES: "`Place.City`"}, LEAVES[3:4]),
        ({NAMES: "id.x, nothing"}, []),
        ({NAMES: "v", COUNT: "1"}, LEAVES[5:]),
        ({NAMES: "not a list", COUNT: "1"}, LEAVES[:1]),
    ],
)
def test_chosen_leaves(configuration: dict[str, str], chosen: list[tuple[str, ...]]) -> None:
    given = statistics_columns(configuration).chosen(LEAVES)
    assert [leaf for leaf, is_chosen in zip(LEAVES, given, strict=True) if is_chosen] == chosen


def test_as_many_as_there_are() -> None:
    leaves = [(f"c{number}",) for number in range(100)]
    assert sum(statistics_columns({}).chosen(leaves)) == 32
    assert sum(statistics_columns({COUNT: "-1"}).chosen(leaves)) == 100
    assert sum(statistics_columns({NAMES: ",".join(name for (name,) in leaves)}).chosen(leaves)) == 100


@pytest.mark.parametrize("mode", ["none", "name"])
def test_names_are_logical_and_statistics_have_the_names_of_data_files(mode: str) -> None:
    def field(name: str, kind: Any) -> dict[str, Any]:
        metadata = {"delta.columnMapping.id": len(name), "delta.columnMapping.physicalName": f"p-{name}"}
        return {"name": name, "type": kind, "nullable": True, "metadata": metadata if mode == "name" else {}}

    tags = {"type": "array", "elementType": "string", "containsNull": True}
    inner = {"type": "struct", "fields": [field("City", "string"), field("tags", tags)]}
    schema = {"type": "struct", "fields": [field("id", "long"), field("day", "date"), field("Place", inner)]}
    before = "p-" if mode == "name" else ""
    for configuration, paths in [
        ({NAMES: "place.city,ID"}, [("id",), ("Place", "City")]),
        ({NAMES: "place"}, [("Place", "City"), ("Place", "tags")]),
        ({NAMES: "p-id, day"}, []),  # a partition column has none
        ({COUNT: "2"}, [("id",), ("Place", "City")]),
    ]:
        metadata = {
            "schemaString": json.dumps(schema), "partitionColumns": ["day"],
            "configuration": {"delta.columnMapping.mode": mode, **configuration},
        }  # fmt: skip
        leaves = indexed_leaves(target_of("t", metadata))
        assert [leaf.path for leaf in leaves] == [tuple(f"{before}{step}" for step in path) for path in paths]
