"""Checks CHECK constraints of a table with Spark, as Spark does for its own writes.

NOT NULL is checked together with them, so that the error names the first bad row of both kinds.
"""

from __future__ import annotations

import re

from lakemirror.engines.bad_changes import null_row, place_of
from lakemirror.engines.row_work import ROW, RowWork
from lakemirror.engines.spark.jobs import Jobs, Stage, amounts, spark_errors
from lakemirror.errors import Bad, Rejected


def check_constraints(jobs: Jobs, description: str, work: RowWork, stage: Stage) -> None:
    """Raises Bad for the first row that breaks a constraint. Nothing is checked without CHECK constraints.

    A condition that is NULL is broken, too (Delta protocol, "CHECK constraints"). If a row also breaks NOT NULL, that
    is reported. `stage`: makes the rows to insert, with their positions among all changes as ROW. Error:
    `spark-job-failed`.
    """
    target = work.target
    if not target.constraints or not stage.units:
        return
    from pyspark.sql import functions as F

    columns = ", ".join(f"`{each.name.replace('`', '``')}` {each.type}" for each in target.columns)
    required = [each.name for each in target.columns if not each.nullable]
    broken = F.lit(None).cast("int")
    for number, (_, expression) in reversed(list(enumerate(target.constraints))):
        holds = F.coalesce(F.expr(expression).cast("boolean"), F.lit(False))
        broken = F.when(~holds, F.lit(number + len(required))).otherwise(broken)
    for number, column in reversed(list(enumerate(required))):
        is_null = F.expr(f"`{column.replace('`', '``')}` IS NULL")
        broken = F.when(is_null, F.lit(number)).otherwise(broken)
    with jobs.described(f"{description}{amounts(stage)}"), spark_errors(description):
        rows = jobs.rows(stage, f"{columns}, {ROW} bigint")
        breaking = rows.select(ROW, broken.alias("broken")).where("broken IS NOT NULL")
        first = breaking.agg(F.min(F.struct(ROW, "broken")).alias("first")).collect()[0]["first"]
    if first is None:
        return
    file, row = place_of(work.changes, first[ROW])
    if first["broken"] < len(required):
        raise Bad(null_row(file, row, required[first["broken"]]))
    name, expression = target.constraints[first["broken"] - len(required)]
    message = f"{file}, row {row}: the table's CHECK constraint {name} ({expression}) does not hold"
    named = [each.name for each in target.columns if _names(expression, each.name)]
    raise Bad(Rejected("constraint-violated", message, file, row, named[0] if len(named) == 1 else None))


def _names(expression: str, column: str) -> bool:
    """True if a SQL expression seems to name the column, quoted or not."""
    quoted = re.escape("`" + column.replace("`", "``") + "`")
    return re.search(rf"{quoted}|(?<![\w`.']){re.escape(column)}(?![\w`'(])", expression, re.IGNORECASE) is not None
