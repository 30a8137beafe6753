"""`xenoovs weight`: another weight than the config, for now."""

from __future__ import annotations

from fractions import Fraction

import click

from xenoovs.cli.agent_client import Where, agent_options, ask, change
from xenoovs.cli.options import Output, output_option
from xenoovs.cli.output import percent, print_json


@click.command("weight")
@click.argument("service")
@click.argument("backend")
@click.argument("weight", required=False)
@agent_options
@output_option
@click.pass_context
def command(
    context: click.Context, /, service: str, backend: str, weight: str | None, output: Output, **given: str | None
) -> None:
    """Give BACKEND of SERVICE another WEIGHT than the config, relative to the others; or, without WEIGHT, show it.

    The running agent does it, and keeps it over reloads and restarts until `xenoovs undrain`, or until the config
    gives this backend another weight. Weight 0 is the same as `xenoovs drain`.
    """
    where = Where(**given)  # type: ignore[arg-type]
    if weight is None:
        _show(where, service, backend, output=output)
    else:
        request = {"service": service, "backend": backend, "weight": _parse(weight)}
        context.exit(change(where, output, "weight", request))


def _parse(text: str) -> Fraction:
    from xenoovs.config import fields
    from xenoovs.config.scalar import parse_plain_scalar

    try:
        return fields.weight(parse_plain_scalar(text))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="WEIGHT") from None


def _show(where: Where, service: str, backend: str, *, output: Output) -> None:
    services = {one["name"]: one for one in ask(where, "status")["snapshot"]["services"]}
    if service not in services:
        raise click.BadParameter(f"{service} is not one of: {', '.join(services)}.", param_hint="SERVICE")
    backends = {one["name"]: one for one in services[service]["backends"]}
    if backend not in backends:
        raise click.BadParameter(f"{backend} is not one of: {', '.join(backends)}.", param_hint="BACKEND")
    found = backends[backend]
    shown = {key: found[key] for key in ("weight", "weight_in_use", "share_wanted", "share_installed")}
    if output is Output.JSON:
        print_json(shown)
    else:
        click.echo(
            f"{service}/{backend}: weight {found['weight_in_use']:g} (the config says {found['weight']:g}), "
            f"{percent(found['share_installed'])} of the address space"
        )
