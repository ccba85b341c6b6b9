"""Delimited text as Parquet with its rows in the file's order (contract sections 2, 4 and 6); no Spark.

    compressed, encoded file ─▶ text_source ─▶ UTF-8 blocks ─▶ fast_reader  ─▶ columns of text ─▶ values ─▶ Parquet
                                                        └────▶ records, where the fast one would not be exact

A Spark scan of text has no row order across its splits. A Parquet file has one, and the rest of the engine reads
nothing else (`docs/decisions/003-delimited-text.md`).
"""

from lakemirror.landing_zone.delimited.convert import TextDoubts, convert, header_names, line_of, read_columns
from lakemirror.landing_zone.delimited.typed_text import TypedText
from lakemirror.landing_zone.delimited.values import BadValue

__all__ = ["BadValue", "TextDoubts", "TypedText", "convert", "header_names", "line_of", "read_columns"]
