"""`xenoovs restart-ovs`: a planned restart of Open vSwitch after which all flows are there again."""

from __future__ import annotations

import click

from xenoovs.cli.options import Output, connect, output_option, switch_options
from xenoovs.cli.output import print_json


@click.command("restart-ovs")
@switch_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option
def command(db: str | None, lab: str | None, *, yes: bool, output: Output) -> None:
    """Restart Open vSwitch and put all flows and groups back, also those of others.

    Uses Open vSwitch's own flow-restore-wait: until its flows are back the new ovs-vswitchd leaves those of the
    kernel's datapath alone, so that they go on forwarding. That setting is taken away again also when this command is
    killed. Rules in traffic control (hardware offload) forward on until the new ovs-vswitchd starts, which takes them
    away: packets are lost until flows and rules are back. A datapath in user space forwards nothing from the end of
    the old one until then. Meters are not kept.
    """
    from xenoovs.cli.doctor_case import Question
    from xenoovs.cli.doctor_fix import confirm
    from xenoovs.cli.restarting import restart, restart_facts, restart_lines, restart_order
    from xenoovs.cli.where import where_of
    from xenoovs.lab.lab import open_lab
    from xenoovs.switch.host import check_reachable

    switch = connect(db, lab)
    check_reachable(switch.endpoint)
    where = where_of(switch.endpoint, config=None, lab=lab)
    question = Question(None, switch, open_lab(lab) if lab else None, where=where, backends=False)
    order = restart_order(question)
    confirm("Restart Open vSwitch now?", yes=yes)
    done = restart(question, order)
    if output is Output.JSON:
        print_json(restart_facts(done))
        return
    for line in restart_lines(done):
        click.echo(line)
