"""What is noted about the request under way, for its log line, its audit record and its metrics."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from lakemirror.service.interface import Caller


@dataclass
class RequestNotes:
    """`operation`: one of a bounded set of names. `refused`: the error code of a refusal. `uploaded`: bytes of
    body that were taken in. `parts`: path and status of each part of a batch. `granted`: what the audit log says of
    credentials that were given."""

    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    operation: str = ""
    caller: Caller | None = None
    refused: str = ""
    workspace: str = ""
    database: str = ""
    uploaded: int = 0
    parts: list[tuple[str, int]] = field(default_factory=list)
    granted: Mapping[str, str] = field(default_factory=dict)


_NOTES: ContextVar[RequestNotes] = ContextVar("lakemirror_request")


def begin_notes() -> RequestNotes:
    """New notes for the request that this task handles."""
    made = RequestNotes()
    _NOTES.set(made)
    return made


def notes() -> RequestNotes:
    """The notes of the request that this task handles."""
    try:
        return _NOTES.get()
    except LookupError:
        return begin_notes()
