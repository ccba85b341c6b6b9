"""CHECK constraints that a user put on a table: Spark evaluates them, as it would for a write of its own."""

from __future__ import annotations

from lakemirror.engines.row_work import FILE, ROW, BadRow, RowWork
from lakemirror.engines.spark.jobs import Jobs, Stage, spark_errors


def broken_constraint(jobs: Jobs, description: str, work: RowWork, stage: Stage) -> BadRow | None:
    """The first row for which a constraint does not hold, NULL included (Delta protocol, "CHECK constraints").

    `stage` makes the rows that come, with FILE and ROW. LakemirrorError `spark-job-failed`.
    """
    target = work.target
    if not target.constraints or not stage.units:
        return None
    from pyspark.sql import functions as F

    columns = ", ".join(f"`{each.name.replace('`', '``')}` {each.type}" for each in target.columns)
    broken = F.lit(None).cast("int")
    for number, (_, expression) in reversed(list(enumerate(target.constraints))):
        holds = F.coalesce(F.expr(expression).cast("boolean"), F.lit(False))
        broken = F.when(~holds, F.lit(number)).otherwise(broken)
    with jobs.described(description), spark_errors(description):
        rows = jobs.rows(stage, f"{columns}, {FILE} bigint, {ROW} bigint")
        first = rows.select(FILE, ROW, broken.alias("broken")).where("broken IS NOT NULL")
        found = first.agg(F.min(F.struct(FILE, ROW, "broken")).alias("first")).collect()[0]["first"]
    if found is None:
        return None
    name, expression = target.constraints[found["broken"]]
    file = next(unit.name for unit in work.changes if unit.number == found[FILE])
    row = found[ROW] + 1
    message = f"{file}, row {row}: the table's CHECK constraint {name} ({expression}) does not hold"
    return BadRow("constraint-violated", file, message, row)
