"""Writes `table-features.md` and `clients.md` from the rows of data: `python docs/generate_table_features.py`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
_MADE = "<!-- made by docs/generate_table_features.py: edit the data, then run it -->"
_COPY = "CREATE TABLE new USING delta AS SELECT … FROM old."
_WAYS = {
    "log": "",
    "rewrite": "files that hold traces are rewritten in one commit",
    "history": "only with TRUNCATE HISTORY",
    "unused": "one commit, while no column uses it",
    "no": "cannot be dropped",
}


def pages() -> dict[str, str]:
    """Both pages by their file names."""
    return {"table-features.md": _features(), "clients.md": _clients()}


def _features() -> str:
    from lakemirror.delta.feature_names import LEGACY
    from lakemirror.features.catalogue import FEATURES

    lines = [
        "# Table features",
        "",
        _MADE,
        "",
        "Names are matched in any case. *For*: who must know the feature, and the protocol versions that imply it.",
        "*Drop*: in one commit, unless it says otherwise.",
        "*Traces*: where a table shows that it uses the feature, beside its properties.",
        f"A copy: `{_COPY.removesuffix('.')}`. Features with the same facts share a section.",
        "",
    ]
    above: list[str] = []
    for feature in FEATURES:
        who = "readers and writers" if feature.reads else "writers"
        legacy = LEGACY.get(feature.name)
        since = f"; in reader {legacy[0]}, writer {legacy[1]}" if legacy else ""
        facts = {"for": who + since}
        facts["needs"] = ", ".join(feature.requires)
        facts["properties"] = ", ".join(f"`{key}`" for key in feature.properties)
        facts["domains"] = ", ".join(f"`{domain}`" for domain in feature.domains)
        facts["traces"] = ", ".join(trace for trace in feature.traces if trace != "properties")
        facts["drop"] = _WAYS[feature.drop]
        facts["to agree to"] = feature.confirm
        facts["stays behind"] = feature.leftover
        facts["instead"] = feature.way_out.replace(f": {_COPY}", "")
        shown = [f"- {what}: {value}" for what, value in facts.items() if value]
        if shown == above and feature.summary.endswith(" (first form)."):
            place = max(number for number, line in enumerate(lines) if line.startswith("## "))
            lines[place] += f", {feature.name}"
            continue
        lines += [f"## {feature.name}", "", feature.summary, "", *shown, ""]
        above = shown
    return "\n".join(lines)


def _clients() -> str:
    from lakemirror.features.compatibility import clients

    lines = ["# Clients", "", _MADE, ""]
    lines += [
        "What `lakemirror compat` predicts, beside what real clients did with small tables, one for each feature."
    ]
    lines += ["A wrong answer is worse than a refusal: the client reads, and gives other rows.", ""]
    lines += ["| client | predictions right / tried | wrong answers | writes that break a rule |", "|---|---|---|---|"]
    sound = []
    for name, (agreed, tried, wrong, unsafe) in sorted(compared().items()):
        if agreed == tried and not wrong and not unsafe:
            sound.append(name)
        else:
            lines.append(f"| {name} | {agreed} / {tried} | {_shortened(wrong)} | {_shortened(unsafe)} |")
    lines += ["", f"All right, and no wrong answers: {_by_client(sound)}."]
    lines += ["", *_in_real_use()]
    lines += [
        "## Records",
        "",
        "The highest protocol version and the features that a client reads and writes; of later versions what",
    ]
    lines += [
        "differs from the row above. `*`: the name with `-preview` too. *Measured*: the client was run. *Source*: its"
    ]
    days = sorted(client.as_of for client in clients())
    lines += [f"code was read. *Documented*: nobody here has tried it. From {days[0]} to {days[-1]}.", ""]
    lines += ["| client | reads | writes | evidence |", "|---|---|---|---|"]
    above = None
    for client in sorted(clients(), key=lambda client: (client.name, client.route)):
        same = above is not None and (above.name, above.route) == (client.name, client.route)
        reads = _beside(client.reader_features, above.reader_features if same else None)
        writes = _beside(client.writer_features, above.writer_features if same else None)
        written = f"{client.writer}; {writes}" if client.writer else "never"
        known = ". ".join(filter(None, [client.basis, client.note]))
        lines.append(f"| {client.label} | {client.reader}; {reads} | {written} | {known} |")
        above = client
    return "\n".join([*lines, ""])


def _beside(features: frozenset[str], above: frozenset[str] | None) -> str:
    """The features; where a row of the same client is above, only what is other than there."""
    if above is None:
        return _named(features)
    changes = [
        f"{sign} {_named(names)}" for sign, names in (("and", features - above), ("not", above - features)) if names
    ]
    return "; ".join(changes) or "the same"


def _named(features: frozenset[str]) -> str:
    """The names in order; a feature with its preview's name as one."""
    both = {name for name in features if f"{name}-preview" in features}
    return (
        ", ".join(
            f"{name}*" if name in both else name
            for name in sorted(features)
            if name.removesuffix("-preview") not in both or name in both
        )
        or "no features"
    )


