"""A landing zone seen from its publisher's side: table folders to publish to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Several
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import CUTS, LANDING_ZONE, TableName
from lakemirror.publisher.buffer import Buffer
from lakemirror.publisher.folders.local_folder import LocalFolder
from lakemirror.publisher.folders.table_folder import TableFolder
from lakemirror.publisher.landing_table import LandingTable
from lakemirror.publisher.sequence import Sequence
from lakemirror.publisher.table_writer import TableForm
from lakemirror.settings.settings import DEFINITION, Settings, parse_definition, read_definition, resolve
from lakemirror.storage.addresses import is_store_address, parse_address
from lakemirror.storage.connections import give_options
from lakemirror.storage.place import storage_of
from lakemirror.storage.store_path import StorePath

if TYPE_CHECKING:
    from lakemirror.publisher.cut_writer import PublishedCut
    from lakemirror.publisher.folders.credentials import Credential


class Landing:
    """The landing zone of one mirrored database.

    `db`: the folder that holds `Files/LandingZone`, its address in an object store (`s3://bucket/folder`), or its
    address at a service (`https://host/workspace/database`). Folders are made with the first file. A database at a
    service must exist before.
    """

    def __init__(
        self,
        db: str | os.PathLike[str],
        credential: Credential | None = None,
        *,
        ca: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """`credential`, `ca`: for a service, as `credentials.tokens_of` and `endpoint.Endpoint` take them.
        `storage_options`: of an object store, over the environment.

        LakemirrorError `input-invalid`, `not-supported` for an address of another kind, `credential-invalid`,
        `stores-extra-missing`.
        """
        self.db = Path(db).absolute() if "://" not in str(db) else Path()
        self._opened: WeakSet[LandingTable] = WeakSet()
        self._endpoint = None
        self._store: StorePath | None = None
        if is_store_address(str(db)):
            if storage_options is not None:
                give_options(str(db), storage_options)
            self._store = StorePath(*parse_address(str(db)))
        elif str(db).startswith(("https://", "http://")):
            from lakemirror.publisher.folders.endpoint import Endpoint  # an HTTP client: only for an address

            self._endpoint = Endpoint(str(db), credential, ca)
        elif "://" in str(db):
            raise LakemirrorError(
                "not-supported",
                f"{db}: the publisher writes to local folders, object stores and services",
                hint="Give a local or mounted folder, s3://, az:// or gs://, or https://host/workspace/database.",
            )

    def table(
        self,
        name: str,
        keys: Several[str] | None = None,
        schema: str | None = None,
        *,
        columns: pa.Schema | None = None,
        buffer: Buffer | None = None,
        compression: str = "snappy",
        zoneless: str = "",
    ) -> LandingTable:
        """A table folder, optionally in a schema folder.

        `keys`: the key columns; None: as the folder declares them. `columns`: types of some columns, for rows without
        types, such as dicts. `buffer`: gathers changes into fewer files. `zoneless`: what times without a zone are:
        `utc`; `ntz` keeps them so; or the name of their zone, in which they become instants. Empty: they are kept, with
        a warning, and the mirror's setting decides.
        """
        named = TableName(checked_name(schema or "", "schema"), checked_name(name, "table"))
        types = {field.name: field.type for field in columns or ()}
        form = TableForm(None if keys is None else tuple(keys), types, compression, zoneless)
        table = LandingTable(self.folder(named.folder), named, form, self._settings, buffer)
        self._opened.add(table)
        return table

    def cut(self, tables: Iterable[str] | None = None, *, position: str = "", time: str = "") -> PublishedCut:
        """Declares a cut: what is published of these tables now is one consistent picture, with whole transactions.

        `tables`: by `table` or `schema.table`; None: all that have a file. `position`, `time`: the source's; the time
        now if empty. What the buffers of this object's tables have gathered is published before. Every file
        that belongs to the picture must be published, and no later one. `lakemirror cuts` shows which versions it is.
        """
        from lakemirror.publisher.cut_writer import write_cut

        for table in list(self._opened):
            table.flush()
        names = self._names() if tables is None else [TableName(*_parts(name)) for name in tables]
        folders = {str(name): self.folder(name.folder) for name in names}
        return write_cut(self.folder(CUTS), folders, position=position, time=time)

    def _names(self) -> list[TableName]:
        """The tables that have a file."""
        found: list[TableName] = []
        for name in self.folder(LANDING_ZONE).names():
            schema = name.removesuffix(".schema")
            if name.startswith("_"):
                continue
            if schema != name and schema:
                inner = self.folder(f"{LANDING_ZONE}/{name}").names()
                found += [TableName(schema, table) for table in inner if not table.startswith("_")]
            else:
                found.append(TableName("", name))
        return [name for name in found if Sequence(self.folder(name.folder)).newest()]

    def _settings(self) -> Settings:
        """The database's settings, with which the engine applies what is published; the environment is that of this
        process. LakemirrorError `definition-invalid`, `setting-invalid`."""
        if self._endpoint is None:
            return resolve(read_definition(storage_of(self.db if self._store is None else self._store)))
        answer = self._endpoint.ask("GET", DEFINITION)
        return Settings().with_definition(parse_definition(answer.body) if answer.status == 200 else {})

    def folder(self, path: str) -> TableFolder:
        """A folder of the landing zone, by its path in the database; nothing is made."""
        if self._store is not None:
            from lakemirror.publisher.folders.store_folder import StoreFolder

            return StoreFolder(self._store, path)
        if self._endpoint is None:
            return LocalFolder(self.db / path)
        from lakemirror.publisher.folders.endpoint_folder import EndpointFolder

        return EndpointFolder(self._endpoint, path)


def _parts(name: str) -> tuple[str, str]:
    """Schema and table of `table` or `schema.table`; `input-invalid`."""
    schema, dot, table = name.rpartition(".")
    return checked_name(schema or dot, "schema"), checked_name(table, "table")


def checked_name(name: str, what: str) -> str:
    """A name that makes one folder and that the engine looks at; `input-invalid`."""
    if what == "schema" and not name:
        return name
    if not name or name[0] in "_." or "/" in name or "\\" in name or "\0" in name or name != name.strip():
        raise LakemirrorError(
            "input-invalid",
            f"{name!r} cannot be a {what} name",
            hint="Give a name without / that does not begin with _ or a dot.",
        )
    return name
