"""What a user is told who waits for a bridge: a command that does what is meant, and drives no others away."""

from __future__ import annotations

import shlex

import pytest

from xenoovs.controller.bridge import ConnectHint, ExpectedBridge
from xenoovs.errors import SwitchUnreachable

_TARGET = "tcp:127.0.0.1:6653"


def reason(hint: ConnectHint) -> str:
    with pytest.raises(SwitchUnreachable) as caught:
        ExpectedBridge("ovsbr1", hint=hint).connected()
    return caught.value.reason


def test_a_bridge_that_never_came_is_told_where_to_go() -> None:
    text = reason(ConnectHint(_TARGET))
    assert text == "it has not connected; to connect it run `ovs-vsctl set-controller ovsbr1 tcp:127.0.0.1:6653`"


def test_the_command_leads_to_the_open_vswitch_that_was_named() -> None:
    assert "`ovs-vsctl --db=unix:/x/db.sock set-controller ovsbr1 tcp:" in reason(
        ConnectHint(_TARGET, "unix:/x/db.sock")
    )


def test_beside_others_no_other_controller_is_driven_away() -> None:
    command = ConnectHint(_TARGET, is_redundant=True).command("ovsbr1")
    assert "set-controller" not in reason(ConnectHint(_TARGET, is_redundant=True))
    assert shlex.split(command)[4:6] == ["controller", 'target="tcp:127.0.0.1:6653"']
    assert shlex.split(command)[-5:] == ["add", "bridge", "ovsbr1", "controller", "@c"]


def test_where_a_launcher_listens_no_port_is_made_up() -> None:
    text = reason(ConnectHint())
    assert "tcp:ADDRESS:PORT` with the address and port at which the launcher listens" in text
    assert "6653" not in text
