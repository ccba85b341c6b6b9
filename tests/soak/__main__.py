"""python -m tests.soak --seed 7 --minutes 30 [--into FOLDER] [--spark | --everything]: 0 without a finding, else 3."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.soak.soak import soak

parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Random publishers, faults, other writers.")
parser.add_argument("--seed", type=int, default=int(time.time()))
parser.add_argument("--minutes", type=float, default=30.0)
parser.add_argument("--steps", type=int, default=0, help="End after so many steps; 0: by time alone.")
parser.add_argument("--into", type=Path, default=None, help="Where database and logs are kept; must not exist.")
parser.add_argument("--spark", action="store_true", help="Spark is another writer, and engines may start it.")

parser.add_argument("--everything", action="store_true", help="All kinds of tables and steps, even without Spark.")

if __name__ == "__main__":
    given = parser.parse_args()
    into = given.into or Path(tempfile.mkdtemp(prefix="lakemirror-soak-"))
    print(f"seed {given.seed}, log {into / 'steps.jsonl'}", flush=True)
    outcome = soak(
        into, given.seed, given.minutes * 60, spark=given.spark, everything=given.everything, most_steps=given.steps
    )
    print(outcome.text())
    raise SystemExit(3 if outcome.findings else 0)
