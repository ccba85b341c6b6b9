"""The command line: one file a group of commands."""

from lakemirror.cli.main import app, main

__all__ = ["app", "main"]
