"""What a capture needs to know of MariaDB and MySQL: tables and types, initial loads, the binary log.

    catalog: tables, columns, keys ─▶ snapshot with its position ─▶ load ─▶ binary log: events ─▶ rows ─▶ batches

The log is read by this process itself: no Java, nothing that the server keeps for us. Why:
docs/decisions/051-the-binary-log.md.
"""
