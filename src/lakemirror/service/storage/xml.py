"""XML bodies of the Blob dialect: listings out, block lists in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote
from xml.parsers import expat
from xml.sax.saxutils import escape

from lakemirror.service.refused import Refused
from lakemirror.service.storage.listing import Entry
from lakemirror.service.storage.storage_answers import http_date

HEAD = '<?xml version="1.0" encoding="utf-8"?>'

_NOT_IN_XML = re.compile("[\ufffe\uffff]")
_MOST_BLOCKS = 50_000
_KINDS = ("Latest", "Uncommitted", "Committed")


@dataclass(frozen=True)
class BlobPage:
    """What a listing of blobs answers. Entries whose name ends with the delimiter are prefixes."""

    endpoint: str
    container: str
    prefix: str
    delimiter: str
    marker: str
    most: int
    entries: Sequence[Entry]
    next_marker: str
    with_metadata: bool


def blob_list(page: BlobPage) -> str:
    """The body of List Blobs."""
    parts = [
        f'{HEAD}<EnumerationResults ServiceEndpoint="{_attribute(page.endpoint)}"',
        f' ContainerName="{_attribute(page.container)}">',
        f"<Prefix>{escape(page.prefix)}</Prefix><Marker>{escape(page.marker)}</Marker>",
        f"<MaxResults>{page.most}</MaxResults>",
        f"<Delimiter>{escape(page.delimiter)}</Delimiter>" if page.delimiter else "",
        "<Blobs>",
    ]
    for entry in page.entries:
        if entry.is_prefix:
            parts.append(f"<BlobPrefix>{_name(entry.name)}</BlobPrefix>")
        else:
            parts.append(_blob(entry, page.with_metadata))
    parts.append(f"</Blobs><NextMarker>{escape(page.next_marker)}</NextMarker></EnumerationResults>")
    return "".join(parts)


def container_list(endpoint: str, names: Sequence[tuple[str, str, str]]) -> str:
    """The body of List Containers; of each the name, the time of change, the ETag."""
    parts = [f'{HEAD}<EnumerationResults ServiceEndpoint="{_attribute(endpoint)}"><Containers>']
    for name, modified, etag in names:
        parts.append(
            f"<Container><Name>{escape(name)}</Name><Properties><Last-Modified>{modified}</Last-Modified>"
            f"<Etag>{escape(etag)}</Etag><LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState>"
            "<HasImmutabilityPolicy>false</HasImmutabilityPolicy><HasLegalHold>false</HasLegalHold>"
            "</Properties></Container>"
        )
    parts.append("</Containers><NextMarker/></EnumerationResults>")
    return "".join(parts)


def uncommitted_blocks(blocks: Sequence[tuple[str, int]]) -> str:
    """The body of Get Block List: ids as the client wrote them, lengths."""
    listed = "".join(f"<Block><Name>{escape(name)}</Name><Size>{size}</Size></Block>" for name, size in blocks)
    return f"{HEAD}<BlockList><CommittedBlocks/><UncommittedBlocks>{listed}</UncommittedBlocks></BlockList>"


def block_ids(body: bytes) -> list[tuple[str, str]]:
    """The kind (`Latest`, `Uncommitted`, `Committed`) and id of each block of a Put Block List, in its order.

    Refused 400 `InvalidXmlDocument` for broken XML, one with a DTD, or another document; `BlockListTooLong`.
    """
    found: list[tuple[str, str]] = []
    path: list[str] = []
    text: list[str] = []

    def start(name: str, _: object) -> None:
        path.append(name.rpartition(":")[2])
        text.clear()
        if len(path) > 2 or path[0] != "BlockList" or (len(path) == 2 and path[1] not in _KINDS):
            raise _broken()

    def end(_: str) -> None:
        name = path.pop()
        if path and len(found) == _MOST_BLOCKS:
            raise Refused(400, "BlockListTooLong", f"A list has at most {_MOST_BLOCKS:,} blocks.")
        if path:
            found.append((name, "".join(text).strip()))

    def refuse(*_: object) -> None:
        raise _broken()

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text.append
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(body, True)
    except (expat.ExpatError, ValueError, LookupError):
        raise _broken() from None
    return found


def _blob(entry: Entry, with_metadata: bool) -> str:
    found = entry.found
    modified = http_date(found.modified_ns)
    kind = "directory" if found.is_folder else "file"
    metadata = ""
    if with_metadata:
        metadata = "<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>" if found.is_folder else "<Metadata/>"
    return (
        f"<Blob>{_name(entry.name)}<Properties><Creation-Time>{modified}</Creation-Time>"
        f"<Last-Modified>{modified}</Last-Modified><Etag>{found.etag}</Etag><ResourceType>{kind}</ResourceType>"
        f"<Content-Length>{found.length}</Content-Length><Content-Type>application/octet-stream</Content-Type>"
        "<Content-Encoding/><Content-Language/><Content-CRC64/><Content-MD5/><Cache-Control/><Content-Disposition/>"
        "<BlobType>BlockBlob</BlobType><LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState>"
        f"<ServerEncrypted>false</ServerEncrypted></Properties>{metadata}<OrMetadata/></Blob>"
    )


def _name(name: str) -> str:
    if _NOT_IN_XML.search(name):
        return f'<Name Encoded="true">{quote(name)}</Name>'
    return f"<Name>{escape(name)}</Name>"


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;"})


def _broken() -> Refused:
    return Refused(400, "InvalidXmlDocument", "The body is not a block list in XML without a DTD.")
