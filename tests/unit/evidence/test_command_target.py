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


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("ovs-vsctl get Interface p0 type", "ovs-vsctl --db=unix:/run/lab/db.sock get Interface p0 type"),
        ("ovs-appctl revalidator/purge", "OVS_RUNDIR=/run/lab ovs-appctl revalidator/purge"),
        ("ovs-ofctl dump-flows br", "OVS_RUNDIR=/run/lab ovs-ofctl dump-flows br"),
        ("ethtool -K p0 hw-tc-offload on", "nsenter --net=/proc/7/ns/net ethtool -K p0 hw-tc-offload on"),
        ("xenoovs why FILE --reinstall", "xenoovs why 'my config.yaml' --reinstall --lab one"),
        ("sysctl -w a=1", "sysctl -w a=1"),
        # It has no option for a switch.
        ("xenoovs lint FILE --table-size 9", "xenoovs lint 'my config.yaml' --table-size 9"),
        ("# leave it, or its owner's `rule`:", "# leave it, or its owner's `rule`:"),
    ],
)
def test_in_a_lab(command: str, typed: str) -> None:
    assert LAB.text(command) == typed


@pytest.mark.parametrize("command", ["ovs-vsctl show", "ovs-appctl version", "tc qdisc", "xenoovs why FILE"])
def test_on_the_host_itself_nothing_is_added(command: str) -> None:
    assert THIS_HOST.text(command) == command


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("ethtool -K p0 hw-tc-offload on", "xenoovs lab exec --lab one -- ethtool -K p0 hw-tc-offload on"),
        ("ovs-appctl revalidator/purge", "xenoovs lab exec --lab one -- ovs-appctl revalidator/purge"),
        ("ovs-vsctl list-br", "xenoovs lab exec --lab one -- ovs-vsctl list-br"),
        ("xenoovs why FILE --reinstall", "xenoovs why my.yaml --reinstall --lab one"),
        ("# leave it", "# leave it"),
    ],
)
def test_in_a_lab_in_a_machine_commands_run_as_printed_on_the_host(command: str, typed: str) -> None:
    machine = ("xenoovs", "lab", "exec", "--lab", "one", "--")
    target = CommandTarget(db="unix:/x", rundir="/x", options=("--lab", "one"), config="my.yaml", machine=machine)
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
