"""The hint while a bridge does not connect: a command that connects it and keeps its other controllers."""

from __future__ import annotations

import shlex

import pytest

from xenoovs.controller.bridge import ConnectHint, ExpectedBridge
from xenoovs.controller.listen import parse_address
from xenoovs.errors import SwitchUnreachable

_TARGET = "tcp:127.0.0.1:6653"


def reason(hint: ConnectHint) -> str:
    with pytest.raises(SwitchUnreachable) as caught:
        ExpectedBridge("ovsbr1", hint=hint).connected()
    return caught.value.reason


def test_a_bridge_that_never_connected_gets_the_command_to_connect_it() -> None:
    text = reason(ConnectHint(_TARGET))
    assert text == "it has not connected; to connect it run `ovs-vsctl set-controller ovsbr1 tcp:127.0.0.1:6653`"


def test_the_command_leads_to_the_open_vswitch_that_was_named() -> None:
    assert "`ovs-vsctl --db=unix:/x/db.sock set-controller ovsbr1 tcp:" in reason(
        ConnectHint(_TARGET, "unix:/x/db.sock")
    )


def test_the_command_keeps_other_controllers() -> None:
    command = ConnectHint(_TARGET, is_redundant=True).command("ovsbr1")
    assert "set-controller" not in reason(ConnectHint(_TARGET, is_redundant=True))
    assert shlex.split(command)[4:6] == ["controller", 'target="tcp:127.0.0.1:6653"']
    assert shlex.split(command)[-5:] == ["add", "bridge", "ovsbr1", "controller", "@c"]


def test_with_a_launcher_the_command_names_no_guessed_port() -> None:
    text = reason(ConnectHint())
    assert "tcp:ADDRESS:PORT` with the address and port at which the launcher listens" in text
    assert "6653" not in text


@pytest.mark.parametrize(
    ("text", "is_local"),
    [("127.0.0.1:6653", True), ("[::1]:0", True), ("0.0.0.0:6653", False), ("[2001:db8::1]:65535", False)],
)
def test_valid_addresses(text: str, is_local: bool) -> None:
    address = parse_address(text)
    assert (str(address), address.is_local) == (text, is_local)


@pytest.mark.parametrize("text", ["", "6653", "localhost:6653", "127.0.0.1", "::1:6653", "127.0.0.1:65536", "[1]:2"])
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_address(text)
