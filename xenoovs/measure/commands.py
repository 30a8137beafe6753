"""The group of commands `xenoovs measure`."""

from __future__ import annotations

import click

from xenoovs.terminal.command import LazyGroup

# Each command with the module that defines it as `NAME_command`, and its summary, so that help imports no command.
_COMMANDS = {
    "load": ("load", "Measure the packet rate, the latency or the loss of a load."),
    "compare": ("compare", "Compare designs, ways to backends, and numbers of entries."),
    "check": ("check", "Check what the machines of a bed file lack."),
    "completion": ("completion", "Measure flow completion times during an elephant, with several designs."),
    "echo": ("echo", "Measure round trips of TCP messages through the bridge."),
    "paths": ("paths", "Measure the paths of a DPU, rank them, and combine them until it is saturated."),
    "report": ("report", "Write a report about runs: a page with pictures, verdicts and tables."),
    "trex-profile": ("trex_profile", "Print the load of a config for the packet generator TRex."),
}


@click.group(
    "measure",
    cls=LazyGroup,
    sections={"Commands": {name: text for name, (_, text) in _COMMANDS.items()}},
    modules={name: f"xenoovs.measure.{module}" for name, (module, _) in _COMMANDS.items()},
)
def measure_command() -> None:
    """Measure packet rate, latency and loss, and store every sample.

    An experiment runs on a bed: a lab (--lab), or real machines that a file describes (--bed). Each run is a directory
    in --out. Its samples remain after Ctrl-C or a crash; the same command with --resume continues the run.

    \b
    Example:
      xenoovs lab up my.yaml
      xenoovs apply --lab
      xenoovs measure load rate --lab --quick
    """
