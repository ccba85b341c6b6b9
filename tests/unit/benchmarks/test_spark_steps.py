"""The steps of a Spark cell: jobs, the driver between them, and failed attempts, in order."""

from __future__ import annotations

import logging

from benchmarks.peers.lakemirror import _SparkSteps

from lakemirror.errors import LakemirrorError


def test_jobs_and_failed_attempts_in_order() -> None:
    jobs = logging.getLogger("lakemirror.engines.spark.jobs")
    level = logging.getLogger("lakemirror").level
    with _SparkSteps() as steps:
        jobs.debug("%s: %d tasks, %.1f s", "lakemirror: orders: read keys", 2, 1.5)
        logging.getLogger("lakemirror").debug("%s: %s", "orders", LakemirrorError("spark-job-failed", "a task died"))
        logging.getLogger("lakemirror").debug("%s: %s: %s", "orders", "spark", "the setting says so")
        jobs.debug("%s: %d tasks, %.1f s", "lakemirror: orders: read keys", 2, 2.5)
    found = steps.seconds()
    assert [what for what, _ in found] == [
        "driver", "read keys", "driver", "orders: spark-job-failed: a task died", "driver", "read keys", "driver",
    ]  # fmt: skip
    assert [seconds for what, seconds in found if what == "read keys"] == [1.5, 2.5]
    assert logging.getLogger("lakemirror").level == level
