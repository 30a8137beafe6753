"""The switch in memory: atomic, one flow a key, foreign flows hidden, and injected faults."""

from __future__ import annotations

import pytest

from tests.fake_switch import FakeSwitch, fake_bridge
from xenoovs.errors import BridgeMissing, BundleRejected, OtherDatapath, PortsMissing, SwitchUnreachable
from xenoovs.openflow.flow import Bundle, Command, Flow, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.switch.api import Switch, require_ports

_OURS = parse_flow("cookie=0x786f000000000001, priority=5,ip actions=output:p1")
_CHANGED = parse_flow("cookie=0x786f000000000002, priority=5,ip actions=drop")
_FOREIGN = parse_flow("cookie=0x1, priority=1 actions=NORMAL")


@pytest.fixture
def switch() -> FakeSwitch:
    made = FakeSwitch(fake_bridge("br0", ["p0", "p1"]), fake_bridge("br1", ["p2"]))
    made.install("br0", [_OURS, _FOREIGN])
    return made


def _bundle(command: Command, *flows: Flow) -> Bundle:
    return Bundle(tuple(FlowMod(command, flow) for flow in flows))


def _flows(switch: Switch) -> list[Flow]:
    return [seen.flow for seen in switch.dump_flows("br0")]


def test_an_unknown_port_refuses_the_whole_bundle(switch: FakeSwitch) -> None:
    bad = parse_flow("cookie=0x786f000000000001, priority=7 actions=output:p2")
    with pytest.raises(BundleRejected):
        switch.apply("br0", _bundle(Command.ADD, _CHANGED, bad))
    assert _flows(switch) == [_OURS]
    assert switch.applied == []


def test_a_failure_comes_once_and_changes_nothing(switch: FakeSwitch) -> None:
    switch.fail_next(SwitchUnreachable(target="x", reason="injected"))
    with pytest.raises(SwitchUnreachable):
        switch.apply("br0", _bundle(Command.ADD, _CHANGED))
    assert _flows(switch) == [_OURS]


def test_a_lost_answer_comes_after_the_change(switch: FakeSwitch) -> None:
    switch.lose_answer(SwitchUnreachable(target="x", reason="injected"))
    with pytest.raises(SwitchUnreachable):
        switch.apply("br0", _bundle(Command.ADD, _CHANGED))
    assert _flows(switch) == [_CHANGED]


def test_ports_are_required_by_name(switch: FakeSwitch) -> None:
    assert require_ports(switch, "br0", ["p0", "p1"]).ofports == {"br0": 65534, "p0": 1, "p1": 2}
    with pytest.raises(PortsMissing) as caught:
        require_ports(switch, "br0", ["p0", "p2", "p9"])
    assert caught.value.elsewhere == {"p2": "br1", "p9": None}
    assert caught.value.present == ("p0", "p1")
    with pytest.raises(BridgeMissing):
        require_ports(switch, "br7", ["p0"])


def test_a_datapath_id_is_required_where_the_config_has_one(switch: FakeSwitch) -> None:
    with pytest.raises(OtherDatapath) as caught:
        require_ports(switch, "br0", ["p0"], datapath_id=0xAB)
    assert (caught.value.wanted, caught.value.found) == ("00000000000000ab", None)
