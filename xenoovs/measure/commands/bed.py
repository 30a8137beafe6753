"""`xenoovs measure bed`: the machines of experiments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from xenoovs.errors import counted
from xenoovs.measure.bed_file import load_bed_file
from xenoovs.measure.check import BedFinding, check_bed
from xenoovs.measure.needs import EXPERIMENTS
from xenoovs.terminal.command import EXIT_DIFFERS
from xenoovs.terminal.options import OutputFormat, output_option
from xenoovs.terminal.output import echo, print_table


@click.group("bed")
def bed_command() -> None:
    """Check the machines that play the roles of an experiment.

    \b
    A bed file, with the names of the backends as in the config:
      version: 1
      generator: {host: ssh://root@fips4, interface: ens1f0}
      client:    {host: ssh://root@fips1, interface: ens1f0, address: 10.3.10.42}
      dpu:       {host: ssh://ubuntu@fips5, uplinks: [p0, p1]}
      backends:
        fips2: {host: ssh://root@fips2, interface: ens1f0}
        fips3: {host: ssh://root@fips3, interface: ens1f0}

    `host` is ssh://USER@HOST[:PORT], netns:NAME or lab:NAME. Keys and settings of ssh are those of `ssh HOST`, which
    must not ask for anything. A user who is not root needs sudo without a password. `mac` of the dpu: where the packets
    of services without a VIP's MAC go, if not to the first uplink.
    """


@bed_command.command("check")
@click.argument("bed", metavar="BED", type=click.Path(path_type=Path))
@click.option(
    "--for",
    "experiment",
    type=click.Choice(EXPERIMENTS),
    help="Check for one experiment.  [default: for all]",
)
@output_option
@click.pass_context
def check_command(context: click.Context, /, bed: Path, *, experiment: str | None, output: OutputFormat) -> None:
    """Check what the machines of a bed lack, and print the command that fixes it.

    It changes nothing. Exit status 2: something is missing, without which an experiment fails. Warnings are about
    worse figures, and about what an experiment leaves out.

    \b
    Examples:
      xenoovs measure bed check bed.yaml
      xenoovs measure bed check bed.yaml --for paths
    """
    file = load_bed_file(bed)
    findings = check_bed(file, experiments=EXPERIMENTS if experiment is None else (experiment,))
    is_usable = not any(finding.is_error for finding in findings)
    output.show(
        lambda: {"usable": is_usable, "findings": [asdict(finding) for finding in findings]},
        lambda: _show(findings, machines=len(file.roles)),
    )
    if not is_usable:
        context.exit(EXIT_DIFFERS)


def _show(findings: list[BedFinding], *, machines: int) -> None:
    if not findings:
        echo(f"{counted(machines, 'role')} checked, nothing is missing")
        return
    rows = [
        [finding.role, "error" if finding.is_error else "warning", finding.fix or "-", finding.problem]
        for finding in findings
    ]
    print_table(["ROLE", "KIND", "COMMAND THERE", "PROBLEM"], rows)
