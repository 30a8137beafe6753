"""Commands about a config alone: new, validate, compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from xenoovs.compile.offloadable.check import check_program, describe
from xenoovs.compile.offloadable.cost import check_clients
from xenoovs.compile.offloadable.table import DEFAULT_VERSION, Profile, render_version
from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import Program, ServiceProgram, compile_config, sorted_flows
from xenoovs.decision.decide import tolerance_of
from xenoovs.display import percent
from xenoovs.errors import counted, did_you_mean
from xenoovs.model.templates import describe_templates, read_template, template_names
from xenoovs.openflow.text import render_flow, render_flow_to_send
from xenoovs.terminal.completion import complete_template
from xenoovs.terminal.load import load, load_resolved
from xenoovs.terminal.options import OutputFormat, config_argument, output_option
from xenoovs.terminal.output import echo, print_json, print_table, print_text


@click.command("new")
@click.argument("template", required=False, metavar="[TEMPLATE]", shell_complete=complete_template)
def new_command(template: str | None) -> None:
    """Print the config TEMPLATE; without a name, list the templates.

    \b
    Example:
      xenoovs new quickstart > my.yaml
    """
    if template is None:
        print_table(["TEMPLATE", "CONFIG"], map(list, describe_templates().items()))
        return
    if template not in (names := template_names()):
        guess = did_you_mean(template, names) or f" There are {', '.join(names)}."
        raise click.UsageError(f"There is no template {template!r}.{guess}")
    echo(read_template(template), nl=False)


@click.command("validate")
@config_argument
@output_option
def validate_command(config: Path, output: OutputFormat) -> None:
    """Check the config FILE, and report mistakes with file, line and column: all wrong values at once, then
    values that contradict each other.

    For a valid config, prints the blocks and hardware entries of each service, and whether a NIC behind the kernel's
    traffic control can offload the flows (`xenoovs lint` shows details). A note names a drawback for the clients of a
    service, such as connections of one client at several backends.
    """
    balancer = load(config, of_dpu=True)
    program = compile_config(balancer)
    services, notes = [_facts(service) for service in program.services], check_clients(program)
    profile, version = Profile.TC, render_version(DEFAULT_VERSION)
    encrypted = balancer.cpu_encrypted_ports
    offload = describe(check_program(program, profile=profile, version=DEFAULT_VERSION, encrypted=encrypted))
    if output is OutputFormat.JSON:
        lint = {"profile": profile.value, "ovs": version, "summary": offload}
        documents = [{"service": note.service, "note": note.cost.value, "text": note.text} for note in notes]
        flows = len(program.flows)
        print_json({"valid": True, "flows": flows, "services": services, "notes": documents, "lint": lint})
        return
    rows = [
        [percent(value) if name == "tolerance" else str(value) for name, value in facts.items()] for facts in services
    ]
    headers = ["SERVICE", "BACKENDS", "SOURCE BITS", "TOLERANCE", "BLOCKS", "HARDWARE ENTRIES"]
    print_table(headers, rows, right=range(1, 6))
    for note in notes:
        print_text(f"\nnote: {note.service}: {note.text}", fg="yellow")
    echo(f"\n{config}: valid, {counted(len(program.flows), 'flow')}")
    echo(f"offload ({profile.value}, Open vSwitch {version}): {offload}")


def _facts(compiled: ServiceProgram) -> dict[str, Any]:
    """Return the values in the order of the columns."""
    return {
        "service": compiled.service.name,
        "backends": len(compiled.service.backends),
        "source_bits": compiled.decision.active.depth,
        "tolerance": float(tolerance_of(compiled.service)),
        "blocks": len(compiled.blocks),
        "hardware_entries": hardware_entries(compiled),
    }


@click.command("compile")
@config_argument
@output_option
def compile_command(config: Path, output: OutputFormat) -> None:
    """Print the OpenFlow flows of the config FILE, as `ovs-ofctl --names --no-stats dump-flows` does.

    `ovs-ofctl -O OpenFlow14 --bundle add-flows` accepts the text. No switch is needed.
    """
    program = compile_config(load_resolved(config))
    text = (f"{render_flow_to_send(flow)}\n" for flow in sorted_flows(program.flows))
    output.show(lambda: _document(program), lambda: echo("".join(text), nl=False))


def _document(program: Program) -> dict[str, object]:
    return {
        "flows": [render_flow(flow) for flow in program.flows],
        "services": [
            {
                "name": service.service.name,
                "id": service.service_id,
                "source_bits": service.decision.active.depth,
                "blocks": [
                    {"backend": block.backend.name, "depth": block.rule.depth, "flow": render_flow(block.flow)}
                    for block in service.blocks
                ],
            }
            for service in program.services
        ],
    }
