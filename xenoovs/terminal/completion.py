"""`xenoovs --completion`: the script by which a shell completes xenoovs, and the names that it offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from xenoovs.terminal.defaults import labs, option
from xenoovs.terminal.output import echo

_MAX_CONFIG_BYTES = 1 << 20
"""Size limit of a config: to read a larger one takes longer than a user waits for names."""


def print_completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell, and end the command."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    echo(kind(context.find_root().command, {}, "xenoovs", "_XENOOVS_COMPLETE").source())
    context.exit()


Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def offering(names: Callable[[click.Context], Iterable[str | tuple[str, str]]]) -> Complete:
    """Return a `shell_complete` that offers names, some with a line about them; nothing if they cannot be read."""

    @wraps(names)
    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            with context.scope(cleanup=False):
                found = [(name, None) if isinstance(name, str) else name for name in names(context)]
        except Exception:  # noqa: BLE001 - a traceback in the middle of a command line helps no user
            return []
        unique = dict(reversed(found))
        return [CompletionItem(name, help=unique[name]) for name in sorted(unique) if name.startswith(incomplete)]

    return complete


@offering
def complete_lab(_context: click.Context) -> Iterable[str]:
    return labs().lab_names()


@offering
def complete_template(_context: click.Context) -> Iterable[tuple[str, str]]:
    from xenoovs.model.templates import describe_templates

    return describe_templates().items()


@offering
def complete_service(context: click.Context) -> Iterable[str]:
    """Offer the services of the config."""
    return _backends_by_service(context)


@offering
def complete_backend(context: click.Context) -> Iterable[str]:
    """Offer the services, and after one its backends."""
    words, found = context.params.get("words") or (), _backends_by_service(context)
    return found.get(words[0], ()) if words else found


@offering
def complete_server(context: click.Context) -> Iterable[str]:
    """Offer the services and all backends, and after a service its backends."""
    words, found = context.params.get("words") or (), _backends_by_service(context)
    return found.get(words[0], ()) if words else (*found, *(name for names in found.values() for name in names))


@offering
def complete_lab_backend(context: click.Context) -> Iterable[str]:
    return (name for names in _backends_by_service(context).values() for name in names)


@offering
def complete_agent_bridge(context: click.Context) -> Iterable[str]:
    from xenoovs.terminal.reach import find_places

    choose_lab(context)
    return [path.stem for path in find_places().sockets()]


@offering
def complete_bridge(context: click.Context) -> Iterable[str]:
    """Offer the bridges of the Open vSwitch."""
    from xenoovs.switch.ovsdb import read_bridges
    from xenoovs.terminal.reach import endpoint

    choose_lab(context)
    return [state.name for state in read_bridges(endpoint())]


def choose_lab(context: click.Context) -> None:
    """Find the lab of an unfinished command, as the command will."""
    from xenoovs.terminal.defaults import find_lab

    context.meta["lab"] = find_lab(option("lab") or option("name"))[0]


def _backends_by_service(context: click.Context) -> dict[str, tuple[str, ...]]:
    """Return the names in the config that the command would use. The config may be unfinished or have mistakes."""
    from xenoovs.model.include import ConfigSources
    from xenoovs.model.load import join_config

    path = _config(context)
    sources = ConfigSources(path)
    if len(text := sources.read(path)) > _MAX_CONFIG_BYTES:
        return {}
    root: Any = join_config(text, file=str(path), sources=sources).root
    services = root.get("services") or ()
    # A name that YAML takes for a number is text here.
    return {str(one["name"]): tuple(str(each["name"]) for each in one.get("backends") or ()) for one in services}


def _config(context: click.Context) -> Path:
    """Return the config that the command would use."""
    from xenoovs.terminal.defaults import find_config

    # Where an option still lacks its value, click has read no arguments.
    typed = [context.params.get("config"), *map(Path, context.args)] if "config" in context.params else []
    path = next((each for each in typed if each is not None and each.is_file()), None)
    if path is None:
        choose_lab(context)
    return path or find_config()
