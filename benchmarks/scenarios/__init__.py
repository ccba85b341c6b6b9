"""S1 to S10 and V1 to VP, the most telling first: a run whose time is over has left out the last ones."""

from __future__ import annotations

from benchmarks.scenarios.backlog import BACKLOGS
from benchmarks.scenarios.cold import Cold
from benchmarks.scenarios.initial import Initial, InitialText
from benchmarks.scenarios.restart import Restart
from benchmarks.scenarios.scenario import Data, Scenario, Size
from benchmarks.scenarios.steady import Steady
from benchmarks.scenarios.swarm import Swarm
from benchmarks.scenarios.vendor import VENDOR
from benchmarks.scenarios.warm import Warm, WarmUuids

_ORDER = (
    "S3",
    "S3w",
    "S3u",
    "S1",
    "S2",
    "S9",
    "S6",
    "S8",
    "S5",
    "S4",
    "S3t",
    "S3z",
    "S7",
    "S3L",
    "S10",
    "S1c",
    *(s.name for s in VENDOR),
)
_ALL = {
    s.name: s
    for s in (*BACKLOGS, Cold(), Initial(), InitialText(), Restart(), Steady(), Swarm(), Warm(), WarmUuids(), *VENDOR)
}

SCENARIOS: dict[str, Scenario] = {name: _ALL[name] for name in _ORDER}

__all__ = ["SCENARIOS", "Data", "Scenario", "Size"]
