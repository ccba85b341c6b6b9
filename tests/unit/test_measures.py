"""The house does not grow back unnoticed: the way of one change, and what makes code hard to find one's way in.

The limits are what was reached. Whoever needs more raises a limit here, and says why in the commit.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.source import nodes

SCRIPT = Path(__file__).parents[2] / "scripts" / "measures.py"


@pytest.fixture(scope="module")
def measures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measures", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["measures"] = module
    spec.loader.exec_module(module)
    return module


FOLLOWED = f"""
import sys, json, dataclasses
sys.path.insert(0, {str(SCRIPT.parent)!r})
import measures
met = []
def profile(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(str(measures.PACKAGE)):
        place = code.co_filename[len(str(measures.PACKAGE)) + 1 :]
        kinds = type(frame.f_locals["self"]).__mro__ if "self" in frame.f_locals else ()
        owner = next((kind.__name__ + "." for kind in kinds if code.co_name in vars(kind)), "")
        met.append([owner + code.co_name, place])
way = min((measures.way() for _ in range(3)), key=lambda its: its.functions)  # the first one begins
measures.upsert_one_row(profile)
print(json.dumps([dataclasses.asdict(way), met]))
"""


@pytest.fixture(scope="module")
def followed() -> Any:
    """The way of one upserted row, and the functions that another one meets: in a process of its own, because the
    profile would see what other tests left running."""
    ran = subprocess.run([sys.executable, "-c", FOLLOWED], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


def test_the_way_of_one_upserted_row(followed: Any) -> None:
    way = followed[0]
    assert way["files"] <= 76, way
    assert way["functions"] <= 516, way
    assert way["calls"] <= 850, way
    assert way["crossings"] <= 382, way


def test_files_functions_records_circles_and_names(measures: ModuleType) -> None:
    size = measures.size(nodes)
    assert not size.long_files, size.long_files
    assert not size.long_functions, size.long_functions
    assert not size.many_parameters, size.many_parameters
    assert not size.wide_records, size.wide_records
    assert not size.circles, size.circles
    assert not size.doubled_names, size.doubled_names


TOUR = Path(__file__).parents[2] / "docs/explanation/tour.md"


def test_an_apply_meets_the_stops_of_the_tour_in_their_order(followed: Any) -> None:
    met = [tuple(each) for each in followed[1]]
    stops = re.findall(r"^\| \d+ \| `([\w.]+)` \| `([\w/.]+)` \|", TOUR.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(stops) >= 12
    missing = [stop for stop in stops if stop not in met]
    assert not missing, "these stops are no longer on the way"
    places = [met.index(stop) for stop in stops]
    assert places == sorted(places), [stop for _, stop in sorted(zip(places, stops, strict=True))]
