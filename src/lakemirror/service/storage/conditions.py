"""Conditions of a request: whether its act may happen to what is there now (service.md section 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from lakemirror.service.refused import Refused
from lakemirror.service.storage.storage_answers import forbidden
from lakemirror.storage.served_files import Found


@dataclass(frozen=True)
class Conditions:
    """The four conditional headers; "" for one that is not sent. ETags are without quotes. Times are Unix seconds.

    `creates_only`: the caller may create where nothing is, and may not overwrite.
    """

    match: str = ""
    none_match: str = ""
    modified_since: int | None = None
    unmodified_since: int | None = None
    creates_only: bool = False

    def verdict(self, etag: str | None, modified_ns: int, *, reading: bool) -> int:
        """The status that refuses the request: 304, 409 or 412; 0 where it may go on.

        `etag`: of what is there, None for nothing. 409 means that something exists and `If-None-Match: *` forbids it.
        """
        if self.match and not (etag is not None and _fits(self.match, etag)):
            return 412
        if self.unmodified_since is not None and etag is not None and modified_ns // 10**9 > self.unmodified_since:
            return 412
        if self.none_match and etag is not None and _fits(self.none_match, etag):
            if reading:
                return 304
            return 409 if self.none_match == "*" else 412
        if self.modified_since is not None and etag is not None and modified_ns // 10**9 <= self.modified_since:
            return 304 if reading else 412
        return 0

    def check_write(self, found: Found | None, exists_code: str) -> None:
        """Refused 409 with this code, 412 `ConditionNotMet`, or 403, where the write may not happen."""
        self.check_overwrite(found is not None)
        status = (
            self.verdict(found.etag, found.modified_ns, reading=False)
            if found
            else self.verdict(None, 0, reading=False)
        )
        if status == 409:
            raise Refused(409, exists_code, "The path exists already.")
        if status:
            raise Refused(412, "ConditionNotMet", "The condition of the request does not hold.")

    def check_overwrite(self, exists: bool) -> None:
        """Refused 403 where something exists that the caller may not overwrite."""
        if exists and self.creates_only:
            raise forbidden("The SAS allows to create here, and not to overwrite.")


def conditions_of(headers: Mapping[str, str], prefix: str = "") -> Conditions:
    """The conditions that the headers carry. `prefix`: `x-ms-source-` for those of a rename's or copy's source."""
    return Conditions(
        _unquoted(headers.get(f"{prefix}If-Match", "")),
        _unquoted(headers.get(f"{prefix}If-None-Match", "")),
        _time(headers.get(f"{prefix}If-Modified-Since")),
        _time(headers.get(f"{prefix}If-Unmodified-Since")),
    )


def _fits(wanted: str, etag: str) -> bool:
    return wanted == "*" or etag in [_unquoted(each) for each in wanted.split(",")]


def _unquoted(text: str) -> str:
    return text.strip().removeprefix("W/").strip('"')


def _time(text: str | None) -> int | None:
    try:
        return int(parsedate_to_datetime(text).timestamp()) if text else None
    except (ValueError, OverflowError):
        return None
