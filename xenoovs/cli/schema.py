"""`xenoovs schema`: the JSON Schema of the config."""

from __future__ import annotations

import click

from xenoovs.cli.output import print_json


@click.command("schema")
def command() -> None:
    """Print the JSON Schema (draft 2020-12) of the config, for editors that check and complete as you type.

    \b
    Example, first line of a config in an editor with a YAML language server:
      # yaml-language-server: $schema=xenoovs.schema.json
    """
    from xenoovs.config.schema import json_schema

    print_json(json_schema())
