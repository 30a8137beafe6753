"""`xenoovs explain`: what a key of the config means, as `kubectl explain` does."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click

from xenoovs.errors import did_you_mean
from xenoovs.terminal.options import output_option
from xenoovs.terminal.output import answer, echo, is_text, print_json, print_table, print_text

if TYPE_CHECKING:
    from xenoovs.model.explain import ConfigKey


@click.command("explain")
@click.argument("key", required=False, default="", metavar="[KEY]")
@click.option("--schema", is_flag=True, help="Print the JSON Schema (draft 2020-12) of the config, for editors.")
@output_option
def explain_command(key: str, *, schema: bool) -> None:
    """Explain KEY of the config: its meaning, its values and its default. Without KEY, list the keys of the file.

    KEY is a path such as `services.backends.mac`, or its end: `max_down`, `health.port`. Indexes as in the path of an
    error, `services[0].backends[1].mac`, are ignored.

    \b
    Examples:
      xenoovs explain
      xenoovs explain health.max_down
      xenoovs explain services.backends
      xenoovs explain --schema > xenoovs.schema.json

    \b
    The first line of a config for a YAML language server:
      # yaml-language-server: $schema=xenoovs.schema.json
    """
    if schema:
        from xenoovs.model.schema import json_schema

        if key:
            raise click.UsageError("--schema is of the whole config: leave KEY out.")
        print_json(json_schema())
        return
    from xenoovs.model.explain import all_keys

    keys = all_keys()
    if not key:
        _show_list([each for each in keys if "." not in each.path])
        return
    found = _find(re.sub(r"\[[0-9]+\]", "", key), keys)
    inside = [each for each in keys if each.path.rpartition(".")[0] == found[0].path]
    if not is_text():
        print_json(
            {**_document(found[0]), "places": [each.path for each in found], "keys": list(map(_document, inside))}
        )
        return
    _show(found)
    if inside:
        echo()
        _show_list(inside)


def _find(text: str, keys: tuple[ConfigKey, ...]) -> list[ConfigKey]:
    """Return the keys with this path, or this end of a path, that mean the same."""
    exact = [each for each in keys if each.path == text]
    found = exact or [each for each in keys if each.path.endswith(f".{text}")]
    if not found:
        names = {name for each in keys for name in (each.path, each.name)}
        raise click.UsageError(f"The config has no key {text!r}.{did_you_mean(text, sorted(names))}")
    same = [each for each in found if (each.kind, each.meaning) == (found[0].kind, found[0].meaning)]
    if len(same) < len(found):
        places = "".join(f"\n  {each.path}: {each.meaning.partition('. ')[0].removesuffix('.')}" for each in found)
        raise click.UsageError(f"{text!r} is several keys; write one of these paths:{places}")
    return found


def _show(found: list[ConfigKey]) -> None:
    first = found[0]
    rows = [["key", ", ".join(each.path for each in found)], ["value", first.kind]]
    if first.is_required:
        rows.append(["default", "required"])
    elif first.default:
        rows.append(["default", first.default])
    rows += [["example", json.dumps(example, ensure_ascii=False)] for example in first.examples]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        echo(f"{name:{width}}  {value}")
    if first.meaning:
        echo()
        print_text(first.meaning)


def _show_list(keys: list[ConfigKey]) -> None:
    rows = [[each.name, each.kind, "required" if each.is_required else each.default or "-"] for each in keys]
    answer(lambda: {"keys": list(map(_document, keys))}, lambda: print_table(["KEY", "VALUE", "DEFAULT"], rows))


def _document(key: ConfigKey) -> dict[str, object]:
    return {
        "path": key.path,
        "value": key.kind,
        "default": key.default or None,
        "required": key.is_required,
        "meaning": key.meaning,
        "examples": list(key.examples),
    }
