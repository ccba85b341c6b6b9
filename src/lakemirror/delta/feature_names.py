"""The features of a protocol, and the lowest protocol for a set of features. Pure.

Rules: Delta protocol, "Writer Version Requirements", "Table Features"; the lowest form is Delta Spark's own: a pair
of numbers only if it means exactly the features, otherwise writer version 7 with a list.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from lakemirror.delta.log import Protocol

LEGACY: dict[str, tuple[int, int]] = {
    "appendOnly": (1, 2),
    "invariants": (1, 2),
    "checkConstraints": (1, 3),
    "changeDataFeed": (1, 4),
    "generatedColumns": (1, 4),
    "columnMapping": (2, 5),
    "identityColumns": (1, 6),
}
"""The features that version numbers stand for: the lowest reader and writer version of each."""

_PAIRS = ((1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6), (1, 6), (1, 5))


def implied(reader: int, writer: int) -> frozenset[str]:
    """The features that a protocol without lists means."""
    if writer >= 7:
        return frozenset()
    return frozenset(name for name, (r, w) in LEGACY.items() if w <= writer and r <= reader)


@lru_cache(64)
def features_of(protocol: Protocol) -> frozenset[str]:
    """All features of a table, listed or implied by its numbers."""
    listed = (protocol.reader_features or frozenset()) | (protocol.writer_features or frozenset())
    return frozenset(listed) | implied(protocol.reader, protocol.writer)


def lowest(features: Iterable[str], reader_features: Iterable[str]) -> Protocol:
    """The lowest protocol for exactly these features; `reader_features` are those that readers must know.

    columnMapping alone needs reader version 2 (and is then not listed for readers); any other reader feature needs 3.
    """
    wanted = frozenset(features)
    for readers in wanted & frozenset(reader_features):
        if readers not in LEGACY:
            known = wanted & frozenset(reader_features)
            return Protocol(3, 7, known, wanted)
    reader = 2 if "columnMapping" in wanted else 1
    for r, w in _PAIRS:
        if r == reader and implied(r, w) == wanted:
            return Protocol(r, w)
    return Protocol(reader, 7, None, wanted)


def without(protocol: Protocol, dropped: Iterable[str], reader_features: Iterable[str]) -> Protocol:
    """The lowest protocol for what is left of a table's features."""
    return lowest(features_of(protocol) - frozenset(dropped), reader_features)


def pure(features: Iterable[str], without: Iterable[str] = ()) -> Protocol | None:
    """The smallest protocol of two plain numbers that holds these features, with more implied where it must, and none
    of those it is to be without.

    None where a feature needs a list. Writers that know only numbers can write it if they know the number.
    """
    wanted = frozenset(features)
    if not wanted <= LEGACY.keys():
        return None
    banned = frozenset(without)
    fitting = [(r, w) for r, w in _PAIRS if w != 5 or r == 2 if wanted <= implied(r, w) and not implied(r, w) & banned]
    return Protocol(*min(fitting, key=lambda pair: (pair[0], pair[1]))) if fitting else None


def needs_lists(before: Protocol, after: Protocol) -> bool:
    """True where plain numbers become a list of features: clients that know only numbers lose the table."""
    return before.writer < 7 <= after.writer


def shown(protocol: Protocol) -> str:
    """One line: `(3, 7) [appendOnly, deletionVectors]`."""
    listed = (protocol.reader_features or frozenset()) | (protocol.writer_features or frozenset())
    names = f" [{', '.join(sorted(listed))}]" if protocol.writer >= 7 else ""
    return f"({protocol.reader}, {protocol.writer}){names}"
