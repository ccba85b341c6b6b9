"""The settings of a database that runs: as `mirroring.json` has them now, and what is wrong with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.landing_zone.metadata import Warned
from lakemirror.settings.settings import DEFINITION, Settings
from lakemirror.settings.spelling import setting_warnings
from lakemirror.storage import Storage

log = logging.getLogger("lakemirror")


class FollowedSettings:
    """`now`: the last valid settings. `error`: why the file is not followed; None: it is. `warnings`: unknown names."""

    def __init__(
        self,
        storage: Storage,
        resolve: Callable[[], Settings],
        warnings_of: Callable[[Mapping[str, Any]], list[Warned]],
    ) -> None:
        """`resolve` reads the settings; its errors are raised here. `warnings_of`: as for `Runner`."""
        self.now = resolve()
        self.error: LakemirrorError | None = None
        self.warnings: list[Warned] = []
        self._storage = storage
        self._resolve = resolve
        self._warnings_of = warnings_of
        self._seen = definition_etag(storage)
        self._again = 0.0

    def follow(self) -> bool:
        """Reads a changed file. True if the settings are others than before. Never raises: `error` says why not."""
        if time.monotonic() < self._again:
            return False
        self._again = time.monotonic() + self._storage.capabilities.looks_last / 10
        try:
            seen = definition_etag(self._storage)
            settings = self.now if seen == self._seen else self._resolve()
        except Exception as failure:
            error = coded(failure)
            if str(error) != str(self.error):
                log.error("%s; the last valid settings stay in force", error)
            self.error = error
            return False
        self.error = None
        if seen == self._seen:
            return False
        self._seen = seen
        is_other = settings != self.now
        self.now = settings
        self.find_unknown()
        return is_other

    def find_unknown(self) -> None:
        """Finds settings with an unknown name, and logs those that are new."""
        warnings = setting_warnings(self._storage, self._warnings_of)
        for warned in warnings:
            if warned not in self.warnings:
                log.warning("%s", warned.message)
        self.warnings = warnings


def definition_etag(storage: Storage) -> str:
    """A text that changes when `mirroring.json` changes. `definition-invalid` if it is no regular file."""
    try:
        entry = storage.stat(DEFINITION)
    except LakemirrorError as error:
        if error.code == "path-refused":
            raise LakemirrorError("definition-invalid", error.message) from error
        raise
    return entry.etag if entry else ""
