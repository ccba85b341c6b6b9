"""Decides which data files of a table to rewrite, and into how many files. No I/O.

after an apply ─▶ `in_turn`: many small files, files with many deleted rows ──────────┐
               ─▶ `in_between`: a few small files, where Spark is slower for them ─────┤
               ─▶ `in_tiers`: files with rows that every apply looks up ───────────────┤
idle table     ─▶ `when_idle`: small files; all vectors now and then; then large tables ─┴▶ one piece at a time
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from typing import TypeAlias

from lakemirror.delta.log import Action
from lakemirror.delta.statistics import record_count

AT_LEAST = 16
"""Small files that are worth a commit right after an apply."""

LARGEST = 8 << 20
"""Bytes of a small file."""

_OPEN_COST = 4 << 20
"""Bytes that Spark counts for each file beside its size, when it divides a table among its tasks
(`spark.sql.files.openCostInBytes`). Files of a few rows count as much as files of 4 MiB: twenty of them get a task of
their own, and the other cores read nothing while one core reads the large files.
"""
_UNBALANCED = 1 / 8  # of a table's bytes, which open costs of small files may be
_FEW = 4  # small files that a table may have in any case
_FEWEST_BYTES = 16 << 20  # of a table: reading less takes no longer than planning the query
_LARGEST_WORN = 32 << 20
_WORN = 0.1  # of its rows deleted: each deleted row costs ten rows written
MOST_IN_PIECE = 64 << 20
"""Bytes of files that are rewritten in one commit while applies of the table wait."""

_MOST_ROWS_IN_TURN = 1 << 20  # that are rewritten while changes come, whatever few bytes they take: half a second
_FEW_ROWS, _FEW_BYTES = 1 << 16, 3 << 20  # that a small apply waits for: a tenth of a second
_WORTH = 8  # small files in so little
_MANY = 256  # small files that a history table may have while changes come
_HALF = 1 / 2  # of its rows deleted
_MANY_DELETED = 64 << 10  # rows of one file: fewer cost a look-up nothing
_MOST_AT_REST = 256 << 20  # bytes up to which all small files and vectors go: some seconds
_MOST_IN_TABLE = 1 << 30  # above it files of 64 MiB are small
_SMALLEST_FILE, _LARGEST_FILE = 16 << 20, 128 << 20
_DELETED = 0.05  # of their rows: files of large tables are rewritten above it

Weight: TypeAlias = Callable[[Action], int]


def most_small_files(size: int, *, rows_are_read: bool = False) -> int:
    """How many small files a table of `size` bytes may have before they are merged while changes come.

    `rows_are_read`: applies read old rows, from about as many files as there are.
    """
    if rows_are_read:
        return _FEW
    return AT_LEAST if size < _FEWEST_BYTES else max(_FEW, min(AT_LEAST, int(size * _UNBALANCED) // _OPEN_COST))


def in_turn(adds: Collection[Action]) -> list[Action]:
    """The next piece to rewrite while changes arrive: small files if there are many, files with many deleted rows."""
    small = [add for add in adds if add["size"] <= LARGEST and _is_counted(add)]
    middling = [add for add in adds if LARGEST < add["size"] <= _LARGEST_WORN and add.get("deletionVector")]
    worn = [add for add in middling if _is_counted(add) and deleted_share(add) >= _WORN]
    return _piece([*(small if len(small) >= AT_LEAST else []), *worn], _MOST_ROWS_IN_TURN)


def in_short_turn(adds: Collection[Action]) -> list[Action]:
    """The same of files that few applies look up: some of the smallest, as much as a small apply can wait for. Larger
    ones wait until the table is idle, or has too many small files."""
    small = [add for add in adds if add["size"] <= LARGEST and _is_counted(add)]
    if len(small) >= _MANY:
        return in_turn(adds)
    found = _piece(small, _FEW_ROWS, most_bytes=_FEW_BYTES)
    return found if len(found) >= _WORTH else []


def in_between(adds: Collection[Action], *, rows_are_read: bool = False) -> list[Action]:
    """The next piece where a few small files make Spark read the large ones by few tasks (`most_small_files`).

    In each partition the smallest files, and each larger one that is at most twice as large as those before it
    together. So a row is written again only after about as many new rows have come. With them go files of which half is
    deleted.
    """
    small = [add for add in adds if add["size"] <= LARGEST and _is_counted(add)]
    few = most_small_files(sum(int(add["size"]) for add in adds), rows_are_read=rows_are_read)
    groups = [_smallest(group) for group in _by_partition(small)] if len(small) >= few else []
    fewer = sum(len(group) - 1 for group in groups if group)
    return _lasting([*_half_deleted(adds), *(add for group in groups for add in group if 2 * fewer >= few)])


def in_tiers(adds: Collection[Action]) -> list[Action]:
    """The next piece of files with rows that every apply looks up, such as open versions, while changes arrive.

    Files of which half is deleted, if that is much; and if there are a few of about one size, by living rows, these and
    all smaller ones. So an apply meets few files, and about as many deleted rows in them as living ones, and a row is
    written again only after about as many have come or been deleted. A file that has half of the most rows of a piece
    is large enough.
    """
    counted = [add for add in adds if _is_counted(add)]
    small = [
        add for add in counted if 2 * _living(add) <= _MOST_ROWS_IN_TURN and 2 * living_bytes(add) <= MOST_IN_PIECE
    ]
    return _lasting([*_half_deleted(adds), *_tier(small)])


def when_idle(adds: Collection[Action], *, all_vectors: bool) -> list[Action]:
    """The next piece of an idle table, empty when nothing is left to do.

    Small files, if a partition has several, and files with vectors: all of them if it is time for that (`all_vectors`)
    or a twentieth of their rows is deleted, else those of which so much is. All or none, since Spark reads a table
    with a single vector a quarter slower than one without. Where that is too much together, what `in_turn` finds, then
    `in_large_table`.
    """
    small = _several([add for add in adds if add["size"] <= LARGEST and _is_counted(add)])
    vectors = [add for add in adds if add.get("deletionVector")]
    possible = [add for add in vectors if add["size"] <= _LARGEST_WORN and _is_counted(add)]
    worn = [add for add in possible if deleted_share(add) > _DELETED]
    all_go = len(possible) == len(vectors) and (all_vectors or _share_of(vectors) >= _DELETED)
    for with_vectors in (possible, worn) if all_go else (worn,):
        taken = {id(add) for add in with_vectors}
        chosen = [*with_vectors, *(add for add in small if id(add) not in taken)]
        if sum(add["size"] for add in chosen) <= _MOST_AT_REST and sum(add["size"] for add in adds) <= _MOST_IN_TABLE:
            return _piece(chosen) or in_large_table(adds)
    return in_turn(adds) or in_large_table(adds)


def in_large_table(adds: Collection[Action]) -> list[Action]:
    """The next piece of what `when_idle` leaves: a file of which a twentieth is deleted, whatever its size, or files of
    one partition that are small for the table.
    """
    for add in adds:
        if add.get("deletionVector") and _is_counted(add) and deleted_share(add) > _DELETED:
            return [add]
    target, smallest = file_size(adds), file_size(adds) // 2
    for group in _by_partition(add for add in adds if add["size"] < smallest and _is_counted(add)):
        piece: list[Action] = []
        for add in sorted(group, key=lambda add: int(add["size"])):
            if piece and sum(each["size"] for each in piece) + add["size"] > target:
                break
            piece.append(add)
        if len(piece) > 1 and sum(add["size"] for add in piece) >= smallest:
            return piece
    return []


def is_heavy(files: Collection[Action]) -> bool:
    """True for a piece that is too large for an apply to wait for: an apply cancels it."""
    return sum(int(add["size"]) for add in files) > MOST_IN_PIECE


def pieces(adds: Collection[Action], living: int) -> int:
    """How many files so many bytes become: a power of two, and none that is small for the table.

    Spark gives each task whole files where they are smaller than the share of a core: three equal files take two cores
    a third longer than two or four.
    """
    most = living * 4 // (5 * (file_size(adds) // 2))  # a file may become a fifth smaller before it is small
    return 1 << max(0, most.bit_length() - 1)


def file_size(adds: Collection[Action]) -> int:
    """Bytes that a file should have: an eighth of the table, so that several cores read it and what is large enough
    is not written again each time; 16 to 128 MiB.
    """
    return min(max(sum(int(add["size"]) for add in adds) // 8, _SMALLEST_FILE), _LARGEST_FILE)


def deleted_share(add: Action) -> float:
    """The share of a file's rows that its vector deletes."""
    vector = add.get("deletionVector")
    return float(vector["cardinality"]) / max(1, record_count(add) or 0) if vector else 0.0


