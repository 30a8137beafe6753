"""Copied commands reach the right Open vSwitch."""

from __future__ import annotations

from tests.judged import assert_recorded
from xenoovs.evidence.command_target import THIS_HOST, CommandTarget

TARGETS = {
    "this host": THIS_HOST,
    "a lab": CommandTarget(
        db="unix:/run/lab/db.sock",
        rundir="/run/lab",
        options=("--lab", "one"),
        enter=("nsenter", "--net=/proc/7/ns/net"),
        config="my config.yaml",
    ),
    "a private Open vSwitch": CommandTarget(db="unix:/x/db.sock", rundir="/x", options=("--db", "unix:/x/db.sock")),
    # In a machine commands run as printed on the host.
    "a machine": CommandTarget(
        db="unix:/x",
        rundir="/x",
        options=("--lab", "one"),
        config="my.yaml",
        machine=("xenoovs", "lab", "exec", "--lab", "one", "--"),
    ),
    # `verify-offload` suggested `xenoovs plan`, which refuses the file of a DPU.
    "a DPU of a fleet": CommandTarget(options=("--db", "unix:/x"), config="dpu.yaml", is_of_fleet=True),
}
COMMANDS = (
    *("ovs-vsctl get Interface p0 type", "ovs-appctl revalidator/purge", "ovs-ofctl dump-flows br", "sysctl -w a=1"),
    *("ethtool -K p0 hw-tc-offload on", "tc qdisc", "xenoovs why FILE --reinstall", "xenoovs plan FILE"),
    # It has no option for a switch.
    "xenoovs lint FILE --table-size 9",
    *("xenoovs apply FILE", "# leave it, or its owner's `rule`:"),
)
MESSAGES = {
    "2 flows are missing; see `xenoovs plan`": ("xenoovs plan",),
    "see `xenoovs plan FILE`": ("xenoovs plan FILE",),
    "`xenoovs apply FILE` restores them": ("xenoovs apply FILE",),
}


def test_commands_are_typed_so_that_they_reach_the_target(*, update_golden: bool) -> None:
    shown = {}
    for title, target in TARGETS.items():
        typed = [f"{command} -> {target.text(command)}" for command in COMMANDS]
        typed += [f"restart: {target.text(command)}" for command in target.restart]
        typed += [f"{text} => {target.message(text, commands)}" for text, commands in MESSAGES.items()]
        shown[title] = "\n".join(typed)
    assert_recorded("cli/command_targets.txt", shown, update=update_golden)
