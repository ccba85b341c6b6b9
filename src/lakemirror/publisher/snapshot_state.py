"""What `publish_snapshot` published last, kept in the table folder as the publisher's own `_` files.

`_snapshot.arrow` is a whole content, `_snapshot_patch.arrow` what has changed since: rows that differ or are new, and
the positions of rows that do not hold any more. So a small change costs a small write. A patch names the content it
belongs to; one that names another is left over from a crash and counts for nothing.
"""

from __future__ import annotations

import os
import uuid
import zlib
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.failpoints import reach
from lakemirror.publisher.folders.table_folder import TableFolder, write_whole
from lakemirror.publisher.row_keys import named

WHOLE = "_snapshot.arrow"
PATCH = "_snapshot_patch.arrow"
TAIL_BYTES = 1 << 16
SMALL_ROWS = 10_000
COMBINED_ROWS = 1_000_000  # beyond, rows are written as they come


@dataclass(frozen=True)
class State:
    """The content as of the change file `number`: the rows of `whole` but those at `gone`, and the rows of `added`.

    `fingerprint` is that file's, so that another file with its number is noticed. `name` names the whole content.
    """

    whole: pa.Table
    gone: pa.Array
    added: pa.Table
    number: int
    fingerprint: str
    name: str


def empty_state(schema: pa.Schema) -> State:
    """Nothing was published yet."""
    return state_of(schema.empty_table(), 0)


def state_of(rows: pa.Table, number: int) -> State:
    """The state that holds these rows as of this change file; no file has it."""
    return State(rows, pa.array([], pa.int32()), rows.schema.empty_table(), number, "", "")


def read_state(folder: TableFolder) -> State | None:
    """The state, or None where there is none or none that can be read."""
    try:
        whole = pa.ipc.open_file(folder.content(WHOLE)).read_all()
        kept = _Kept.of(whole.schema)
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None
    whole = whole.replace_schema_metadata(None)
    gone, added = pa.array([], pa.int32()), whole.schema.empty_table()
    try:
        source = pa.BufferReader(folder.content(PATCH))
        patch = pa.ipc.open_stream(source).read_all()
        positions = pa.ipc.open_stream(source).read_all()
        of_patch = _Kept.of(patch.schema)
        if of_patch.name == kept.name:
            kept = of_patch
            added = patch.replace_schema_metadata(None)
            gone = positions["position"].combine_chunks()
    except FileNotFoundError:
        pass
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None
    return State(whole, gone, added, kept.number, kept.fingerprint, kept.name)


def write_whole_state(folder: TableFolder, content: pa.Table, number: int, fingerprint: str) -> None:
    """Makes this content the state."""
    if content.num_rows <= COMBINED_ROWS:
        content = content.combine_chunks()
    kept = _Kept(uuid.uuid4().hex, number, fingerprint)
    schema = content.schema.with_metadata(kept.metadata())

    def write(file: BinaryIO) -> None:
        with pa.ipc.new_file(file, schema) as writer:
            writer.write_table(content.replace_schema_metadata(schema.metadata))

    write_whole(folder, WHOLE, write)
    reach("snapshot.between-states")
    folder.delete(PATCH)


def write_patch(folder: TableFolder, name: str, added: pa.Table, gone: pa.Array, number: int, fingerprint: str) -> None:
    """Makes the whole content `name`, with this patch, the state."""
    schema = added.schema.with_metadata(_Kept(name, number, fingerprint).metadata())
    positions = pa.table({"position": gone.cast(pa.int32())})

    def write(file: BinaryIO) -> None:
        with pa.ipc.new_stream(file, schema) as writer:
            writer.write_table(added.replace_schema_metadata(schema.metadata))
        with pa.ipc.new_stream(file, positions.schema) as writer:
            writer.write_table(positions)

    write_whole(folder, PATCH, write)


def is_small(state: State, schema: pa.Schema, added: int, gone: int) -> bool:
    """True where a patch costs much less than the whole content again."""
    return (
        state.name != ""
        and state.whole.schema.equals(schema)
        and state.whole.num_rows > SMALL_ROWS
        and added + gone <= state.whole.num_rows // 8
    )


def fingerprint(folder: TableFolder, name: str | None) -> str:
    """Tells one change file from another of the same number, also after it was moved; empty where it is gone."""
    if name is None:
        return ""
    try:
        with folder.open(name) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            return f"{size:x}-{zlib.crc32(file.read()):08x}"
    except FileNotFoundError:
        return ""


def current_rows(state: State) -> pa.Array | None:
    """For each row of the whole content whether it still holds; None where all do."""
    if len(state.gone) == 0:
        return None
    return pc.invert(named(state.gone, state.whole.num_rows))


@dataclass(frozen=True)
class _Kept:
    """What a state file says of itself, in its schema's metadata."""

    name: str
    number: int
    fingerprint: str

    @staticmethod
    def of(schema: pa.Schema) -> _Kept:
        found = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
        return _Kept(found["name"], int(found["number"]), found["fingerprint"])

    def metadata(self) -> dict[str, str]:
        return {"name": self.name, "number": str(self.number), "fingerprint": self.fingerprint}
