"""Text for a terminal of any encoding: characters that it cannot show are escaped, also line breaks."""

from __future__ import annotations

import io
import sys


def printable(text: str) -> str:
    """The text with every control character, line break and undecodable byte escaped: `a\\nb`, `caf\\udce9`."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def say(text: str) -> None:
    """Prints it on stderr; a closed terminal is no error."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        return


def make_streams_safe() -> None:
    """Makes stdout and stderr escape characters that their encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


__all__ = ["make_streams_safe", "printable", "say"]
