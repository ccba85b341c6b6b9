"""Which data files of a table are worth being written anew, by whom, and how large: pure decisions.

in the table's turn ─▶ `in_turn`: many small files, worn ones ───────────┐
at rest             ─▶ `at_rest`: small files; all vectors now and then ─┴▶ one piece at a time, without Spark
                    ─▶ `optimize_helps`: what is left for Spark's OPTIMIZE
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lakemirror.delta.log import Action
from lakemirror.delta.statistics import record_count

AT_LEAST = 16
"""Small files that are worth a commit in a table's turn."""

LARGEST = 8 << 20
"""Bytes of a small file."""

_LARGEST_WORN = 32 << 20
_WORN = 0.1  # of its rows deleted: it is written anew at the price of ten rows for each of them
_MOST_IN_PIECE = 64 << 20  # bytes that are merged at once
_MOST_AT_REST = 256 << 20  # bytes up to which all small files and vectors go without Spark: some seconds
_MOST_IN_TABLE = 1 << 30  # above it files of 64 MiB are small
_SMALLEST_FILE, _LARGEST_FILE = 16 << 20, 1 << 30  # what OPTIMIZE aims at
_DELETED = 0.05  # of their rows: OPTIMIZE writes a file anew above it


def in_turn(adds: Collection[Action]) -> list[Action]:
    """The next piece of what is worth it while changes come: small files, where they are many, and worn ones."""
    adds = [add for add in adds if _plain(add)]
    small = [add for add in adds if add["size"] <= LARGEST]
    worn = [add for add in adds if LARGEST < add["size"] <= _LARGEST_WORN and deleted_share(add) >= _WORN]
    return _piece([*(small if len(small) >= AT_LEAST else []), *worn])


def at_rest(adds: Collection[Action], *, all_vectors: bool) -> list[Action]:
    """The next piece of small files, if there are several, and of files with vectors: of all of them if it is time for
    that (`all_vectors`) or a twentieth of their rows is deleted, else of those of which so much is.

    All or none, since Spark reads a table with a single vector a quarter slower than one without. Where it is too much
    together, what `in_turn` finds.
    """
    small = [add for add in adds if add["size"] <= LARGEST and _plain(add)]
    vectors = [add for add in adds if add.get("deletionVector")]
    possible = [add for add in vectors if add["size"] <= _LARGEST_WORN and _plain(add)]
    worn = [add for add in possible if deleted_share(add) > _DELETED]
    all_go = len(possible) == len(vectors) and (all_vectors or _share_of(vectors) >= _DELETED)
    for with_vectors in (possible, worn) if all_go else (worn,):
        taken = {id(add) for add in with_vectors}
        chosen = [*with_vectors, *(add for add in small if len(small) > 1 and id(add) not in taken)]
        if sum(add["size"] for add in chosen) <= _MOST_AT_REST and sum(add["size"] for add in adds) <= _MOST_IN_TABLE:
            return _piece(chosen)
    return in_turn(adds)


def pieces(adds: Collection[Action], living: int) -> int:
    """How many files so many bytes become: several, which several cores read, and none that OPTIMIZE finds small."""
    return max(1, living * 2 // (3 * file_sizes(adds)["minFileSize"]))


def file_sizes(adds: Collection[Action]) -> dict[str, int]:
    """Delta's settings for compaction, in bytes: an eighth of the table a file, so that several cores read it and what
    is large enough is not written again each time; at most Delta's own gibibyte.
    """
    largest = min(max(sum(int(add["size"]) for add in adds) // 8, _SMALLEST_FILE), _LARGEST_FILE)
    return {"maxFileSize": largest, "minFileSize": largest // 2}


def optimize_helps(adds: Collection[Action]) -> bool:
    """True where Delta's OPTIMIZE may find something to do: otherwise Spark need not start for it."""
    small = file_sizes(adds)["minFileSize"]
    if sum(add["size"] < small for add in adds) > 1:
        return True
    return any(not _is_counted(add) or deleted_share(add) > _DELETED for add in adds if add.get("deletionVector"))


def deleted_share(add: Action) -> float:
    """The share of a file's rows that its vector deletes."""
    vector = add.get("deletionVector")
    return vector["cardinality"] / max(1, record_count(add) or 0) if vector else 0.0


def _share_of(adds: Collection[Action]) -> float:
    rows = sum(record_count(add) or 0 for add in adds)
    return sum(int(add["deletionVector"]["cardinality"]) for add in adds) / max(1, rows)


def _plain(add: Action) -> bool:
    """True for a file in the table's folder under its own name, whose rows are counted."""
    return "%" not in add["path"] and ":" not in add["path"] and _is_counted(add)


def _is_counted(add: Action) -> bool:
    return record_count(add) is not None


def _piece(adds: Sequence[Action]) -> list[Action]:
    """The smallest, as many as are merged at once; none where that would change nothing."""
    found, size = [], 0
    for add in sorted(adds, key=lambda add: int(add["size"])):
        size += add["size"]
        if size > _MOST_IN_PIECE:
            break
        found.append(add)
    return found if changes_something(found) else []


def changes_something(adds: Sequence[Action]) -> bool:
    """False for a single file without a vector: written anew it would be the same."""
    return len(adds) > 1 or any(add.get("deletionVector") for add in adds)
