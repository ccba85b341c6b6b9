"""`lakemirror config DB`: each setting in force, and where it comes from."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import typer

from lakemirror.cli.options import Database, EngineOptions, Json, StorageOptions, require, with_groups
from lakemirror.cli.printable import printable, say
from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.settings.origin import SettingOrigin


@with_groups
def config(database: Database, engine: EngineOptions, storage: StorageOptions = None, as_json: Json = False) -> None:
    """Show each setting, its value and where it comes from: a flag, the environment, mirroring.json, the default.

    Takes the options of `sync` and `run`, and shows what these commands would use. Changes nothing. Exit code 2 where
    a value cannot be used.

    Example: lakemirror config shop
    """
    from lakemirror.settings.origin import setting_origins
    from lakemirror.settings.settings import read_definition
    from lakemirror.settings.spelling import unknown_settings
    from lakemirror.storage.place import storage_of

    require(database)
    definition = read_definition(storage_of(database))
    for warned in unknown_settings(definition):
        say(f"warning {warned.code}: {printable(warned.message)}")
    found = setting_origins(definition, engine.settings)
    invalid = [each.error for each in found if each.error]
    if as_json:
        print(json.dumps({"settings": [dataclasses.asdict(each) for each in found]}, indent=1))
    else:
        _print_settings(found)
    for error in invalid:
        say(f"setting-invalid: {printable(error)}")
    if invalid:
        raise typer.Exit(LakemirrorError("setting-invalid", "").exit_code)


def _print_settings(found: list[SettingOrigin]) -> None:
    from lakemirror.settings.origin import DEFAULT

    names = max(len(each.name) for each in found)
    values = [_text(each.value) for each in found]
    for each, value in zip(found, values, strict=True):
        source = "" if each.source == DEFAULT else each.source
        print(printable(f"{each.name:{names}}  {value:{min(24, max(map(len, values)))}}  {source}".rstrip()))
    print("Values without a source are defaults.")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        texts = {key: each if isinstance(each, str) else json.dumps(each) for key, each in value.items()}
        return ",".join(f"{key}={text}" for key, text in texts.items()) or "-"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    return "-" if value == "" else f"{value:g}" if isinstance(value, float) else str(value)
