"""A whole content becomes the changes since the last one: for sources that know no change log.

    given content ─▶ against the state: same, changed, new, gone ─▶ one change file ─▶ the new state

The state is written after its change file. A crash in between leaves a file that the state does not know, as any
other writer's file does: every key that such files touch counts as different. It is published again, as an update or
a delete, and those may be repeated without harm: afterwards the table holds exactly the given row, or none. Rows are
published as inserts only where no file can have brought their key.

A large content is a file of the table folder while it is compared, half a million rows, or 256 MiB, at a time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.keys.key_values import key_bucket
from lakemirror.publisher import sequence, snapshot_state
from lakemirror.publisher.change_writer import DELETE, INSERT, MARKER_COLUMN, UPDATE
from lakemirror.publisher.disk_rows import DiskRows
from lakemirror.publisher.folders.table_folder import TableFolder
from lakemirror.publisher.published_rows import parts_of
from lakemirror.publisher.row_keys import arange, distinct, named, positions, whole
from lakemirror.publisher.snapshot_state import State
from lakemirror.publisher.table_types import in_type, wider
from lakemirror.publisher.table_writer import Published, TableWriter

ATTEMPTS = 100


def publish_snapshot(table: TableWriter, rows: Any) -> Published | None:
    """Publishes what differs between this content and the last one; None where nothing does.

    The first content is published as an initial load. Errors beside those of `LandingTable`: `keys-not-unique`,
    `type-changed`, and `snapshot-state-lost` where files were published that are gone and of which no state tells.
    """
    given = _gathered(table, rows)
    for _ in range(ATTEMPTS):
        numbers, keys = table.known()
        if not keys:
            table.require_keys()
        content = _with_keys_spelled(given, keys)
        newest = 0 if table.starts_again else numbers.newest()
        content = table.in_types_now(content, newest)
        state, content = _in_types_of_both(_last_state(numbers, newest, content), content, numbers.folder.path.name)
        touched = _touched(numbers, range(state.number + 1, newest + 1), content, keys)
        difference = difference_of(state, content, touched, keys, numbers.folder) if newest else _all_new(content, keys)
        if difference.repeated:
            raise LakemirrorError(
                "keys-not-unique", f"{table.name}: {difference.repeated} rows of the snapshot repeat a key"
            )
        try:
            published = _publish(table, difference, newest)
        except LakemirrorError as error:
            if error.code == "publish-conflict" and numbers.folder.is_there():
                continue  # another writer took the number: its file counts too
            raise
        number = newest if published is None else published.number
        if number != state.number:
            _write_state(numbers, state, content, difference, number)
        return published
    raise LakemirrorError("publish-conflict", f"{table.name}: other publishers took every number first")


@dataclass(frozen=True)
class Difference:
    """`changes` carry markers, unless all is new; `added` and `gone` are the new state's patch.

    `repeated`: how many rows of the content have a key that another row has.
    """

    changes: pa.Table
    added: pa.Table
    gone: pa.Array
    repeated: int


def compare(state: State, content: pa.Table, touched: pa.Table | None, keys: Sequence[str]) -> Difference:
    """What must be published so that the state becomes the content; pure.

    `touched`: keys that files brought of which the state does not know.
    """
    at = positions(content, state.whole, keys)
    found = pc.is_valid(at)
    hit = named(at, state.whole.num_rows)
    strange = content.filter(pc.invert(found))
    repeated = _trues(found) - _trues(hit) + strange.num_rows - distinct(strange, keys)

    same = pc.and_(found, same_rows(content, state.whole, at, keys))
    current = snapshot_state.current_rows(state)
    known = found if current is None else pc.fill_null(current.take(at), False)
    open_yet = pc.invert(pc.and_(same, known))
    rest = content.filter(open_yet)
    in_added = positions(rest, state.added, keys)
    known = pc.or_(known.filter(open_yet), pc.is_valid(in_added))
    differs = pc.invert(pc.and_(pc.is_valid(in_added), same_rows(rest, state.added, in_added, keys)))
    changed = _marked(rest, pc.if_else(known, pa.scalar(UPDATE, pa.int32()), pa.scalar(INSERT, pa.int32())))
    changed = changed.filter(differs)

    missed = pc.invert(hit) if current is None else pc.and_(pc.invert(hit), current)
    deleted = pa.concat_tables(
        [
            state.whole.select(keys).filter(missed),
            state.added.select(keys).filter(pc.is_null(positions(state.added, rest, keys))),
        ]
    )
    if touched is not None and touched.num_rows:
        changed = pa.concat_tables([_outside(changed, touched, keys), _forced(content, touched, keys)])
        deleted = pa.concat_tables([_outside(deleted, touched, keys), _outside(touched, content, keys)])
    changes = pa.concat_tables([changed, _marked(deleted, DELETE)], promote_options="default")

    gone = pc.indices_nonzero(pc.invert(named(pc.if_else(same, at, None), state.whole.num_rows)))
    return Difference(changes, content.filter(pc.invert(same)), gone, repeated)


def compare_in_parts(
    state: State, content: pa.Table, touched: pa.Table | None, keys: Sequence[str], count: int, folder: TableFolder
) -> Difference:
    """The same as `compare`, in so many parts by their keys, one after another; what is large goes to the disk."""
    known = snapshot_state.current_rows(state)
    holds = pa.repeat(pa.scalar(True), state.whole.num_rows) if known is None else known
    tables = [content, state.whole, state.added, *([] if touched is None else [touched])]
    of_content, of_whole, of_added, *of_touched = [key_bucket(table.select(list(keys)), count) for table in tables]
    gone, repeated = [pa.array([], pa.int32())], 0
    with contextlib.ExitStack() as stack:
        changes: DiskRows | None = None
        added = stack.enter_context(DiskRows(content.schema, folder.staged("arrow")))
        for part in range(count):
            here = pa.array(of_whole == part)
            one = replace(
                state,
                whole=state.whole.filter(here),
                gone=pc.indices_nonzero(pc.invert(holds.filter(here))).cast(pa.int32()),
                added=state.added.filter(pa.array(of_added == part)),
            )
            of_part = None if touched is None else touched.filter(pa.array(of_touched[0] == part))
            found = compare(one, content.filter(pa.array(of_content == part)), of_part, keys)
            changes = changes or stack.enter_context(DiskRows(found.changes.schema, folder.staged("arrow")))
            changes.add(found.changes)
            added.add(found.added)
            gone.append(pc.indices_nonzero(here).take(found.gone).cast(pa.int32()))
            repeated += found.repeated
        assert changes is not None
        return Difference(changes.table(), added.table(), pa.concat_arrays(gone), repeated)


def _gathered(table: TableWriter, rows: Any) -> pa.Table:
    """The content: in memory, or where it is large in a file on the disk."""
    reader = table.take(rows)
    table.require_types(reader.schema)
    with DiskRows(reader.schema, table.place.staged("arrow")) as gathered:
        for batch in reader:
            gathered.add(batch)
        return gathered.table()


def difference_of(
    state: State, content: pa.Table, touched: pa.Table | None, keys: Sequence[str], folder: TableFolder
) -> Difference:
    """The same as `compare`, in as many parts as memory asks for."""
    count = parts_of(content, state.whole)
    if count == 1:
        return compare(state, content, touched, keys)
    return compare_in_parts(state, content, touched, keys, count, folder)


def _all_new(content: pa.Table, keys: Sequence[str]) -> Difference:
    """The difference to nothing: an initial load, without markers."""
    count = parts_of(content)
    only = content.select(list(keys))
    parts = key_bucket(only, count) if count > 1 else None
    different = (
        distinct(only, keys)
        if parts is None
        else sum(distinct(only.filter(pa.array(parts == part)), keys) for part in range(count))
    )
    return Difference(content, content, pa.array([], pa.int32()), content.num_rows - different)


def _publish(table: TableWriter, difference: Difference, newest: int) -> Published | None:
    if newest and not difference.changes.num_rows:
        return None
    published = table.publish(difference.changes.to_reader(), newest + 1, empty=newest == 0)
    reach("snapshot.before-state")
    return published


def _last_state(numbers: sequence.Sequence, newest: int, content: pa.Table) -> State:
    """The state that holds."""
    state = snapshot_state.read_state(numbers.folder)
    if state is not None:
        found = snapshot_state.fingerprint(numbers.folder, numbers.find(state.number))
        if state.number > newest or (found and found != state.fingerprint):
            state = None  # files that it counts on were deleted, or the folder was filled again
    return snapshot_state.empty_state(content.schema) if state is None else state


def _in_types_of_both(state: State, content: pa.Table, table: str) -> tuple[State, pa.Table]:
    """State and content in the same types. A state whose columns were widened has no name: it is written whole."""
    whole, content = in_common_types(state.whole, content, table)
    if not whole.schema.equals(state.whole.schema):
        added, _ = in_common_types(state.added, content, table)
        state = replace(state, whole=whole, added=added, name="")
    return state, content


def _touched(
    numbers: sequence.Sequence, unknown: Sequence[int], content: pa.Table, keys: Sequence[str]
) -> pa.Table | None:
    """The keys of all files that the state does not know."""
    key_fields = pa.schema([content.schema.field(key) for key in keys])
    found = [_keys_of(numbers, number, key_fields) for number in unknown]
    return pa.concat_tables(found).group_by(list(keys)).aggregate([]) if found else None


def _keys_of(numbers: sequence.Sequence, number: int, key_fields: pa.Schema) -> pa.Table:
    """The keys that one change file touches."""
    found = numbers.find(number)
    reason = "is gone"
    if found is not None:
        try:
            with numbers.folder.open(found) as file:
                content = pq.ParquetFile(file)
                names = {name.lower(): name for name in content.schema_arrow.names}
                table = content.read([names[key.lower()] for key in key_fields.names])
            return table.rename_columns(key_fields.names).cast(key_fields)
        except FileNotFoundError:
            return _keys_of(numbers, number, key_fields)  # moved by the engine between the two looks
        except KeyError as error:
            reason = f"has no key column {error}"
        except pa.ArrowException as error:
            reason = f"cannot be read: {error}"
    raise LakemirrorError(
        "snapshot-state-lost",
        f"{numbers.folder.path.name}: what was published is not known any more: {numbers.name(number)} {reason}",
        table=numbers.folder.path.name,
        file=numbers.name(number),
    )


def _write_state(
    numbers: sequence.Sequence, state: State, content: pa.Table, difference: Difference, number: int
) -> None:
    fingerprint = snapshot_state.fingerprint(numbers.folder, numbers.find(number))
    added, gone = difference.added, difference.gone
    if snapshot_state.is_small(state, content.schema, added.num_rows, len(gone)):
        snapshot_state.write_patch(numbers.folder, state.name, added, gone, number, fingerprint)
    else:
        snapshot_state.write_whole_state(numbers.folder, content, number, fingerprint)


def same_rows(left: pa.Table, right: pa.Table, at: pa.Array, keys: Sequence[str]) -> pa.ChunkedArray | pa.Array:
    """For each row of `left` whether all its columns but the keys equal those of `right` at the given row.

    A column that one side lacks holds NULL there. Floating point numbers are the same where their bits are.
    """
    names = [name for name in dict.fromkeys([*left.column_names, *right.column_names]) if name not in keys]
    if not left.num_rows:
        return pa.array([], pa.bool_())
    row_for_row = len(at) == right.num_rows and at.null_count == 0 and at.equals(arange(len(at)))

    def differs(name: str) -> Any:
        one = left[name] if name in left.column_names else None
        other = right[name] if name in right.column_names else None
        if other is not None and not row_for_row:
            other = whole(other).take(at)
        if one is None or other is None:
            return pc.is_valid(one if other is None else other)
        return _different(one, other)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        columns = list(threads.map(differs, names))
    same = pa.repeat(pa.scalar(True), left.num_rows)
    for column in columns:
        same = pc.and_not(same, column)
    return whole(same)


def _different(one: Any, other: Any) -> Any:
    if pa.types.is_floating(one.type):
        one, other = _bits(one), _bits(other)
    unequal = pc.not_equal(one, other)
    if one.null_count or other.null_count:
        return pc.or_(pc.fill_null(unequal, False), pc.xor(pc.is_null(one), pc.is_null(other)))
    return unequal


def _bits(column: Any) -> Any:
    bits = pa.int64() if pa.types.is_float64(column.type) else pa.int32()
    return whole(column).view(bits)


def _outside(table: pa.Table, other: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows whose key the other table does not have."""
    return table.filter(pc.is_null(positions(table, other, keys)))


