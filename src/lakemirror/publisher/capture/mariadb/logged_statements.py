"""What a statement in the binary log does to rows of tables that it does not log: definitions that change, truncates.

    statement ─▶ words ─▶ which tables, and how: emptied, or possibly with other rows

Only the few forms are recognised that certainly leave rows as they are; a table that any other statement names is
loaded again. That is always right, and dear only for statements that rewrite the table anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lakemirror.publisher.capture.pending_changes import Table

_WORDS = re.compile(
    r"/\*M?!\d*(?P<open>)|\*/(?P<close>)|/\*.*?\*/(?P<c1>)|--[ \t\n].*?(?:\n|$)(?P<c2>)|\#.*?(?:\n|$)(?P<c3>)"
    r"|`(?P<name>(?:[^`]|``)*)`|'(?:[^'\\]|\\.|'')*'(?P<text>)|\"(?P<double>(?:[^\"\\]|\\.|\"\")*)\""
    r"|(?P<word>[\w$]+)|(?P<mark>\S)",
    re.DOTALL,
)
_OBJECTS = {"TABLE", "VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "USER", "ROLE", "INDEX", "SEQUENCE", "SERVER",
            "DATABASE", "SCHEMA", "PACKAGE", "TABLESPACE"}  # fmt: skip
_HARMLESS = {"GRANT", "REVOKE", "FLUSH", "ANALYZE", "OPTIMIZE", "REPAIR", "SET", "SAVEPOINT", "BEGIN", "COMMIT", "XA",
             "START", "INSTALL", "UNINSTALL", "RESET", "KILL"}  # fmt: skip
_HARMLESS_CLAUSES = re.compile(
    r"(ADD (UNIQUE|FULLTEXT|SPATIAL|INDEX|KEY|CONSTRAINT|FOREIGN|CHECK|PARTITION)"
    r"|DROP (INDEX|KEY|FOREIGN|CONSTRAINT|CHECK)\b|RENAME (INDEX|KEY)|(ENABLE|DISABLE) KEYS"
    r"|ALTER (COLUMN )?\S+ (SET|DROP) DEFAULT|ALTER (INDEX|KEY|CHECK|CONSTRAINT)"
    r"|(REBUILD|OPTIMIZE|ANALYZE|CHECK|REPAIR|REORGANIZE|COALESCE) PARTITION|PARTITION BY|REMOVE PARTITIONING"
    r"|COMMENT|AUTO_INCREMENT|ENGINE|ROW_FORMAT|FORCE|ALGORITHM|LOCK|(DEFAULT )?(CHARACTER SET|CHARSET|COLLATE)"
    r"|WAIT|NOWAIT|STATS_\w+|KEY_BLOCK_SIZE|PAGE_\w+|MAX_ROWS|MIN_ROWS|$)"
)
_VALUED = {"DEFAULT", "NOT", "AS", "GENERATED", "AUTO_INCREMENT", "PRIMARY", "SERIAL"}


@dataclass(frozen=True)
class Effect:
    """`is_emptied`: the table has no rows now; else its rows may be others. `columns`: only where the table had one of
    these columns before; None: in any case. `is_definition`: only by what happened to its columns or partitions.
    """

    table: Table
    is_emptied: bool = False
    columns: frozenset[str] | None = None
    is_definition: bool = False


@dataclass(frozen=True)
class _Word:
    text: str
    is_quoted: bool = False

    @property
    def key(self) -> str:
        return "" if self.is_quoted else self.text.upper()


def effects(sql: str, database: str, followed: set[Table]) -> list[Effect]:
    """What a statement does to the tables that are followed. `database`: where names without one are."""
    words = _without_prefix(list(_words(sql)))
    keys = [word.key for word in words]
    if not words or keys[0] in _HARMLESS:
        return []
    if keys[0] == "TRUNCATE":
        named = _first_name(words[2 if keys[1:2] == ["TABLE"] else 1 :], database)
        return [Effect(named, True)] if named in followed else []
    if keys[0] in ("CREATE", "DROP", "ALTER", "RENAME"):
        return [each for each in _of_definition(words, keys, database) if each.table in followed] if keys[0] != "DROP" \
            else _of_drop(words, keys, database, followed)  # fmt: skip
    return [Effect(table) for table in _names(words, database) if table in followed]


def _of_drop(words: list[_Word], keys: list[str], database: str, followed: set[Table]) -> list[Effect]:
    kind = _object(keys)
    if kind in ("DATABASE", "SCHEMA"):
        gone = words[-1].text if words[-1].key != ";" else words[-2].text
        return [Effect(table) for table in sorted(followed) if table[0] == gone]
    if kind not in ("TABLE", "TABLES") or "TEMPORARY" in keys[:2]:
        return []
    return [Effect(table) for table in _names(words, database) if table in followed]


def _of_definition(words: list[_Word], keys: list[str], database: str) -> list[Effect]:
    kind = _object(keys)
    if kind not in ("TABLE", "TABLES") or "TEMPORARY" in keys:
        return []
    if keys[0] == "RENAME":
        return [Effect(table) for table in _names(words, database)]
    rest = words[keys.index(kind) + 1 :]
    while rest and rest[0].key in ("IF", "NOT", "EXISTS"):
        rest = rest[1:]
    named = _first_name(rest, database)
    if named is None:
        return []
    if keys[0] == "CREATE":  # a table that is there is dropped first, unless it is replaced
        return [Effect(named)] if "REPLACE" in keys[:3] else []
    clauses = list(_clauses(rest[3 if len(rest) > 1 and rest[1].text == "." else 1 :]))
    found = [(each, clause) for clause in clauses if (each := _of_clause(named, clause)) is not None]
    is_definition = not any(_exchanges(clause) for _, clause in found)
    if any(each.columns is None for each, _ in found):
        named_all = {*_names(words, database)} if {"RENAME", "EXCHANGE"} & set(keys) else set()
        return [Effect(table, is_definition=is_definition) for table in sorted({named} | named_all)]
    return [replace(each, is_definition=is_definition) for each, _ in found]


def _exchanges(clause: list[_Word]) -> bool:
    """True for a clause of ALTER TABLE behind which the table is another one, or has another key."""
    keys = [word.key for word in clause]
    is_renamed = keys[:1] == ["RENAME"] and keys[1:2] != ["COLUMN"]
    is_converted = keys[:1] == ["CONVERT"] and keys[1:2] != ["TO"]
    return is_renamed or is_converted or bool({"EXCHANGE", "PRIMARY"} & set(keys))


def _of_clause(table: Table, clause: list[_Word]) -> Effect | None:
    """What one clause of ALTER TABLE does; None: nothing to rows."""
    said = " ".join(word.key or "x" for word in clause)
    if _HARMLESS_CLAUSES.match(said):
        return None
    plain = [word for word in clause if word.key not in ("COLUMN", "IF", "EXISTS")]
    keys = [word.key for word in plain]
    if keys[:1] == ["DROP"] and len(plain) == 2:
        return None
    if keys[:1] == ["ADD"]:
        if keys[1:2] == ["NOT"]:  # of IF NOT EXISTS
            plain, keys = [plain[0], *plain[2:]], [keys[0], *keys[2:]]
        if len(plain) > 2 and plain[1].text != "(" and not _VALUED & set(keys[2:]):
            return Effect(table, columns=frozenset((plain[1].text,)))
    return Effect(table)


def _clauses(words: list[_Word]) -> Iterator[list[_Word]]:
    """The clauses of ALTER TABLE, which commas part that are in no brackets."""
    part: list[_Word] = []
    depth = 0
    for word in words:
        depth += {"(": 1, ")": -1}.get(word.key, 0)
        if word.key == "," and not depth:
            yield part
            part = []
        elif word.key != ";" or depth:
            part.append(word)
    yield part


def _object(keys: list[str]) -> str:
    return next((key for key in keys if key in _OBJECTS or key == "TABLES"), "")


def _first_name(words: list[_Word], database: str) -> Table | None:
    if not words:
        return None
    if len(words) > 2 and words[1].text == "." and not words[1].is_quoted:
        return words[0].text, words[2].text
    return database, words[0].text


def _names(words: list[_Word], database: str) -> list[Table]:
    """Everything that may be the name of a table, with and without its database."""
    found = [(database, word.text) for at, word in enumerate(words) if not at or words[at - 1].text != "."]
    found += [(words[at - 1].text, words[at + 1].text) for at in range(1, len(words) - 1) if words[at].text == "."]
    return list(dict.fromkeys(found))


def _without_prefix(words: list[_Word]) -> list[_Word]:
    """The statement without `SET STATEMENT … FOR` before it."""
    if [word.key for word in words[:2]] == ["SET", "STATEMENT"]:
        place = next((at for at, word in enumerate(words) if word.key == "FOR"), len(words) - 1)
        return words[place + 1 :]
    return words


def _words(sql: str) -> Iterator[_Word]:
    for match in _WORDS.finditer(sql):
        kind = match.lastgroup
        if kind == "name":
            yield _Word(match["name"].replace("``", "`"), True)
        elif kind == "double":
            yield _Word(match["double"].replace('""', '"'), True)
        elif kind == "text":
            yield _Word("", True)
        elif kind in ("word", "mark"):
            yield _Word(match[0])
