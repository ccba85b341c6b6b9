"""Checksums that a request carries: of its body, and of a complete file."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping

from awscrt.checksums import crc64nvme

from lakemirror.service.refused import Refused


class BodyChecksum:
    """The checksums of a body as it arrives, where the request carries some to compare them with."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        """Refused 400 where a header is no checksum."""
        self._wanted_md5 = digest_of(headers.get("Content-MD5"))
        self._wanted_crc = _decoded(headers.get("x-ms-content-crc64"), 8, "InvalidHeaderValue")
        self._md5 = None if self._wanted_md5 is None else hashlib.md5(usedforsecurity=False)
        self._crc = None if self._wanted_crc is None else 0

    @property
    def is_needed(self) -> bool:
        return self._md5 is not None or self._crc is not None

    def add(self, data: bytes) -> None:
        """Takes the next bytes of the body."""
        if self._md5 is not None:
            self._md5.update(data)
        if self._crc is not None:
            self._crc = crc64nvme(data, self._crc)

    def check(self) -> None:
        """Refused 400 `Md5Mismatch` or `Crc64Mismatch` where the body is not what the request says."""
        if self._md5 is not None and self._md5.digest() != self._wanted_md5:
            raise _mismatch()
        if self._crc is not None and self._crc.to_bytes(8, "little") != self._wanted_crc:
            raise Refused(400, "Crc64Mismatch", "The CRC64 of the content is not the one that the request gives.")


def digest_of(text: str | None) -> bytes | None:
    """The 16 bytes of a Base64 MD5, None for none. Refused 400 `InvalidMd5`."""
    return _decoded(text, 16, "InvalidMd5")


def check_file(read_at: Callable[[int, int], bytes], md5: bytes | None) -> None:
    """Refused 400 `Md5Mismatch` where the MD5 of a file is another one; None checks nothing. `read_at`: its bytes, by
    size and offset."""
    if md5 is None:
        return
    digest, at = hashlib.md5(usedforsecurity=False), 0
    while data := read_at(1 << 20, at):
        digest.update(data)
        at += len(data)
    if digest.digest() != md5:
        raise _mismatch()


def _decoded(text: str | None, length: int, code: str) -> bytes | None:
    if not text:
        return None
    try:
        digest = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    if len(digest) != length:
        raise Refused(400, code, f"The checksum is not Base64 of {length} bytes.")
    return digest


def _mismatch() -> Refused:
    return Refused(400, "Md5Mismatch", "The MD5 of the content is not the one that the request gives.")
