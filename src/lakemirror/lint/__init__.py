"""What is wrong with a landing zone, for a publisher's author. Reads only; decides by the engine's own functions.

path ─▶ folders: metadata, names, numbers ─▶ contents: columns, markers, keys of each file ─▶ findings
"""

from lakemirror.lint.folders import check

__all__ = ["check"]
