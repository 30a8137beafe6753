"""Which bridges OVN owns, and which it shares."""

from __future__ import annotations

import pytest

from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.ovn import BridgeMarks, LogicalFlow, OvnChassis, chassis_of, parse_logical_flows, use_of
from xenoovs.switch.ovsdb import read_logical_flows

HV1 = {
    "system-id": "hv1",
    "ovn-remote": "tcp:192.0.2.9:6642",
    "ovn-remote-probe-interval": "5000",
    "ovn-encap-type": "geneve",
    "ovn-encap-ip": "192.0.2.1",
    "ovn-bridge-mappings": "physnet1:br-ex, physnet2:br-ex,physnet3:br-tenant,broken",
}


def test_the_chassis_of_a_host() -> None:
    networks = {"br-ex": ("physnet1", "physnet2"), "br-tenant": ("physnet3",)}
    remote = "tcp:192.0.2.9:6642"
    assert chassis_of(HV1) == (OvnChassis("hv1", "br-int", ("geneve", "192.0.2.1"), networks, remote),)


def test_without_a_remote_there_is_no_chassis() -> None:
    """ovn-host sets system-id and leaves the rest to the operator."""
    assert chassis_of({"system-id": "hv1", "ovn-bridge": "br-int", "ovn-remote-probe-interval": "5000"}) == ()


def test_several_ovn_controllers_have_keys_with_their_names() -> None:
    ids = {
        **HV1,
        "ovn-remote-hv1": "tcp:192.0.2.8:6642",
        "ovn-remote-hv2": "tcp:192.0.2.9:6642",
        "ovn-bridge-hv2": "br-2",
    }
    assert [(each.name, each.bridge) for each in chassis_of(ids)] == [("hv1", "br-int"), ("hv2", "br-2")]


@pytest.mark.parametrize(
    ("marks", "ids", "is_owner"),
    [
        (BridgeMarks("br-int"), HV1, True),
        (BridgeMarks("br-x"), {**HV1, "ovn-bridge": "br-x"}, True),
        (BridgeMarks("br-int"), {**HV1, "ovn-bridge": "br-x"}, None),
        (BridgeMarks("br-int"), {}, None),
        (BridgeMarks("br-0", installed=("vm1",)), {}, True),
        (BridgeMarks("br-ex"), HV1, False),
        (BridgeMarks("br-ex", localnet=("patch-ln-to-br-int",)), {}, False),
        (BridgeMarks("ovsbr1"), HV1, None),
    ],
)
def test_what_ovn_has_to_do_with_a_bridge(marks: BridgeMarks, ids: dict[str, str], is_owner: bool | None) -> None:
    use = use_of(marks, chassis_of(ids))
    assert (None if use is None else use.is_owner) is is_owner


LFLOW_LIST = """\
Datapath: "sw0" (451be7a8-e743-4b6e-a550-dc12bbf43520)  Pipeline: ingress
  uuid=0x909874a2, table=6 (ls_in_pre_stateful ), priority=120  , match=(reg0[2] == 1 && ip4.dst == 10.0.0.100), action=(reg1 = 10.0.0.100; ct_lb_mark;)
  uuid=0xbf966a36, table=8 (ls_in_acl          ), priority=2000 , match=(reg0[7] == 1 && (ip4)), action=(reg0[1] = 1; next;)
Datapath: 451be7a8-e743-4b6e-a550-dc12bbf43521  Pipeline: egress
  uuid=0x0990ba6a, table=4 (ls_out_acl         ), priority=65532, match=(nd || nd_ra), action=(next;)
  uuid=0xbf966a36, table=8 (ls_in_acl          ), priority=2000 , match=(again), action=(next;)
  something else
"""  # noqa: E501


def test_a_logical_flow_is_found_by_its_cookie() -> None:
    found = parse_logical_flows(LFLOW_LIST)
    match = "reg0[2] == 1 && ip4.dst == 10.0.0.100"
    actions = "reg1 = 10.0.0.100; ct_lb_mark;"
    assert found[0x909874A2] == LogicalFlow(0x909874A2, "sw0", "ingress", 6, "ls_in_pre_stateful", 120, match, actions)
    assert (found[0xBF966A36].match, found[0xBF966A36].datapath) == ("reg0[7] == 1 && (ip4)", "sw0")
    egress = found[0x0990BA6A]
    assert (egress.datapath, egress.pipeline) == ("451be7a8-e743-4b6e-a550-dc12bbf43521", "egress")
    assert len(found) == 3


def test_a_southbound_database_that_cannot_be_read_is_reported() -> None:
    missing, keys = (read_logical_flows(remote, [1]) for remote in (None, "ssl:192.0.2.9:6642"))
    assert isinstance(missing, Unknown)
    assert "ovn-remote of table Open_vSwitch is not set" in missing.reason
    assert isinstance(keys, Unknown)
    assert keys.reason.startswith("ssl:192.0.2.9:6642 needs keys")


def test_without_a_cookie_of_ovn_the_database_is_not_read() -> None:
    assert read_logical_flows("unix:/nonexistent", [0, 1 << 32]) == {}
