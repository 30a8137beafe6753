"""The packets of each case of flows/ make a real ovs-vswitchd install the megaflows of megaflows.txt."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.golden.cases import CASES, balancer_of, examples_of, program_of
from tests.ovs.dummy import DummyBridge
from tests.ovs.simulated import install, observed_shapes, predicted_shape, send
from tests.predicted import predict_megaflows
from xenoovs.datapath.outer import encapsulations
from xenoovs.datapath.tunnel import TUNNEL_DEVICES

pytestmark = pytest.mark.ovs


NOT_ON_A_DUMMY = "tunnel-locals"
"""No route of a dummy datapath is local, so ports there lose `local_ip`. test_lab_tunnels.py sends these packets."""


@pytest.mark.parametrize("case", [case for case in CASES if case != NOT_ON_A_DUMMY])
def test_megaflows(dpu: DummyBridge, case: str) -> None:
    flows, packets = program_of(case).flows, [example.packet for example in examples_of(case)]
    install(dpu, flows)
    dpu.settle(removed_s=0)
    send(dpu, packets)
    predicted = {predicted_shape(megaflow) for megaflow in predict_megaflows(flows, packets)}
    devices = {end.port: TUNNEL_DEVICES[end.tunnel.type.value] for end in balancer_of(case).remote_ends}
    expected = {(in_port, fields, in_datapath(actions, devices)) for in_port, fields, actions in predicted}
    observed = {(in_port, fields, in_datapath(actions, devices)) for in_port, fields, actions in observed_shapes(dpu)}
    # Where MAC learning chooses the port, the prediction has no actions.
    learned = {(in_port, fields) for in_port, fields, actions in predicted if not actions}
    assert {(p, f, () if (p, f) in learned else actions) for p, f, actions in observed} == expected


def in_datapath(actions: tuple[str, ...], devices: Mapping[str, str]) -> tuple[object, ...]:
    """The actions, with tunnels in a form that prediction and datapath share.

    A userspace datapath pushes the outer header after it has set the inner one, and calls the port by its device.
    """
    tunnels = encapsulations(actions)
    if not tunnels:
        return actions
    sets = tuple(action for action in actions if action.startswith("set(eth("))
    return (
        *sets,
        *((devices.get(each.device, each.device.rstrip("0123456789")), each.remote, each.key) for each in tunnels),
    )
