"""Which bridges OVN owns, and which it shares."""

from __future__ import annotations

from tests.judged import assert_recorded
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.ovn import chassis_of, parse_logical_flows, use_of
from xenoovs.switch.ovsdb import read_logical_flows

HV1 = {
    "system-id": "hv1",
    "ovn-remote": "tcp:192.0.2.9:6642",
    "ovn-remote-probe-interval": "5000",
    "ovn-encap-type": "geneve",
    "ovn-encap-ip": "192.0.2.1",
    "ovn-bridge-mappings": "physnet1:br-ex, physnet2:br-ex,physnet3:br-tenant,broken",
}

SEVERAL = {
    **HV1,
    "ovn-remote-hv1": "tcp:192.0.2.8:6642",
    "ovn-remote-hv2": "tcp:192.0.2.9:6642",
    "ovn-bridge-hv2": "br-2",
}
CHASSIS = {
    "a host": HV1,
    # ovn-host sets system-id and leaves the rest to the operator.
    "without a remote": {"system-id": "hv1", "ovn-bridge": "br-int", "ovn-remote-probe-interval": "5000"},
    "several controllers have keys with their names": SEVERAL,
}
MARKS: dict[str, tuple[tuple[str, tuple[str, ...], tuple[str, ...]], dict[str, str]]] = {
    "the bridge of OVN": (("br-int", (), ()), HV1),
    "the bridge that is set": (("br-x", (), ()), {**HV1, "ovn-bridge": "br-x"}),
    "another than that": (("br-int", (), ()), {**HV1, "ovn-bridge": "br-x"}),
    "no OVN": (("br-int", (), ()), {}),
    "an interface that OVN installed": (("br-0", ("vm1",), ()), {}),
    "a physical network": (("br-ex", (), ()), HV1),
    "a patch port to OVN": (("br-ex", (), ("patch-ln-to-br-int",)), {}),
    "a bridge beside OVN": (("ovsbr1", (), ()), HV1),
}

LFLOW_LIST = """\
Datapath: "sw0" (451be7a8-e743-4b6e-a550-dc12bbf43520)  Pipeline: ingress
  uuid=0x909874a2, table=6 (ls_in_pre_stateful ), priority=120  , match=(reg0[2] == 1 && ip4.dst == 10.0.0.100), action=(reg1 = 10.0.0.100; ct_lb_mark;)
  uuid=0xbf966a36, table=8 (ls_in_acl          ), priority=2000 , match=(reg0[7] == 1 && (ip4)), action=(reg0[1] = 1; next;)
Datapath: 451be7a8-e743-4b6e-a550-dc12bbf43521  Pipeline: egress
  uuid=0x0990ba6a, table=4 (ls_out_acl         ), priority=65532, match=(nd || nd_ra), action=(next;)
  uuid=0xbf966a36, table=8 (ls_in_acl          ), priority=2000 , match=(again), action=(next;)
  something else
"""  # noqa: E501


def test_what_ovn_has_on_a_host(*, update_golden: bool) -> None:
    shown = {f"chassis: {title}": "\n".join(map(repr, chassis_of(ids))) or "none" for title, ids in CHASSIS.items()}
    shown |= {
        f"bridge: {title}": repr(use_of(name, chassis_of(ids), *marks))
        for title, ((name, *marks), ids) in MARKS.items()
    }
    for cookie, flow in parse_logical_flows(LFLOW_LIST).items():
        shown[f"logical flow of cookie {cookie:#x}"] = repr(flow)
    assert_recorded("parsed/ovn.txt", shown, update=update_golden)


def test_a_southbound_database_that_cannot_be_read_is_reported() -> None:
    missing, keys = (read_logical_flows(remote, [1]) for remote in (None, "ssl:192.0.2.9:6642"))
    assert isinstance(missing, Unknown)
    assert "ovn-remote of table Open_vSwitch is not set" in missing.reason
    assert isinstance(keys, Unknown)
    assert keys.reason.startswith("ssl:192.0.2.9:6642 needs keys")


def test_without_a_cookie_of_ovn_the_database_is_not_read() -> None:
    assert read_logical_flows("unix:/nonexistent", [0, 1 << 32]) == {}
