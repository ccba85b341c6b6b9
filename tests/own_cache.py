"""The cache folder of one test run: what a user's runs keep is neither read nor changed.

jars, archives, environments, bench   links into the user's cache folder: they are fetched or made once
keys, stores, logs, warehouse         the run's own; removed when it ends
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from lakemirror.settings.settings import Settings

SHARED = ("jars", "archives", "environments", "bench")
_OWN = "MIRROR_TESTS_CACHE"  # names the folder to the processes that a run starts


def use() -> None:
    """Makes the folder the cache of this process and of those that it starts, until this process ends."""
    if _OWN in os.environ:
        return  # a process of a run
    users = Settings().with_environment().cache_folder
    own = Path(tempfile.mkdtemp(prefix="lakemirror-tests-"))
    for name in SHARED:
        (users / name).mkdir(parents=True, exist_ok=True)
        (own / name).symlink_to(users / name)
    os.environ[_OWN] = os.environ["LAKEMIRROR_CACHE_DIR"] = str(own)
    atexit.register(shutil.rmtree, own, ignore_errors=True)


def share_archives(cache: Path) -> None:
    """A JVM with this other cache folder starts with the class-data archives of the user's, where there are some."""
    cache.mkdir(exist_ok=True)
    (cache / "archives").symlink_to(Settings().with_environment().cache_folder / "archives")
