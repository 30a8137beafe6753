"""`xenoovs validate`: is this config good, and what would it take?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.options import Output, config_argument, load, output_option
from xenoovs.cli.output import percent, print_json, print_table, say
from xenoovs.errors.words import counted

if TYPE_CHECKING:
    from xenoovs.compile.program import ServiceProgram


@click.command("validate")
@config_argument
@output_option
def command(config: Path, output: Output) -> None:
    """Check the config FILE; every mistake is reported at once with file, line and column.

    A good config is answered with what it compiles to: blocks and hardware entries for each service, and whether a NIC
    behind the kernel's traffic control can take the flows (`xenoovs lint` says more). A note says what the clients of
    a service lose by how it is balanced.
    """
    from xenoovs.compile.of_config import compile_config
    from xenoovs.compile.offloadable.cost import check_clients
    from xenoovs.compile.offloadable.program import check_program
    from xenoovs.compile.offloadable.row import DEFAULT_VERSION, Profile, render_version
    from xenoovs.compile.offloadable.summary import describe

    program = compile_config(load(config))
    services, notes = [_facts(service) for service in program.services], check_clients(program)
    profile, version = Profile.TC, render_version(DEFAULT_VERSION)
    offload = describe(check_program(program, profile=profile, version=DEFAULT_VERSION))
    if output is Output.JSON:
        lint = {"profile": profile.value, "ovs": version, "summary": offload}
        told = [{"service": note.service, "note": note.cost.value, "text": note.text} for note in notes]
        print_json({"valid": True, "flows": len(program.flows), "services": services, "notes": told, "lint": lint})
        return
    rows = [
        [percent(value) if name == "tolerance" else str(value) for name, value in facts.items()] for facts in services
    ]
    headers = ["SERVICE", "BACKENDS", "SOURCE BITS", "TOLERANCE", "BLOCKS", "HARDWARE ENTRIES"]
    print_table(headers, rows, right=range(1, 6))
    for note in notes:
        say(f"\nnote: {note.service}: {note.text}", fg="yellow")
    click.echo(f"\n{config}: good, {counted(len(program.flows), 'flow')}")
    click.echo(f"offload ({profile.value}, Open vSwitch {version}): {offload}")


def _facts(compiled: ServiceProgram) -> dict[str, Any]:
    """In the order of the columns."""
    from xenoovs.compile.hardware import hardware_entries
    from xenoovs.decision.decide import tolerance_of

    return {
        "service": compiled.service.name,
        "backends": len(compiled.service.backends),
        "source_bits": compiled.decision.active.depth,
        "tolerance": float(tolerance_of(compiled.service)),
        "blocks": len(compiled.blocks),
        "hardware_entries": hardware_entries(compiled),
    }
