"""Ranges of bytes that a read asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakemirror.service.refused import Refused
from lakemirror.service.storage.numbers import number_in

_FORM = re.compile(r"\s*bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*", re.ASCII)


@dataclass(frozen=True)
class ByteRange:
    """`start` to before `end`, of a file with `total` bytes."""

    start: int
    end: int
    total: int

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def content_range(self) -> str:
        """The value of the header `Content-Range`."""
        return f"bytes {self.start}-{self.end - 1}/{self.total}"


def range_of(headers: Mapping[str, str], total: int) -> ByteRange | None:
    """The range that the headers ask for, None for the whole file. Refused 416 `InvalidRange`.

    `x-ms-range` wins over `Range`. A form that is not `a-b`, `a-` or `-n` is ignored, as HTTP allows.
    """
    found = _FORM.fullmatch(headers.get("x-ms-range") or headers.get("Range") or "")
    if not found or not any(found.groups()):
        return None
    first, last = (number_in(each) if each else None for each in found.groups())
    if first is None:
        start, end = max(0, total - (last or 0)), total
    elif last is not None and last < first:
        return None
    else:
        start, end = first, total if last is None else min(last + 1, total)
    if start >= end:
        raise Refused(416, "InvalidRange", "The range is beyond the end.", {"Content-Range": f"bytes */{total}"})
    return ByteRange(start, end, total)
