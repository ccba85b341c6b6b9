"""A catalog of a Unity Catalog server, by its open REST interface: without Spark.

Spark's SQL does not show the comments of its entries, and makes entries without columns. Its connector's settings
(`spark.sql.catalog.NAME`, `.uri`, `.token`) say where the server is.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

from lakemirror.delta.log import Metadata, read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.readers.catalog_entries import Entry, Name
from lakemirror.readers.unity_columns import columns_of
from lakemirror.storage.place import place

CONNECTOR = "io.unitycatalog.spark.UCSingleCatalog"
_API = "/api/2.1/unity-catalog"
_PATIENCE = 60.0  # seconds for one request
_PAGE = 50  # entries: the server's most


def unity_catalog(name: str, setting: Callable[[str], str]) -> CatalogOfUnity | None:
    """The catalog that Spark settings describe; None if they do not name Unity Catalog's connector for it.

    LakemirrorError `setting-invalid` for an address: a catalog has a name.
    """
    if "://" in name:
        message = f"{name} is an address, not the name of a catalog; its address is a setting of Spark's catalog NAME"
        raise LakemirrorError("setting-invalid", f"{message}, such as spark.sql.catalog.NAME.uri of Unity Catalog")
    key = f"spark.sql.catalog.{name}"
    if not name or setting(key) != CONNECTOR:
        return None
    return CatalogOfUnity(name, setting(f"{key}.uri"), setting(f"{key}.token"))


class CatalogOfUnity:
    """One catalog of a server. An entry has columns of its own."""

    def __init__(self, name: str, uri: str, token: str) -> None:
        self.name = name
        self._uri, self._token = uri.rstrip("/"), token

    def namespaces(self) -> set[str]:
        return {str(each["name"]) for each in self._pages("schemas", catalog_name=self.name)}

    def entries(self, namespace: str) -> list[Entry]:
        found = self._pages("tables", catalog_name=self.name, schema_name=namespace)
        return [
            Entry(
                (namespace, each["name"]), "view" if "VIEW" in str(each.get("table_type")) else "table",
                each.get("comment") or "", _decoded(each.get("storage_location") or ""),
                _columns(each.get("columns") or ()),
            )
            for each in found
        ]  # fmt: skip

    def columns(self, path: str) -> str:
        return _columns(_described(path))

    def make_namespace(self, namespace: str) -> None:
        self._ask("POST", "schemas", {"name": namespace, "catalog_name": self.name})

    def make(self, name: Name, path: str, comment: str) -> None:
        location = Path(path).as_uri() if path.startswith("/") else path
        table = {
            "name": name[1], "catalog_name": self.name, "schema_name": name[0], "table_type": "EXTERNAL",
            "data_source_format": "DELTA", "columns": _described(path), "storage_location": location,
            "comment": comment,
        }  # fmt: skip
        self._ask("POST", "tables", table)

    def set_columns(self, name: Name, path: str) -> bool:
        """By the server's interface for Delta tables, which servers before 0.5 lack."""
        metadata = _metadata(path)
        table_id = self._ask("GET", self._table(name))["table_id"]
        change = {
            "requirements": [{"type": "assert-table-uuid", "uuid": table_id}],
            "updates": [
                {"action": "set-columns", "columns": metadata.schema},
                {"action": "set-partition-columns", "partition-columns": list(metadata.partition_columns)},
            ],
        }
        catalog, schema, table = (quote(part, safe="") for part in (self.name, *name))
        where = f"delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
        return self._ask("POST", where, change, lacks=(404, 405, 501)) is not None

    def drop(self, name: Name) -> None:
        self._ask("DELETE", self._table(name))

    def _table(self, name: Name) -> str:
        return f"tables/{quote('.'.join((self.name, *name)), safe='')}"

    def _pages(self, kind: str, **query: str) -> Iterator[Mapping[str, Any]]:
        token = ""
        while True:
            more = {"page_token": token} if token else {}
            found = self._ask("GET", f"{kind}?{urlencode({**query, 'max_results': _PAGE, **more})}")
            yield from found.get(kind) or ()
            token = found.get("next_page_token") or ""
            if not token:
                return

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, lacks: tuple[int, ...] = ()) -> Any:
        """The answer; None to a DELETE, and for an HTTP status of `lacks`. LakemirrorError `catalog-refused`."""
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {self._token}"} if self._token else {}
        )
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(f"{self._uri}{_API}/{path}", data, headers, method=method)
            with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
                return json.load(answer) if method != "DELETE" else None
        except urllib.error.HTTPError as error:
            if error.code in lacks:
                return None
            reason = f"{error.code} {_message(error.read())}"
        except (OSError, ValueError) as error:
            reason = str(error)
        what = f"{method} {path.partition('?')[0]}"
        raise LakemirrorError("catalog-refused", f"Unity Catalog at {self._uri} refused `{what}`: {reason}")


def _decoded(location: str) -> str:
    """A path as the disk has it."""
    return unquote(location) if location.startswith("file:") else location


def _described(path: str) -> Sequence[Mapping[str, Any]]:
    metadata = _metadata(path)
    return columns_of(metadata.schema, metadata.partition_columns)


def _metadata(path: str) -> Metadata:
    snapshot = read_snapshot(place(path))
    if snapshot is None:
        raise LakemirrorError("table-unreadable", f"{path} is no Delta table any more")
    return snapshot.metadata


def _columns(columns: Sequence[Mapping[str, Any]]) -> str:
    """What must be the same in an entry: names and types, in order."""
    ordered = sorted(columns, key=lambda each: int(each.get("position") or 0))
    return ", ".join(f"{each['name']} {each['type_text']}" for each in ordered)


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
