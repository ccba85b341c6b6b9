"""A database's own change log as change files: `lakemirror capture`.

    database's log ─▶ Debezium ─▶ envelopes ─▶ changes of each table ─▶ Arrow rows with markers ─▶ a publisher's files

`database_capture.py` is the life of one capture. The footers of published files say how far it is.
Rules: sources.md of the contract.
"""
