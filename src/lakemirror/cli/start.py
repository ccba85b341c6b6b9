"""What makes a command start faster: most of a short command's time is imports."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator


def without_blas_threads() -> None:
    """Keeps numpy from starting a thread for each core: lakemirror does no linear algebra. Call before numpy's import.

    The threads of OpenBLAS wait in a loop for work, so they would take time from the import of pyarrow.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Pauses the garbage collector while the block imports modules: what they make is used until the process ends.

    So the collector does not look at those objects later, either.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.enable()
