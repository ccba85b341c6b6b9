"""Deletion vectors as a reader finds them, with every promise about them checked (Delta protocol, "Deletion Vectors").

A second reader beside `delta/deletion_vectors.py`, for every storage type, which says what is wrong instead of failing.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from pyroaring import BitMap64

from lakemirror.delta.deletion_vectors import vector_path
from lakemirror.delta.log import Action
from lakemirror.storage.place import Place, place
from lakemirror.verify.finding import Finding, is_refused

_MAGIC = struct.pack("<i", 1681511377)
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def read(folder: Place, vector: Mapping[str, Any]) -> tuple[BitMap64, str, str]:
    """The rows that a vector deletes, with a code and a sentence about what is wrong; both are empty if nothing is."""
    try:
        kind, text = vector["storageType"], vector["pathOrInlineDv"]
        if kind == "i":
            data = base64.b85decode(text.translate(str.maketrans(_Z85, _B85)))[: int(vector["sizeInBytes"])]
        else:
            path = folder / vector_path(text) if kind == "u" else place(text)
            with path.open("rb") as file:
                file.seek(int(vector.get("offset") or 1))
                (size,) = struct.unpack(">i", file.read(4))
                if size != int(vector["sizeInBytes"]):
                    message = f"its file says {size} bytes where the log says {vector['sizeInBytes']}"
                    return BitMap64(), "verify-vector-damaged", message
                data = file.read(size)
                (checksum,) = struct.unpack(">I", file.read(4))
            if zlib.crc32(data) != checksum:
                return BitMap64(), "verify-vector-damaged", "its checksum (CRC-32) does not fit its bytes"
        if data[:4] != _MAGIC:
            return BitMap64(), "verify-vector-damaged", "its first bytes are not those of a vector"
        rows = BitMap64.deserialize(data[4:])
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        if is_refused(error):
            raise
        return BitMap64(), "verify-vector-unreadable", f"it cannot be read: {error}"
    if len(rows) != int(vector["cardinality"]):
        message = f"it deletes {len(rows)} rows where the log says {vector['cardinality']}"
        return rows, "verify-vector-cardinality", message
    return rows, "", ""


def shared(files: Mapping[Any, Action], table: str) -> list[Finding]:
    """Vectors that two files of the table name: one of the files has another file's vector."""
    seen: dict[tuple[Any, ...], str] = {}
    found = []
    for add in files.values():
        vector = add.get("deletionVector")
        if not vector or vector.get("storageType") == "i":
            continue
        place = (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))
        if place in seen:
            message = f"{add['path']} and {seen[place]} name one deletion vector: one of them has another file's"
            found.append(Finding("verify-vector-foreign", table, message, add["path"]))
        seen[place] = add["path"]
    return found
