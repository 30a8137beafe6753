"""`xenoovs validate`: is this config good, and what would it take?"""

from __future__ import annotations

from pathlib import Path

import click

from xenoovs.cli.options import Output, config_argument, load, output_option
from xenoovs.cli.output import percent, print_json, print_table
from xenoovs.errors.words import counted


@click.command("validate")
@config_argument
@output_option
def command(config: Path, output: Output) -> None:
    """Check the config FILE; every mistake is reported at once with file, line and column.

    A good config is answered with what it compiles to: blocks and hardware entries for each service, and whether a NIC
    behind the kernel's traffic control can take the flows (`xenoovs lint` says more).
    """
    from xenoovs.compile.hardware import hardware_entries
    from xenoovs.compile.offloadable.program import check_program
    from xenoovs.compile.offloadable.row import DEFAULT_VERSION, Profile, render_version
    from xenoovs.compile.offloadable.summary import describe
    from xenoovs.compile.program import compile_program

    program = compile_program(load(config))
    services = [
        {
            "service": service.service.name,
            "backends": len(service.service.backends),
            "source_bits": service.assignment.width,
            "tolerance": float(service.assignment.tolerance),
            "blocks": len(service.blocks),
            "hardware_entries": hardware_entries(service),
        }
        for service in program.services
    ]
    profile, version = Profile.TC, render_version(DEFAULT_VERSION)
    offload = describe(check_program(program, profile=profile, version=DEFAULT_VERSION))
    if output is Output.JSON:
        lint = {"profile": profile.value, "ovs": version, "summary": offload}
        print_json({"valid": True, "flows": len(program.flows), "services": services, "lint": lint})
        return
    rows = [
        [
            str(row["service"]),
            str(row["backends"]),
            str(row["source_bits"]),
            percent(service.assignment.tolerance),
            str(row["blocks"]),
            str(row["hardware_entries"]),
        ]
        for row, service in zip(services, program.services, strict=True)
    ]
    headers = ["SERVICE", "BACKENDS", "SOURCE BITS", "TOLERANCE", "BLOCKS", "HARDWARE ENTRIES"]
    print_table(headers, rows, right=range(1, 6))
    click.echo(f"\n{config}: good, {counted(len(program.flows), 'flow')}")
    click.echo(f"offload ({profile.value}, Open vSwitch {version}): {offload}")
