"""`lakemirror init DB`: makes a new mirrored database."""

from __future__ import annotations

from lakemirror.cli.options import Database, StorageOptions
from lakemirror.landing_zone.database_folder import create_database
from lakemirror.landing_zone.zone import LANDING_ZONE


def init(database: Database, storage: StorageOptions = None) -> None:
    """Make a mirrored database: a folder with Files/LandingZone, where publishers put their change files.

    An existing database is not changed.

    Example: lakemirror init shop
    """
    made = create_database(database)
    print(f"{database / LANDING_ZONE}: {'made' if made else 'is there already'}")
