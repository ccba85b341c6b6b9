"""A database's own change log as change files: `lakemirror capture`.

    database's log ─▶ Debezium ─▶ envelopes ─▶ changes of each table ─▶ Arrow rows with markers ─▶ a publisher's files

`capture.py` is the life of one capture. What it has published says how far it is: positions are in the files' footers.
Rules: sources.md of the contract.
"""
