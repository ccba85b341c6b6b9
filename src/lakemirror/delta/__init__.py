"""The Delta protocol without a JVM: log, snapshot, commit, checkpoint, deletion vectors, statistics.

This package knows nothing about mirroring.
"""
