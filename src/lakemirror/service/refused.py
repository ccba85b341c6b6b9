"""The one way in which a request to the service is refused, on every plane."""

from __future__ import annotations

from collections.abc import Mapping


class Refused(Exception):
    """A request that is answered with an error: status, the vendor's error code, one sentence, further headers."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})
