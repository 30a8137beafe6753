"""Both ways to a real ovs-vswitchd: what a switch says of bridges, and what it does to flows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest

from tests.ovs.dummy import DummyBridge, DummyOvs, ofctl, udp_packet
from tests.ovs.ways import Way, live_switch
from tests.patience import eventually
from xenoovs.compile.pipeline import LEARNED, PROGRAM, Stage, cookie_of, of_service
from xenoovs.errors import (
    BridgeMissing,
    BundleRejected,
    CommandFailed,
    OpenFlowVersionDisabled,
    OtherDatapath,
    PortsMissing,
    SwitchUnreachable,
    UnusablePorts,
)
from xenoovs.openflow.flow import FOREIGN, OURS, Bundle, Command, Flow, FlowMod, why_unusable
from xenoovs.openflow.text import Recognised, parse_dump, parse_flow, recognise, render_flow
from xenoovs.switch.api import Switch, require_ports

pytestmark = pytest.mark.each_release

_OURS = parse_flow("cookie=0x786f000000000001, priority=10,ip,nw_src=0.0.0.1/0.0.0.1 actions=output:p1")
_FOREIGN = "add cookie=0x5,table=0,priority=1 actions=NORMAL\nadd table=0,priority=2,ip actions=drop\n"


def _add(*flows: Flow) -> Bundle:
    return Bundle(tuple(FlowMod(Command.ADD, flow) for flow in flows))


@pytest.fixture
def switch(way: Way, bridge: DummyBridge) -> Switch:
    return way.switch(bridge.ovs)


def test_a_bridge_is_described(way: Way, dummy_ovs: DummyOvs) -> None:
    with dummy_ovs.bridge("brx", ports=("p-1.x", "p0")) as bridge:
        bridge.ovs.vsctl("set-controller", "brx", "tcp:127.0.0.1:1")
        bridge.ovs.vsctl("set", "bridge", "brx", "protocols=OpenFlow13,OpenFlow14")
        state = way.switch(dummy_ovs).describe("brx")
    assert state.ofports == {"brx": 65534, "p-1.x": 1, "p0": 2}
    assert (state.datapath_type, state.fail_mode, state.hw_offload) == ("dummy", "secure", None)
    assert "tcp:127.0.0.1:1" in [controller.target for controller in state.controllers]
    port = state.port("p0")
    assert port is not None
    assert (port.type, port.link_up, port.error) == ("dummy", True, None)


def test_hardware_offload_is_told(way: Way, own_ovs: DummyOvs) -> None:
    with own_ovs.bridge():
        for setting, told in (("false", False), ("true", True)):
            own_ovs.ovs.vsctl("set", "Open_vSwitch", ".", f"other_config:hw-offload={setting}")
            assert way.switch(own_ovs).describe("ovsbr1").hw_offload is told


def test_a_flow_that_was_added_by_openflow_1_0_is_read_as_ovs_ofctl_shows_it(
    switch: Switch, dummy_ovs: DummyOvs, bridge: DummyBridge
) -> None:
    """Found in a report of verify-offload: `reset_counts`, which ovs-ofctl without -O neither takes nor shows."""
    ofctl(bridge.ovs, "add-flow", bridge.management, "priority=5,ip actions=drop")
    shown = bridge.dump_flows()
    assert [render_flow(seen.flow) for seen in switch.dump_flows("ovsbr1", only=FOREIGN)] == shown
    assert [render_flow(seen.flow) for seen in live_switch(dummy_ovs.ovs).dump_foreign_flows("ovsbr1")] == shown
    assert "priority=5,ip actions=drop" in shown


def test_flows_of_others_are_neither_listed_nor_touched(switch: Switch, bridge: DummyBridge) -> None:
    bridge.add_flows(_FOREIGN)
    switch.apply("ovsbr1", _add(_OURS))
    assert [seen.flow for seen in switch.dump_flows("ovsbr1")] == [_OURS]
    assert switch.count_flows("ovsbr1", only=FOREIGN) == 2
    switch.apply("ovsbr1", Bundle((FlowMod(Command.DELETE, _OURS),)))
    assert switch.dump_flows("ovsbr1") == ()
    assert switch.count_flows("ovsbr1", only=FOREIGN) == 2


def test_flows_are_read_by_their_cookies(switch: Switch) -> None:
    """Of thousands that a drain has learned none is sent by the switch to one who wants the program."""
    flows = {
        (stage, service): replace(_OURS, cookie=cookie_of(stage, service), key=replace(_OURS.key, priority=number))
        for number, (stage, service) in enumerate(product(Stage, (7, 8)), start=1)
    }
    switch.apply("ovsbr1", _add(*flows.values()))
    learned = {flows[Stage.LEARNED, service] for service in (7, 8)}
    wanted = {
        OURS: set(flows.values()),
        LEARNED: learned,
        PROGRAM: set(flows.values()) - learned,
        of_service(7): {flow for (_, service), flow in flows.items() if service == 7} - learned,
        of_service(7, [Stage.LEARNED]): {flows[Stage.LEARNED, 7]},
    }
    for only, expected in wanted.items():
        assert {seen.flow for seen in switch.dump_flows("ovsbr1", only=only)} == expected
        assert {seen.flow for seen in parse_dump(switch.dump_flow_text("ovsbr1", only=only))} == expected
        assert switch.count_flows("ovsbr1", only=only) == len(expected)


def test_a_large_table_has_the_same_text(switch: Switch) -> None:
    flows = [replace(_OURS, key=replace(_OURS.key, priority=number)) for number in range(1, 1000)]
    texts = []
    for number in (10, 1000):
        switch.apply("ovsbr1", _add(*flows[:number]))
        texts.append(switch.dump_flow_text("ovsbr1"))
    assert set(texts[0].splitlines()) < set(texts[1].splitlines())
    assert recognise(texts[1], {render_flow(flow): flow for flow in flows}) == Recognised({}, ())


def test_what_is_only_known_as_text_is_removed(switch: Switch, bridge: DummyBridge) -> None:
    """Among so many flows that ovs-ofctl dumps them; no codec of ours knows the bytes of its words."""
    mine = "".join(f"add cookie=0x786f000000000001,priority={number},ip actions=drop\n" for number in range(1, 1000))
    bridge.add_flows(f"{mine}add cookie=0x786f000000000001,priority=5,ct_state=+new+trk,ip actions=ct(commit)\n")
    (odd,) = [seen.flow for seen in parse_dump(switch.dump_flow_text("ovsbr1")) if seen.flow.match.foreign]
    switch.apply("ovsbr1", Bundle((FlowMod(Command.DELETE, odd),)))
    assert not [line for line in bridge.dump_flows() if "ct_state" in line]


def test_flows_of_others_are_described_in_words(dummy_ovs: DummyOvs, bridge: DummyBridge) -> None:
    switch = live_switch(dummy_ovs.ovs)
    assert switch.dump_foreign_flows("ovsbr1") == ()
    bridge.add_flows("add cookie=0x5,priority=1,ip actions=ct(commit,zone=7),NORMAL\n")
    (seen,) = switch.dump_foreign_flows("ovsbr1")
    assert render_flow(seen.flow) == "cookie=0x5, priority=1,ip actions=ct(commit,zone=7),NORMAL"


def test_modifying_keeps_counters(switch: Switch, bridge: DummyBridge) -> None:
    switch.apply("ovsbr1", _add(_OURS))
    bridge.send("p0", [udp_packet("192.0.2.1")] * 7)
    bridge.ovs.appctl("revalidator/purge")
    changed = parse_flow("cookie=0x786f000000000001, priority=10,ip,nw_src=0.0.0.1/0.0.0.1 actions=drop")
    switch.apply("ovsbr1", Bundle((FlowMod(Command.MODIFY, changed),)))
    (seen,) = switch.dump_flows("ovsbr1")
    assert (seen.flow, seen.packets, seen.bytes) == (changed, 7, 700)


def test_named_tables_are_understood(switch: Switch, bridge: DummyBridge) -> None:
    """Found when an operator had named table 1: dumps then say table=classify, which no number stands for."""
    for number, name in ((0, '"front door"'), (1, "balance")):
        tables = ["--", "set", "bridge", "ovsbr1", f"flow_tables:{number}=@t"]
        bridge.ovs.vsctl("--", "--id=@t", "create", "Flow_Table", f"name={name}", *tables)
    flows = [
        parse_flow("cookie=0x786f000000000001, priority=1 actions=resubmit(,1)"),
        parse_flow("cookie=0x786f000000000001, table=1, priority=1 actions=output:p1"),
    ]
    switch.apply("ovsbr1", _add(*flows))
    assert [seen.flow for seen in switch.dump_flows("ovsbr1")] == flows


def test_megaflows_and_traces_are_handed_through(switch: Switch, bridge: DummyBridge) -> None:
    switch.apply("ovsbr1", _add(_OURS))
    bridge.send("p0", [udp_packet("192.0.2.1")])
    assert "ipv4(src=192.0.2.1/0.0.0.1," in switch.dump_megaflows()
    assert "Datapath actions: p1" in switch.trace("ovsbr1", "in_port=p0,ip,nw_src=192.0.2.1")
    with pytest.raises(CommandFailed, match="bad value for in_port"):
        switch.trace("ovsbr1", "in_port=nosuch")


def test_megaflows_of_no_datapath_and_of_several(own_ovs: DummyOvs) -> None:
    switch = live_switch(own_ovs.ovs)
    assert switch.dump_megaflows() == ""
    with own_ovs.bridge() as bridge:
        switch.apply("ovsbr1", _add(_OURS))
        bridge.send("p0", [udp_packet("192.0.2.1")])
        own_ovs.ovs.appctl("dpctl/add-dp", "dummy@other")
        try:
            assert "ipv4(src=192.0.2.1/0.0.0.1," in switch.dump_megaflows()
        finally:
            own_ovs.ovs.appctl("dpctl/del-dp", "dummy@other")


def test_a_missing_bridge_is_named_by_every_way(switch: Switch, bridge: DummyBridge) -> None:
    assert bridge.name in [state.name for state in switch.bridges()]
    calls = (
        lambda: switch.describe("nosuch"),
        lambda: switch.dump_flows("nosuch"),
        lambda: switch.apply("nosuch", _add(_OURS)),
        lambda: switch.trace("nosuch", "ip"),
        lambda: switch.dump_flows("../ovsbr1"),
    )
    for call in calls:
        with pytest.raises(BridgeMissing) as caught:
            call()
        assert "ovsbr1" in caught.value.present


def test_a_port_elsewhere_is_found(way: Way, dummy_ovs: DummyOvs, bridge: DummyBridge) -> None:
    with dummy_ovs.bridge("ovsbr2", ports=("p2",)), pytest.raises(PortsMissing) as caught:
        require_ports(way.switch(dummy_ovs), bridge.name, ["p0", "p2", "p3"])
    assert caught.value.elsewhere == {"p2": "ovsbr2", "p3": None}
    assert "port p2 is on bridge ovsbr2; move it with" in str(caught.value)
    assert "bridge ovsbr1 has the ports p0, p1; " in str(caught.value)


def test_ports_that_no_flow_can_name(way: Way, dummy_ovs: DummyOvs) -> None:
    names = ("a-name-of-16-byte", "none", "p,q", "gone")
    with dummy_ovs.bridge("brn", ports=names) as bridge:
        bridge.ovs.vsctl("--no-wait", "set", "interface", "gone", "type=vxlan")
        bridge.ovs.vsctl("set", "interface", "gone", "ofport_request=77", "type=nosuchtype")
        with pytest.raises(UnusablePorts) as caught:
            require_ports(way.switch(dummy_ovs), "brn", [*names, "brn", "LOCAL"])
    assert sorted(caught.value.reasons) == sorted((*names, "brn"))
    assert "the bridge's own port" in caught.value.reasons["brn"]
    assert "does not work" in caught.value.reasons["gone"]


_WORDS = (
    *("in_port", "normal", "local", "none", "transaction", "output", "ct"),
    *("goto_table", "exit", "cookie", "1p", "0x1"),
)


def test_port_names_are_refused_exactly_where_open_vswitch_misreads_them(dummy_ovs: DummyOvs) -> None:
    with dummy_ovs.bridge("brw", ports=(*_WORDS, "p1")) as bridge:
        for name in _WORDS:
            flows = (
                f"priority=5,ip,in_port={name} actions=output:p1",
                f"priority=6,ip,in_port=p1 actions=output:{name}",
            )
            for flow in flows:
                with suppress(CommandFailed):
                    bridge.ofctl("add-flow", flow)
            dumped = "".join(bridge.dump_flows()).replace('"', "")
            assert all(flow in dumped for flow in flows) == (why_unusable(name) is None), name
            bridge.ofctl("del-flows")


def test_only_the_datapath_that_is_meant_will_do(switch: Switch, bridge: DummyBridge) -> None:
    mine = int(bridge.ovs.vsctl("get", "bridge", bridge.name, "datapath_id").strip().strip('"'), 16)
    assert require_ports(switch, bridge.name, ["p0"], datapath_id=mine).datapath_id == f"{mine:016x}"
    with pytest.raises(OtherDatapath, match="is this the right host"):
        require_ports(switch, bridge.name, ["p0"], datapath_id=mine ^ 1)


_GOOD = "cookie=0x786f000000000001, priority=7,ip actions=output:p1"


def _apply(switch: Switch, *flows: str) -> None:
    switch.apply("ovsbr1", _add(*map(parse_flow, flows)))


@pytest.mark.parametrize(
    ("flow", "error", "message"),
    [
        ("priority=1 actions=group:7", "OFPBAC_BAD_OUT_GROUP", "ADD priority=1 actions=group:7"),
        ("table=254, priority=1 actions=drop", "OFPBRC_EPERM", "ADD table:254 priority=1 actions=drop"),
    ],
)
def test_reason_is_told_and_table_is_unchanged(
    switch: Switch, bridge: DummyBridge, flow: str, error: str | None, message: str
) -> None:
    _apply(switch, _GOOD)
    with pytest.raises(BundleRejected) as caught:
        _apply(switch, "cookie=0x786f000000000001, priority=3 actions=drop", flow, "priority=4,ip actions=drop")
    assert caught.value.error == error
    assert message in caught.value.message
    assert bridge.dump_flows() == [_GOOD]


@pytest.mark.parametrize(
    ("flow", "by_text", "by_bytes"),
    [
        ("priority=1 actions=meter:7", "OFPMMFC_INVALID_METER on: ADD priority=1 actions=meter:7", "meter:7 cannot be"),
        ("priority=1,nosuch=1 actions=drop", "unknown keyword nosuch", "nosuch=1 cannot be sent by OpenFlow 1.4"),
        ("priority=1 actions=output:nosuch", "nosuch: output to unknown port", "the bridge has no port of this name"),
        (
            "priority=1,in_port=nosuch actions=drop",
            "nosuch: invalid or unknown port for in_port",
            "port nosuch cannot be sent by OpenFlow 1.4: the bridge has no port of this name",
        ),
    ],
)
def test_what_cannot_be_sent_is_refused(
    way: Way, switch: Switch, bridge: DummyBridge, *, flow: str, by_text: str, by_bytes: str
) -> None:
    with pytest.raises(BundleRejected) as caught:
        _apply(switch, _GOOD, flow)
    assert (by_text if way.server is None else by_bytes) in str(caught.value)
    assert bridge.dump_flows() == []


def test_thousands_of_refusals(switch: Switch, bridge: DummyBridge) -> None:
    """ovs-vswitchd stops reading while a hundred of its answers wait (OFCONN_REPLY_MAX of ofproto/connmgr.c)."""
    with pytest.raises(BundleRejected, match="OFPBAC_BAD_TYPE on: ADD priority=1 "):
        _apply(switch, *(f"priority={number} actions=wire:fffe000800000000" for number in range(1, 20_000)))
    assert bridge.dump_flows() == []


def test_a_full_table(switch: Switch, bridge: DummyBridge) -> None:
    limit = ["--", "--id=@t", "create", "Flow_Table", "flow_limit=2", "overflow_policy=refuse"]
    bridge.ovs.vsctl(*limit, "--", "set", "bridge", bridge.name, "flow_tables:0=@t")
    _apply(switch, _GOOD)
    with pytest.raises(BundleRejected, match="raise flow_limit") as caught:
        _apply(switch, *(f"cookie=0x786f000000000001, priority={i} actions=drop" for i in range(1, 4)))
    assert caught.value.error == "OFPFMFC_TABLE_FULL"
    assert bridge.dump_flows() == [_GOOD]


def test_a_bridge_without_bundles(switch: Switch, bridge: DummyBridge) -> None:
    bridge.ovs.vsctl("set", "bridge", bridge.name, "protocols=OpenFlow10,OpenFlow13")
    # The switch ends its connection to a controller, perhaps while flows are sent, and is back a second later.
    refused = list[OpenFlowVersionDisabled]()

    def is_refused() -> bool:
        try:
            _apply(switch, _GOOD)
        except OpenFlowVersionDisabled as error:
            refused.append(error)
        except SwitchUnreachable:
            pass
        return bool(refused)

    eventually(is_refused, "the version is refused")
    assert refused[0].spoken == ("OpenFlow10", "OpenFlow13")
    remedy = str(refused[0]).partition("`ovs-vsctl ")[2].rstrip("`")
    bridge.ovs.vsctl(*remedy.split())
    _apply(switch, _GOOD)
    assert bridge.dump_flows() == [_GOOD]
