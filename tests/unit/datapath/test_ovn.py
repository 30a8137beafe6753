"""Which bridges OVN owns, and which it shares."""

from __future__ import annotations

import pytest

from xenoovs.datapath.ovn import BridgeMarks, OvnChassis, chassis_of, use_of

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
