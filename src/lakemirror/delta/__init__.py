"""The Delta protocol without a JVM: log, snapshot, commit, checkpoint, deletion vectors, statistics.

It knows nothing of mirroring.
"""
