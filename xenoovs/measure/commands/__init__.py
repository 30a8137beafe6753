"""`xenoovs measure`: experiments on a bed, and reports about them."""

from __future__ import annotations

import click

from xenoovs.terminal.command import LazyGroup

# Each command with the module that has it as `NAME_command`, and its one line, so that help imports no command.
_COMMANDS = {
    "rate": ("load", "Measure the packet rate over the size of frames."),
    "latency": ("load", "Measure round trips of DNS requests under a base load."),
    "loss": ("load", "Measure the loss over the offered load."),
    "designs": ("designs", "Compare masked blocks with other ways to split clients."),
    "next-hops": ("designs", "Compare ways to backends: direct, by tunnels, with NAT."),
    "entries": ("entries", "Measure packets beside 1 to 65,536 active entries."),
    "insert": ("entries", "Measure how fast new entries come, and changes under load."),
    "check": ("run", "Check what the machines of a bed file lack."),
    "completion": ("completion", "Measure flow completion times beside an elephant, by several designs."),
    "echo": ("echo", "Measure round trips of TCP messages through the bridge."),
    "paths": ("paths", "Measure the paths of a DPU, rank them, and combine them until it is saturated."),
    "report": ("report", "Write a report about runs: a page with pictures, verdicts and tables."),
    "trex-profile": ("load", "Print the load of a config for the packet generator TRex."),
}


@click.group(
    "measure",
    cls=LazyGroup,
    sections={"Commands": {name: text for name, (_, text) in _COMMANDS.items()}},
    modules={name: f"{__name__}.{module}" for name, (module, _) in _COMMANDS.items()},
)
def measure_command() -> None:
    """Measure packet rate, latency and loss, and store every sample.

    An experiment runs on a bed: a lab (--lab), or real machines that a file describes (--bed). Each run is a directory
    in --out. What was measured stays there after Ctrl-C or a crash; the same command with --resume goes on.

    \b
    Example:
      xenoovs lab up my.yaml
      xenoovs apply --lab
      xenoovs measure rate --lab --quick
    """
