"""What went wrong with a request to a store: a coded error that names the store and the key.

    no such object        FileNotFoundError            no such bucket         bucket-missing
    401, 403              store-refused                no credentials         store-refused
    a key nobody can read path-refused                 all else               storage-unavailable: again later

Messages never hold what a server or a library printed: that may be a signed address.
"""

from __future__ import annotations

import errno
import re

from lakemirror.errors import LakemirrorError

_STATUS = re.compile(r"status code: (\d{3})")
_SERVER_CODE = re.compile(r"<Code>([A-Za-z0-9_.]{1,80})</Code>")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")


def store_failure(verb: str, root: str, key: str, error: BaseException) -> Exception:
    """The error to raise for a request that obstore gave up. `verb`: get, put, list … `root`: the bucket's address."""
    from obstore import exceptions

    text, place = str(error), f"{root}/{key}" if key else root
    status = next(iter(_STATUS.findall(text)), "")
    said = next(iter(_SERVER_CODE.findall(text)), "")
    told = " ".join(each for each in (status, said) if each)
    if any(each in text for each in _NO_BUCKET):
        return LakemirrorError("bucket-missing", f"there is no bucket {root}", file=place)
    if isinstance(error, FileNotFoundError | exceptions.NotFoundError):
        return missing(place)
    refused = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
    if refused or status in ("401", "403"):
        return LakemirrorError("store-refused", f"{place}: the store refuses to {verb}: {told or 'no credentials'}")
    if isinstance(error, exceptions.InvalidPathError | ValueError):
        return LakemirrorError("path-refused", f"{place} is or holds a key that cannot be read", file=place)
    if "credential" in text.lower() and not status:
        return LakemirrorError("store-refused", f"{place}: there are no credentials for the store")
    why = told or ("it does not answer" if "error sending request" in text else "the connection broke")
    return LakemirrorError("storage-unavailable", f"{place}: the store cannot {verb}: {why}", file=place)


def missing(place: str) -> FileNotFoundError:
    """The error of an object that is not there, by its address."""
    return FileNotFoundError(errno.ENOENT, "No such object", place)