def living_bytes(add: Action) -> int:
    """About how many bytes a file's living rows take."""
    return int(add["size"] * (1 - deleted_share(add)))


def changes_something(adds: Sequence[Action]) -> bool:
    """False if each partition has a single file without a vector: a rewrite would give the same file."""
    return any(add.get("deletionVector") for add in adds) or bool(_several(adds))


def _share_of(adds: Collection[Action]) -> float:
    rows = sum(record_count(add) or 0 for add in adds)
    return sum(int(add["deletionVector"]["cardinality"]) for add in adds) / max(1, rows)


def _is_counted(add: Action) -> bool:
    """True for a file in the table's folder whose rows are counted."""
    return ":" not in add["path"] and not add["path"].startswith("/") and record_count(add) is not None


def _by_partition(adds: Iterable[Action]) -> list[list[Action]]:
    groups: dict[tuple[tuple[str, str | None], ...], list[Action]] = defaultdict(list)
    for add in adds:
        groups[tuple(sorted((add.get("partitionValues") or {}).items()))].append(add)
    return list(groups.values())


def _several(adds: Iterable[Action]) -> list[Action]:
    """The files of partitions that have more than one of them."""
    return [add for group in _by_partition(adds) if len(group) > 1 for add in group]


def _bytes(add: Action) -> int:
    return int(add["size"])