def _forced(content: pa.Table, touched: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Every row with a key of which more was published than the state tells: as an update, whatever it was."""
    return _marked(content.filter(pc.is_valid(positions(content, touched, keys))), UPDATE)


def _marked(table: pa.Table, marker: Any) -> pa.Table:
    if isinstance(marker, int):
        marker = pa.repeat(pa.scalar(marker, pa.int32()), table.num_rows)
    return table.append_column(MARKER_COLUMN, marker)


def _trues(mask: Any) -> int:
    return int(pc.sum(mask, min_count=0).as_py())


def _with_keys_spelled(content: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The key columns spelled as they are declared."""
    declared = {key.lower(): key for key in keys}
    return content.rename_columns([declared.get(name.lower(), name) for name in content.column_names])


def in_common_types(known: pa.Table, content: pa.Table, table: str) -> tuple[pa.Table, pa.Table]:
    """Both in the types of before, or in wider ones where the content has such; `type-changed`."""
    fields = {field.name: field for field in known.schema}
    for field in content.schema:
        if field.name in fields:
            fields[field.name] = field.with_type(wider(fields[field.name].type, field.type))
    return _in_types(known, fields, table), _in_types(content, fields, table)


def _in_types(rows: pa.Table, fields: Mapping[str, pa.Field], table: str) -> pa.Table:
    for position, field in enumerate(rows.schema):
        wanted = fields.get(field.name, field)
        if wanted.type != field.type:
            rows = rows.set_column(position, wanted, in_type(rows[position], wanted, table))
    return rows
