"""A command on each bridge of a config, one after the other: a heading each, one exit status, one JSON document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click

from xenoovs.errors import XenoovsError
from xenoovs.model.balancer import Balancer
from xenoovs.terminal.command import EXIT_FAILED, fail
from xenoovs.terminal.load import LoadedConfig
from xenoovs.terminal.options import OutputFormat
from xenoovs.terminal.output import collecting_json, echo, print_json
from xenoovs.terminal.reach import address_commands, name_bridge


def for_each_bridge(
    loaded: LoadedConfig, output: OutputFormat, work: Callable[[Balancer], int], *, needs_one: str = ""
) -> int:
    """Do the work of a command for each bridge of a config.

    What fails for one bridge is printed, and the others follow. With JSON the documents of all bridges are one list.

    Args:
        loaded: The config.
        output: How the command prints.
        work: Prints the answer for a bridge, and returns the exit status.
        needs_one: The option in use that is about one bridge only.

    Returns:
        The worst exit status.

    Raises:
        XenoovsError: For a config of one bridge.
        click.UsageError: The config has several bridges, and `needs_one` is in use.
    """
    if not loaded.is_listed:
        (balancer,) = loaded.balancers
        return work(balancer)
    if needs_one:
        labels = ", ".join(balancer.uplinks.label for balancer in loaded.balancers)
        raise click.UsageError(f"{needs_one} is about one bridge, and {loaded.file} has {labels}: add --bridge NAME.")
    works = {balancer.uplinks.label: partial(_named, work, balancer) for balancer in loaded.balancers}
    return answer_each(works, output)


def _named(work: Callable[[Balancer], int], balancer: Balancer) -> int:
    name_bridge(balancer.uplinks.label)
    return work(balancer)


def answer_each(works: Mapping[str, Callable[[], int]], output: OutputFormat) -> int:
    """Do the work for each bridge, by their labels. As `for_each_bridge`."""
    documents, statuses = list[dict[str, Any]](), list[int]()
    for number, (label, work) in enumerate(works.items()):
        if output is OutputFormat.TEXT:
            show_heading(label, is_first=number == 0)
        document: dict[str, Any] = {"bridge": label}
        try:
            with collecting_json() as found:
                statuses.append(work())
        except XenoovsError as error:
            statuses.append(report(error))
            found = [error_document(error)]
        for part in found:
            document |= part | {"bridge": label}
        documents.append(document)
    if output is OutputFormat.JSON:
        print_json({"bridges": documents})
    return worst(statuses)


def show_heading(label: str, *, is_first: bool) -> None:
    """Print which bridge the text below is about."""
    echo(("" if is_first else "\n") + click.style(f"bridge {label}", bold=True) + "\n")


def report(error: XenoovsError) -> int:
    """Print an error, with commands that can be copied, and return its exit status."""
    given = click.get_current_context().params
    if error.commands:
        address_commands(error, config=given.get("config"), db=given.get("db"), lab=given.get("lab"))
    return fail(error)


def error_document(error: XenoovsError) -> dict[str, Any]:
    """Return an error as a part of a JSON document."""
    return {"error": {"code": error.code, "message": str(error), "hint": error.hint or None}}


def worst(statuses: list[int]) -> int:
    """Return the exit status of several bridges: a failure, else the highest."""
    return EXIT_FAILED if EXIT_FAILED in statuses else max(statuses, default=0)