def _rows(add: Action) -> int:
    return record_count(add) or 0


def _living(add: Action) -> int:
    vector = add.get("deletionVector")
    return _rows(add) - (int(vector["cardinality"]) if vector else 0)


def _half_deleted(adds: Iterable[Action]) -> list[Action]:
    """The files of which half is deleted, if these are many rows: each of them costs at most one row written."""
    counted = (add for add in adds if _is_counted(add) and deleted_share(add) >= _HALF)
    return [add for add in counted if _rows(add) - _living(add) >= _MANY_DELETED]


def _lasting(adds: Iterable[Action]) -> list[Action]:
    """As many of these as are rewritten while changes come, by their living rows; each is taken once."""
    return _piece(list({id(add): add for add in adds}.values()), _MOST_ROWS_IN_TURN, weights=(_living, living_bytes))


def _tier(adds: Iterable[Action]) -> list[Action]:
    """The smallest files, by living rows, up to the first few of which each has at most twice as many rows as those
    before it together; empty if there are no such few."""
    found: list[Action] = []
    group = rows = 0
    for add in sorted(adds, key=_living):
        if _living(add) > 2 * rows:
            if group >= _FEW:
                break
            group = 0
        found.append(add)
        group, rows = group + 1, rows + _living(add)
    return found if group >= _FEW else []


def _smallest(adds: Iterable[Action]) -> list[Action]:
    """The smallest files, each at most twice as large as those before it together; empty for a single one. A file that
    is much smaller than all others is left out: it must not keep them from being merged.
    """
    found: list[Action] = []
    size = 0
    for add in sorted(adds, key=_bytes):
        if found and int(add["size"]) > 2 * size:
            if len(found) > 1:
                break
            found, size = [], 0
        found.append(add)
        size += int(add["size"])
    return found if len(found) > 1 else []


def _piece(
    adds: Sequence[Action], most_rows: float = inf, most_bytes: int = 0,
    weights: tuple[Weight, Weight] = (_rows, _bytes),
) -> list[Action]:  # fmt: skip
    """The smallest, as many as are rewritten in one commit; none where that would change nothing. `weights`: how the
    rows and the bytes of a file count; `most_bytes` 0: MOST_IN_PIECE."""
    found, size, rows = [], 0, 0
    for add in sorted(adds, key=weights[1]):
        size, rows = size + weights[1](add), rows + weights[0](add)
        if size > (most_bytes or MOST_IN_PIECE) or rows > most_rows:
            break
        found.append(add)
    return found if changes_something(found) else []
