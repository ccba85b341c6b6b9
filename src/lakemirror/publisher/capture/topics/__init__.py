"""Debezium's topics in Kafka as change files: `lakemirror capture DB --from kafka://host:9092/prefix.*`.

    topics ─▶ messages of one table ─▶ the same folding as that of a database ─▶ a file, whose footer has the offsets

How far a table is, its newest file says: the next offset of each partition. Nothing is committed to Kafka.
"""
