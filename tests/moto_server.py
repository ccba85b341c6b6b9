"""moto's S3 server with puts made one at a time: moto itself looks whether a key is there, then puts it, so that of two
writers who put "only if absent" at the same moment both may win. No store may do that (`store-unsafe`).

python tests/moto_server.py -H HOST -p PORT
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from moto import backends
from moto.core import errors
from moto.s3.responses import S3Response
from moto.server import main

_ONE = threading.Lock()


def _one_at_a_time(name: str) -> None:
    true = getattr(S3Response, name)

    def act(self: Any, *given: Any, **named: Any) -> Any:
        with _ONE:
            return true(self, *given, **named)

    setattr(S3Response, name, act)


def _look_once() -> None:
    """moto lists its own package for each request, and makes its table of errors for each error: half of its time."""
    modules = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: modules
    errors.ErrorLookupFactory = functools.cache(errors.ErrorLookupFactory)  # type: ignore[assignment, misc]


if __name__ == "__main__":
    _look_once()
    for each in ("put_object", "copy_object", "delete_object"):
        _one_at_a_time(each)
    main()
