"""Blind predictions: what `lakemirror compat` says of tables in real use, written first, then what clients do.

    python tests/clients/real_tables.py FOLDER
    python tests/clients/measure.py FOLDER [CLIENT …]

Every client runs `probe.py` in an environment of its own, made by pip below `environments` beside FOLDER. The
predictions are made from the logs alone and kept in `predictions.json` in FOLDER: a later run does not make them anew.
What came out is written to `measured_real.json` here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from real_tables import facts

from lakemirror.delta.log import Protocol
from lakemirror.features.compatibility import find_clients, verdict

HERE = Path(__file__).parent
MEASURED = HERE / "measured_real.json"
SECONDS = 480
"""How long one run of a client may take before the table it is at counts as not read."""

CLIENTS: dict[str, tuple[str, ...]] = {
    "delta-rs@0.10.2": ("deltalake==0.10.2", "pyarrow<13", "numpy<2"),
    "delta-rs@0.15.3": ("deltalake==0.15.3", "pyarrow<15", "numpy<2"),
    "delta-rs@0.18.2": ("deltalake==0.18.2", "pyarrow<17", "numpy<2"),
    "delta-rs@0.19.2": ("deltalake==0.19.2", "pyarrow<18"),
    "delta-rs@0.25.5": ("deltalake==0.25.5", "pyarrow<20"),
    "delta-rs@1.0.2": ("deltalake==1.0.2", "pyarrow<21"),
    "delta-rs@1.1.4": ("deltalake==1.1.4", "pyarrow<21"),
    "delta-rs@1.2.1": ("deltalake==1.2.1", "pyarrow"),
    "delta-rs@1.3.3": ("deltalake==1.3.3", "pyarrow<21"),
    "delta-rs@1.4.2": ("deltalake==1.4.2", "pyarrow"),
    "delta-rs@1.5.1": ("deltalake==1.5.1", "pyarrow"),
    "delta-rs@1.6.6": ("deltalake==1.6.6", "pyarrow"),
    "duckdb@1.5.5": ("duckdb==1.5.5", "duckdb-extension-delta==1.5.5", "pytz"),
    "polars@2.1.0": ("polars==2.1.0", "deltalake==1.6.6", "pyarrow"),
    "daft@0.7.26": ("daft==0.7.26", "deltalake", "pyarrow"),
    "chdb@4.4.0": ("chdb==4.4.0",),
    "delta-spark@3.3.2": ("delta-spark==3.3.2", "pyspark==3.5.8"),
}
"""What is installed for each client."""


def routes(client: str) -> list[tuple[str, str]]:
    """The routes of a client: its name here, and its name in the probe."""
    name = client.partition("@")[0]
    if name != "delta-rs":
        return [(client, name)]
    return [(f"{client}:{c.route}", f"deltalake-{c.route}") for c in find_clients(client)]


def said(client: str, known: dict[str, Any]) -> dict[str, str]:
    """What compat says of a table with these facts, in the words of what is measured."""
    text, _, route = client.partition(":")
    (record,) = [c for c in find_clients(text) if not route or c.route == route]
    actions = ["domainMetadata"] if known["domains"] else []
    found = verdict(record, Protocol.from_action(known["protocol"]), known["in_use"], actions)
    words = {"read": found.read, "write": found.write}
    return {mode: {"unsafe": "yes"}.get(word, word) for mode, word in words.items() if word != "never"}


def predictions(folder: Path) -> dict[str, Any]:
    """The facts of every table and what is predicted of it for every client, made once."""
    file = folder / "predictions.json"
    if not file.exists():
        tables = {name: facts(folder / name) for name in json.loads((folder / "expected.json").read_text())}
        names = [name for client in CLIENTS for name, _ in routes(client)]
        made = {name: {table: said(name, dict(known)) for table, known in tables.items()} for name in names}
        file.write_text(json.dumps({"tables": tables, "clients": made}))
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def environment(place: Path, client: str) -> Path:
    """The Python of a client, installed where it is not there yet."""
    python = place / client / "bin" / "python"
    if not python.exists():
        venv.create(place / client, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *CLIENTS[client]], check=True)
    return python


def run(python: Path, probe: str, folder: Path, tables: list[str]) -> dict[str, Any]:
    """What one client did; a table at which it dies or hangs is not read, and it goes on with the next."""
    found: dict[str, Any] = {}
    left = list(tables)
    while left:
        command = [str(python), str(HERE / "probe.py"), probe, str(folder), *left]
        try:
            out = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=folder).stdout
        except subprocess.TimeoutExpired as error:
            out = (error.stdout or b"").decode()
        for line in out.splitlines():
            if line.startswith('["'):
                table, result = json.loads(line)
                found[table] = result
        left = [table for table in left if table not in found]
        if left:
            found[left[0]] = {"read": "no", "why": "it died or hung"}
            left = left[1:]
    return found


def main(folder: Path, wanted: list[str]) -> None:
    first = predictions(folder)
    measured = load() if MEASURED.exists() else {"clients": {}}
    measured["tables"] = {name: facts(folder / name) for name in first["tables"]}
    for client in wanted or list(CLIENTS):
        try:
            python = environment(folder.parent / "environments", client)
        except subprocess.CalledProcessError as error:
            print(f"{client} cannot be installed: {error}", file=sys.stderr)
            continue
        for name, probe in routes(client):
            did = run(python, probe, folder, sorted(first["tables"]))
            records = {table: record(first["clients"][name][table], did[table]) for table in sorted(did)}
            measured["clients"][name] = records
            MEASURED.write_text(compact(measured))
            off = [(table, mode) for table in records for mode in differing(records[table])]
            tried = sum(len(found["did"]) for found in records.values())
            print(f"{name}: {tried - len(off)} / {tried}", flush=True)
            for table, mode in off:
                print(f"    {table} {mode}: {records[table]}", flush=True)


def record(blind: dict[str, str], result: dict[str, Any]) -> dict[str, Any]:
    """What a client did with a table; where that is not what was predicted also that, and why, in its own words."""
    did = {mode: result.get(mode, "no") for mode in blind}
    why = {"read": result["why"], "write": result.get("why_not_written")}
    off = [mode for mode in blind if blind[mode] != did[mode]]
    told = "; ".join(without_paths(why[mode]) for mode in off or did if why[mode] and (off or did[mode] == "wrong"))
    found: dict[str, Any] = {"did": did}
    return found | ({"said": blind} if off else {}) | ({"why": told} if told else {})


def differing(record: dict[str, Any]) -> list[str]:
    """The modes in which the blind prediction was not what happened."""
    return [mode for mode, did in record["did"].items() if record.get("said", record["did"])[mode] != did]


def compact(measured: dict[str, Any]) -> str:
    """JSON with a line for each table, so that a change of one is a change of one line."""

    def block(rows: dict[str, Any], indent: str) -> str:
        lines = (f"{indent}{json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in rows.items())
        return "{\n" + ",\n".join(lines) + "\n}"

    clients = sorted(measured["clients"].items())
    short = {name: {table: _short(row) for table, row in tables.items()} for name, tables in clients}
    parts = ",\n".join(f"{json.dumps(name)}: {block(tables, ' ')}" for name, tables in short.items())
    return f'{{\n"tables": {block(measured["tables"], " ")},\n"clients": {{\n{parts}\n}}\n}}\n'


def load() -> dict[str, Any]:
    """What `measured_real.json` holds, the short rows in full."""
    measured: dict[str, Any] = json.loads(MEASURED.read_text())
    for tables in measured["clients"].values():
        tables.update({table: _full(row) for table, row in tables.items()})
    return measured


def _short(row: dict[str, Any]) -> str | list[str]:
    """`yes/no` for read and not written as predicted; otherwise also what was said, and why it was not so."""
    did, said_first = "/".join(row["did"].values()), "/".join(row.get("said", {}).values())
    return [did, said_first, row.get("why", "")] if len(row) > 1 else did


def _full(row: str | list[str]) -> dict[str, Any]:
    did, said_first, why = (row, "", "") if isinstance(row, str) else row
    modes = ("read", "write")
    found: dict[str, Any] = {"did": dict(zip(modes, did.split("/"), strict=False))}
    found |= {"said": dict(zip(modes, said_first.split("/"), strict=False))} if said_first else {}
    return found | ({"why": why} if why else {})


def without_paths(text: str) -> str:
    """An error's words without addresses and the folders of this machine."""
    return re.sub(r"(\w+:)?/+(?:[^\s/'\"`:]+/)+[^\s'\"`:]*", "…", text)[:160]


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
