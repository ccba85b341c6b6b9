"""Where a service keeps its own files, and where it works.

root on a disk    ROOT/.lakemirror, or `--state FOLDER`: both
root in a store   `--state FOLDER`: both        `--state store`: files in ROOT/.lakemirror, work in the cache folder
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.service.operator_settings import OperatorSettings
from lakemirror.storage import Place
from lakemirror.storage.place import local_path

OWN_FOLDER = ".lakemirror"  # under the root
PRINCIPALS = "principals"
IN_STORE = "store"
"""The `state` of a service that keeps its own files in the store that it serves."""


def own_folder(root: Place, state: str | Path | None = None) -> Place:
    """Where the service keeps its own files: the folder `state`, made with mode 0700 where it is missing.

    None: `.lakemirror` under a root on a disk. The text `store`: `.lakemirror` under a root in a store.
    LakemirrorError `service-option-invalid` where the root is no folder, or is in a store and there is no `state`, or
    is on a disk and `state` is `store`.
    """
    place = local_path(root)
    if place is None and state is None:
        message = f"{root} needs --state FOLDER, a folder on this machine's disk, or --state {IN_STORE}"
        raise LakemirrorError("service-option-invalid", message)
    if place is None and state == IN_STORE:
        if (Path(IN_STORE) / PRINCIPALS).exists():
            message = f"--state {IN_STORE} is the store; for the folder of that name write --state ./{IN_STORE}"
            raise LakemirrorError("service-option-invalid", message)
        return root / OWN_FOLDER
    if state == IN_STORE:
        message = f"{root} is in no store: leave --state out, or write ./{IN_STORE} for a folder of that name"
        raise LakemirrorError("service-option-invalid", message)
    if place is not None and not place.is_dir():
        raise LakemirrorError("service-option-invalid", f"{root} is no folder")
    folder = Path(state) if state is not None else Path(str(root)) / OWN_FOLDER
    try:
        folder.mkdir(mode=0o700, parents=state is not None, exist_ok=True)
    except FileExistsError:
        raise LakemirrorError("service-option-invalid", f"{folder} is no folder") from None
    folder.chmod(0o700)
    return folder


def work_folder(own: Place) -> Path:
    """The folder on this machine's disk for locks and uploads under way: `own`, or one for this address in the cache.

    LakemirrorError `storage-unavailable`.
    """
    folder = local_path(own)
    if folder is None:
        name = hashlib.blake2b(str(own).encode(), digest_size=8).hexdigest()
        folder = OperatorSettings.from_environment().process.cache_folder / "served" / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as failure:
            raise coded(failure) from failure
    return folder
