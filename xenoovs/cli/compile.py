"""`xenoovs compile`: the flows of a config as text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.cli.options import Output, config_argument, load_resolved, output_option
from xenoovs.cli.output import print_json

if TYPE_CHECKING:
    from xenoovs.compile.program import Program


@click.command("compile")
@config_argument
@output_option
def command(config: Path, output: Output) -> None:
    """Print the flows of the config FILE, as `ovs-ofctl --names --no-stats dump-flows` would.

    The text is what `ovs-ofctl -O OpenFlow14 --bundle add-flows` takes. No switch is needed or asked.
    """
    from xenoovs.compile.of_config import compile_config
    from xenoovs.compile.program import sorted_flows
    from xenoovs.openflow.render import render_flow_to_send

    program = compile_config(load_resolved(config))
    if output is Output.JSON:
        print_json(_document(program))
    else:
        click.echo("".join(f"{render_flow_to_send(flow)}\n" for flow in sorted_flows(program.flows)), nl=False)


def _document(program: Program) -> dict[str, object]:
    from xenoovs.openflow.render import render_flow

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
