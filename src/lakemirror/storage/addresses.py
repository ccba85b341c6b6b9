"""Parses addresses of folders and files, on local disks and in stores. No I/O.

    s3://lake/shop/Tables/orders ─▶ root s3://lake, key shop/Tables/orders

Keys are never decoded: `%20` in an address is three characters of the key. An address holds no credentials: messages
show it.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lakemirror.errors import SetupError
from lakemirror.passwords import without_passwords

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_ADDRESS = re.compile(r"(s3a?|az|azure|abfss?|adl|gs|gcs)://([^/:]+)(?:/(.*))?", re.IGNORECASE | re.DOTALL)
_SPELLED = {"s3a": "s3", "azure": "az", "adl": "az", "gcs": "gs"}


def is_store_address(text: str) -> bool:
    """True for the address of an object or a folder in a store."""
    return "://" in text and _ADDRESS.fullmatch(text) is not None


def parse_address(text: str) -> tuple[str, str]:
    """The root of the store (`s3://bucket`) and the key, without slashes at its ends. ValueError otherwise."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is no address of an object store")
    scheme = match[1].lower()
    return f"{_SPELLED.get(scheme, scheme)}://{match[2]}", (match[3] or "").strip("/")


def is_loopback(host: str) -> bool:
    """True for a name or an address of this machine that no other one reaches."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def local_folder(address: str) -> Path:
    """The folder that a path or a `file:` address names.

    LakemirrorError `address-unsupported` for another address, and for an empty one: a variable of a script that is not
    set must not mean the current folder.
    """
    if not address:
        raise SetupError("address-unsupported", "the path is empty; the current folder is `.`")
    if address.startswith("file:"):
        return Path(unquote(urlsplit(address).path))
    match = _SCHEME.match(address)
    if match is not None:
        is_store = is_store_address(f"{match[0]}bucket")
        what = f"addresses that begin with {match[1]}: are not supported"
        if is_store:
            what = "the name of a bucket has no colon, and credentials are given by --storage or the environment"
            what = what if ":" in address[match.end() :].partition("/")[0] else "it names no bucket"
        message = f"{without_passwords(address, address)}: {what}"
        raise SetupError("address-unsupported", message)
    return Path(address)
