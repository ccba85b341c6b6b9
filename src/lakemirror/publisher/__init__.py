"""Publish change files into a landing zone, from Python and without a JVM.

`Landing(db).table("orders", keys=["id"])` gives a table folder; its methods take rows in any Arrow form and leave one
complete, numbered file. Nothing here reads the Delta tables: what was published is known from the landing zone alone.

    rows (sources) ─▶ table_writer: the table's types ─▶ change_writer ─▶ sequence: one file, the next number (folders)
"""

from lakemirror.publisher.buffer import Buffer
from lakemirror.publisher.landing import Landing
from lakemirror.publisher.landing_table import LandingTable, Published

__all__ = ["Buffer", "Landing", "LandingTable", "Published"]
