"""`xenoovs lint`: can the NIC take these flows, and what will they cost?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.options import Output, output_option
from xenoovs.compile.offloadable.row import DEFAULT_VERSION, Profile, Version, parse_version, render_version

if TYPE_CHECKING:
    from xenoovs.cli.lint_look import Lint

_FILE = click.Path(allow_dash=True, path_type=Path)


def _version(_context: click.Context, _parameter: click.Parameter, value: str) -> Version:
    try:
        return parse_version(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("lint")
@click.argument("config", metavar="[FILE]", required=False, type=click.Path(allow_dash=True, path_type=Path))
@click.option(
    "--profile",
    type=click.Choice([profile.value for profile in Profile]),
    default=Profile.TC.value,
    show_default=True,
    callback=lambda _context, _parameter, value: Profile(value),
    help="How Open vSwitch reaches the NIC: the kernel's traffic control, NVIDIA's OVS-DOCA, or DPDK.",
)
@click.option(
    "--ovs",
    "version",
    metavar="VERSION",
    default=render_version(DEFAULT_VERSION),
    show_default=True,
    callback=_version,
    help="Version of Open vSwitch, known from 2.13 to 4.0, later ones judged as 4.0; DOCA does not look at it.",
)
@click.option("--flows", type=_FILE, help="Judge the flows of this `ovs-ofctl dump-flows`; - reads standard input.")
@click.option("--groups", type=_FILE, help="The groups of that bridge: `ovs-ofctl -O OpenFlow15 dump-groups`.")
@click.option("--table-size", type=click.IntRange(min=1), help="Entries that the NIC's table holds.")
@click.option("--client-macs", type=click.IntRange(min=1), help="MACs that clients' packets come with (routers: few).")
@click.option("--strict", is_flag=True, help="Exit with 2 also where it depends.")
@click.option("--all", "everything", is_flag=True, help="Show the reasons of flows in hardware, too.")
@output_option
@click.pass_context
def command(context: click.Context, /, config: Path | None, *, output: Output, **options: Any) -> None:
    """Say of each flow, before any NIC sees it, whether it can be forwarded in hardware, why not, and what it costs.

    Judges the flows of the config FILE, those of others in a dump (--flows), or both: then also what the flows of
    others cost beside ours. The answer comes from a table of what each version of Open vSwitch translates; what a NIC's
    driver refuses, only the NIC can say (`xenoovs verify-offload`, `xenoovs why`).

    \b
    HW       in the NIC, if its driver agrees           DEPENDS  on more than the flow shows
    PARTIAL  the NIC matches, the CPU forwards          TC_SW    in traffic control, which drivers refuse
    SW       in software: Open vSwitch cannot translate it

    Answers to ARP and neighbour discovery are software by design and not counted.
    Exit status 0: the NIC can take all flows, 2: some not, or its table is too small, 1: it could not look.
    """
    from xenoovs.cli.lint_look import look
    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK
    from xenoovs.cli.show_lint import lint_document, show_lint

    if config is None and options["flows"] is None:
        raise click.UsageError("Name a config FILE, or a dump with --flows.")
    if options["groups"] is not None and options["flows"] is None:
        raise click.UsageError("--groups needs --flows.")
    found = look(config, **options)
    if output is Output.JSON:
        from xenoovs.cli.output import print_json

        print_json(lint_document(found, everything=options["everything"]))
    else:
        show_lint(found, everything=options["everything"])
    context.exit(EXIT_DIFFERS if _is_bad(found, strict=options["strict"]) else EXIT_OK)


def _is_bad(found: Lint, *, strict: bool) -> bool:
    from xenoovs.compile.offloadable.cost import Cost

    results = [result for result in (found.program, found.dump) if result is not None]
    lost = any(result.lost or (strict and result.open) for result in results)
    return lost or any(finding.cost is Cost.TABLE_FULL for finding in found.costs)