def _in_real_use() -> list[str]:
    lines = ["## Tables in real use", ""]
    lines += ["Delta Spark made these tables, and they use their features. Public tables of other projects are among"]
    lines += [
        "them, and of most tables a twin after `lakemirror features drop`. A client has read a table if all rows,"
    ]
    lines += [
        "their count and a filter give what Delta Spark gives. The data was corrected by what these runs showed.",
        "",
    ]
    lines += ["| client | predictions right / tried | read after a drop / said to be readable | wrong answers |"]
    lines += ["|---|---|---|---|"]
    wrong: list[str] = []
    sound: list[str] = []
    for name, tables in sorted(in_real_use().items()):
        tried = [(table, mode) for table in tables.values() for mode in table["did"]]
        right = sum(table["now"][mode] == table["did"][mode] for table, mode in tried)
        promised = [t for n, t in tables.items() if n.endswith("--dropped") and t["now"]["read"] == "yes"]
        kept = sum(table["did"]["read"] == "yes" for table in promised)
        bad = _shortened([n for n, table in tables.items() if table["did"]["read"] == "wrong"])
        if right == len(tried) and kept == len(promised) and not bad:
            sound.append(name)
            continue
        lines.append(f"| {name} | {right} / {len(tried)} | {kept} / {len(promised)} | {bad} |")
        wrong += _disagreements(name, tables)
    lines += ["", f"All right, all read, and no wrong answers: {_by_client(sound)}."]
    return [*lines, "", "Predictions that are still wrong:", "", *wrong, ""]


def _by_client(names: list[str]) -> str:
    """Each client once, with its versions: `delta-rs pyarrow 0.10.2, 0.15.3; duckdb 1.2.2`."""
    versions: dict[str, list[str]] = {}
    for name in names:
        client, _, version_and_route = name.partition("@")
        version, _, route = version_and_route.partition(" ")
        versions.setdefault(f"{client} {route}".strip(), []).append(version)
    return "; ".join(f"{client} {', '.join(found)}" for client, found in versions.items())


def _disagreements(name: str, tables: dict[str, Any]) -> list[str]:
    """One line for all tables of a client for which what is said now is not what it did, in the same way."""
    found: dict[tuple[str, ...], list[str]] = {}
    for table, seen in tables.items():
        for mode, did in seen["did"].items():
            if did != seen["now"][mode]:
                found.setdefault((mode, seen["now"][mode], did), []).append(table)
    return [
        f"- {name}, {mode}: said {said}, came out {did}: {_shortened(which)}"
        for (mode, said, did), which in found.items()
    ]


def _shortened(names: list[str], shown: int = 4) -> str:
    more = [f"{len(names) - shown} more"] if len(names) > shown else []
    return ", ".join([*names[:shown], *more])


def in_real_use() -> dict[str, dict[str, Any]]:
    """For every client and table: what compat says `now`, and what the client `did`."""
    sys.path.insert(0, str(ROOT / "tests" / "clients"))
    from measure import load, said

    measured = load()
    return {
        client.replace(":", " "): {
            table: {**seen, "now": said(client, measured["tables"][table])} for table, seen in tables.items()
        }
        for client, tables in measured["clients"].items()
    }


def compared() -> dict[str, tuple[int, int, list[str], list[str]]]:
    """For every measured client: predictions that came true, predictions tried, wrong answers, unsafe writes."""
    sys.path.insert(0, str(ROOT / "tests" / "clients"))
    from protocol_tables import make_all

    from lakemirror.delta.log import read_snapshot
    from lakemirror.features.compatibility import find_clients, verdicts

    found = {}
    measured = json.loads((ROOT / "tests" / "clients" / "measured.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        make_all(Path(folder))
        for name, tables in measured.items():
            text, _, route = name.partition(":")
            (client,) = [c for c in find_clients(text) if not route or c.route == route]
            agreed, tried, wrong, unsafe = 0, 0, [], []
            for table, seen in tables.items():
                snapshot = read_snapshot(Path(folder) / table)
                if snapshot is None:
                    raise AssertionError(table)
                (said,) = verdicts(snapshot, [client])
                for mode in seen:
                    tried += 1
                    agreed += {"unsafe": "yes"}.get(getattr(said, mode), getattr(said, mode)) == seen[mode]
                if seen["read"] == "wrong":
                    wrong.append(table.removeprefix("feature-"))
                if said.write == "unsafe" and seen.get("write") == "yes":
                    unsafe.append(table.removeprefix("feature-"))
            found[name.replace(":", " ")] = (agreed, tried, wrong, unsafe)
    return found


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
