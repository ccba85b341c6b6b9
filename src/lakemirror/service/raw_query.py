"""The query string as it was sent: decoded once, `+` is a plus sign."""

from __future__ import annotations

from urllib.parse import unquote


def raw_path_of(target: str) -> str:
    """The path of a request target, still encoded. The target may be a complete URL."""
    path = target.partition("?")[0]
    if not path.startswith("/") and "://" in path:
        path = "/" + path.partition("://")[2].partition("/")[2]
    return path


def query_pairs(target: str) -> list[tuple[str, str]]:
    """Names and values of a request target's query, decoded once, in the order they were sent.

    UnicodeDecodeError, a ValueError, where they are no UTF-8.
    """
    pairs = []
    for part in target.partition("?")[2].split("&"):
        if part:
            name, _, value = part.partition("=")
            pairs.append((unquote(name, errors="strict"), unquote(value, errors="strict")))
    return pairs


__all__ = ["query_pairs", "raw_path_of"]
