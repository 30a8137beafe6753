"""Errors: each command in them is listed, and numbers in their sentences agree."""

from __future__ import annotations

import re

import pytest

from tests.fake_switch import FakeSwitch
from tests.judged import assert_recorded
from xenoovs.datapath.database import BridgeState, PortState
from xenoovs.errors import (
    BridgeMissing,
    BundleRejected,
    ControllerPresent,
    FlowsNotRestored,
    OpenFlowVersionDisabled,
    PortsMissing,
    ReadBackDiffers,
    SimulateError,
    SwitchUnresponsive,
    XenoovsError,
    counted,
    worded,
)
from xenoovs.evidence.command_target import THIS_HOST, CommandTarget
from xenoovs.switch.api import require_ports
from xenoovs.switch.stderr import rejected, unreachable

PRIVATE = CommandTarget(db="unix:/x/db.sock", rundir="/x", options=("--db", "unix:/x/db.sock"), config="my.yaml")


def _unusable() -> XenoovsError:
    state = BridgeState("br", ports=(PortState("p0", ofport=None, type="system"),))
    try:
        require_ports(FakeSwitch(state), "br", ["p0"])
    except XenoovsError as error:
        return error
    raise AssertionError


ERRORS = [
    BridgeMissing(bridge="br", present=()),
    PortsMissing(bridge="br", elsewhere={"p0": None, "p1": "other"}, present=("p2",)),
    PortsMissing(bridge="br", elsewhere={"gnv0": None}, present=("p2",), tunnels=("gnv0",)),
    OpenFlowVersionDisabled(bridge="br", version="OpenFlow14", spoken=()),
    ReadBackDiffers(bridge="br", flows=2),
    FlowsNotRestored(reasons={"br": "why"}, files={"br": "/tmp/x"}),
    SwitchUnresponsive(target="/x", reason="it hangs", commands=("systemctl restart openvswitch-switch",)),
    ControllerPresent(bridge="br", present=("tcp:192.0.2.1",)),
    SimulateError(flow="f", unknown="u"),
    rejected("br", "OFPFMFC_TABLE_FULL", "m"),
    unreachable("/x", "Connection refused"),
    _unusable(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_each_command_is_listed_and_none_addresses_the_host_if_another_switch_was_used(error: XenoovsError) -> None:
    commands = re.findall(r"`((?:ovs-|xenoovs|systemctl)[^`]*)`", str(error))
    assert commands
    assert set(commands) == set(error.commands)
    assert THIS_HOST.message(str(error), error.commands) == str(error)
    message = PRIVATE.message(str(error), error.commands)
    assert not re.search(r"`ovs-vsctl (?!--db=)|`ovs-(ofctl|appctl)|`systemctl|FILE`", message)


def test_advice_without_a_command_has_none() -> None:
    assert BundleRejected(bridge="br", error=None, message="m", advice="plan again").commands == ()


def test_the_texts_are_as_recorded(*, update_golden: bool) -> None:
    named = {
        "bug: one flow was 1 flows": ReadBackDiffers(bridge="br", flows=1),
        "bug: mistyped ports were answered with add-port": PortsMissing(
            bridge="br", elsewhere={"pf0phf": None, "x": None}, present=("p0", "pf0hpf")
        ),
        "a mistyped bridge": BridgeMissing(bridge="ovsbr", present=("ovsbr1", "br-int")),
    }
    shown = {f"{number} {type(error).__name__}": error for number, error in enumerate(ERRORS)} | named
    texts = {title: f"{error}\ncommands: {', '.join(error.commands) or 'none'}" for title, error in shown.items()}
    assert_recorded("cli/errors.txt", texts, update=update_golden)


def test_one_is_singular_and_nothing_else() -> None:
    assert [counted(number, "block") for number in (0, 1, 2, -1)] == ["0 blocks", "1 block", "2 blocks", "-1 blocks"]
    assert (counted(1, "entry", "entries"), counted(0, "entry", "entries")) == ("1 entry", "0 entries")
    assert (worded(1, "is", "are"), worded(2, "is", "are")) == ("is", "are")
