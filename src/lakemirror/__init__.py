"""lakemirror: any program that can write a file gets live Delta tables.

    from lakemirror import MirroredDatabase

    MirroredDatabase("shop").sync()

The names below are the public interface, with those of `lakemirror.publisher` and `lakemirror.features`;
everything else may change.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, whose import takes a third of a short command's start
if TYPE_CHECKING:
    from typing import Any

    from lakemirror.api import MirroredDatabase, SyncResult, TableResult
    from lakemirror.errors import LakemirrorError, SetupError, TableError

__version__ = "0.1.0"
__all__ = ["LakemirrorError", "MirroredDatabase", "SetupError", "SyncResult", "TableError", "TableResult"]


def __getattr__(name: str) -> Any:
    # the publisher must not need Spark: what does is imported when it is asked for
    if name in ("LakemirrorError", "SetupError", "TableError"):
        from lakemirror import errors

        return getattr(errors, name)
    if name in __all__:
        from lakemirror import api as mirrored_database

        return getattr(mirrored_database, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
