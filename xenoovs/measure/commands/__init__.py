"""`xenoovs measure`: experiments on a bed, and reports about them."""

from __future__ import annotations

import click

from xenoovs.terminal.command import LazyGroup

# Each command with the module that has it as `NAME_command`, and its one line, so that help imports no command.
_COMMANDS = {
    "load": ("load", "Measure what passes of a load: rate, latency, or loss."),
    "compare": ("compare", "Compare designs, ways to backends, and numbers of entries."),
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
      xenoovs measure load rate --lab --quick
    """
