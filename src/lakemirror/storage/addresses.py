"""Parses addresses of objects and folders in a store. No I/O.

    s3://lake/shop/Tables/orders ─▶ root s3://lake, key shop/Tables/orders

Keys are never decoded: `%20` in an address is three characters of the key. An address holds no credentials: messages
show it.
"""

from __future__ import annotations

import re

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


__all__ = ["is_store_address", "parse_address"]
