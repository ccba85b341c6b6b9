"""Text for a terminal of any encoding: characters that it cannot show are escaped, also line breaks."""

from __future__ import annotations

import contextlib
import io
import os
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
    """Makes stdout and stderr escape characters that their encoding lacks, instead of failing.

    A stream that whoever started the command has closed becomes /dev/null. Otherwise the next file that is opened would
    get its number, and what a library prints would go into a data file.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                _open_nothing(number)
                setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _open_nothing(number: int) -> None:
    """Opens /dev/null as this file number, if it is closed."""
    try:
        os.fstat(number)
    except OSError:
        nothing = os.open(os.devnull, os.O_RDWR)
        if nothing == number:
            os.set_inheritable(number, True)
        else:
            os.dup2(nothing, number)
            os.close(nothing)
