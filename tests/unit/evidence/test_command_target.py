"""Copied commands reach the right Open vSwitch."""

from __future__ import annotations

import pytest

from xenoovs.evidence.command_target import THIS_HOST, CommandTarget

LAB = CommandTarget(
    db="unix:/run/lab/db.sock",
    rundir="/run/lab",
    options=("--lab", "one"),
    enter=("nsenter", "--net=/proc/7/ns/net"),
    config="my config.yaml",
)
PRIVATE = CommandTarget(db="unix:/x/db.sock", rundir="/x", options=("--db", "unix:/x/db.sock"))


IN_MACHINE = CommandTarget(
    db="unix:/x",
    rundir="/x",
    options=("--lab", "one"),
    config="my.yaml",
    machine=("xenoovs", "lab", "exec", "--lab", "one", "--"),
)


@pytest.mark.parametrize(
    ("target", "command", "typed"),
    [
        (LAB, "ovs-vsctl get Interface p0 type", "ovs-vsctl --db=unix:/run/lab/db.sock get Interface p0 type"),
        (LAB, "ovs-appctl revalidator/purge", "OVS_RUNDIR=/run/lab ovs-appctl revalidator/purge"),
        (LAB, "ovs-ofctl dump-flows br", "OVS_RUNDIR=/run/lab ovs-ofctl dump-flows br"),
        (LAB, "ethtool -K p0 hw-tc-offload on", "nsenter --net=/proc/7/ns/net ethtool -K p0 hw-tc-offload on"),
        (LAB, "xenoovs why FILE --reinstall", "xenoovs why 'my config.yaml' --reinstall --lab one"),
        (LAB, "sysctl -w a=1", "sysctl -w a=1"),
        # It has no option for a switch.
        (LAB, "xenoovs lint FILE --table-size 9", "xenoovs lint 'my config.yaml' --table-size 9"),
        (LAB, "# leave it, or its owner's `rule`:", "# leave it, or its owner's `rule`:"),
        *((THIS_HOST, same, same) for same in ("ovs-vsctl show", "ovs-appctl version", "tc qdisc", "xenoovs why FILE")),
        # In a machine commands run as printed on the host.
        *(
            (IN_MACHINE, command, f"xenoovs lab exec --lab one -- {command}")
            for command in ("ethtool -K p0 hw-tc-offload on", "ovs-appctl revalidator/purge", "ovs-vsctl list-br")
        ),
        (IN_MACHINE, "xenoovs why FILE --reinstall", "xenoovs why my.yaml --reinstall --lab one"),
        (IN_MACHINE, "# leave it", "# leave it"),
    ],
)
def test_a_command_is_typed_so_that_it_reaches_the_target(target: CommandTarget, command: str, typed: str) -> None:
    assert target.text(command) == typed


def test_restart() -> None:
    assert THIS_HOST.restart == ("systemctl restart openvswitch-switch", "xenoovs apply FILE")
    assert tuple(map(LAB.text, LAB.restart)) == ("xenoovs doctor 'my config.yaml' --fix --restart-ovs --lab one",)
    assert tuple(map(PRIVATE.text, PRIVATE.restart)) == (
        "# restart the ovs-vswitchd of /x yourself: it is no service of this host",
        "xenoovs apply FILE --db unix:/x/db.sock",
    )


def test_on_a_dpu_of_a_fleet_no_command_refuses_its_file() -> None:
    """`verify-offload` suggested `xenoovs plan`, which refuses the file of a DPU."""
    dpu = CommandTarget(options=("--db", "unix:/x"), config="dpu.yaml", is_of_fleet=True)
    seen = dpu.message("2 flows are missing; see `xenoovs plan`", ("xenoovs plan",))
    assert seen == "2 flows are missing; see `xenoovs status --db unix:/x`"
    assert (
        dpu.message("see `xenoovs plan FILE`", ("xenoovs plan FILE",)) == "see `xenoovs status dpu.yaml --db unix:/x`"
    )
    assert dpu.message("`xenoovs apply FILE` restores them", ("xenoovs apply FILE",)) == "the agent restores them"
    assert "xenoovs fleet plan CONFIG" in dpu.text("xenoovs plan FILE")
    assert "xenoovs fleet apply CONFIG" in dpu.text("xenoovs apply FILE")
    assert all(dpu.text(f"xenoovs {command} FILE").startswith("# ") for command in ("plan", "apply"))
    assert dpu.text("xenoovs why FILE --reinstall") == "xenoovs why dpu.yaml --reinstall --db unix:/x"
