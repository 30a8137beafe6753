"""The packets of each case of flows/ make a real ovs-vswitchd install the megaflows of megaflows.txt."""

from __future__ import annotations

import pytest

from tests.golden.cases import CASES, examples_of, program_of
from tests.ovs.dummy import DummyBridge
from tests.ovs.simulated import install, observed_shapes, predicted_shape, send
from tests.predicted import predict_megaflows

pytestmark = pytest.mark.ovs


@pytest.mark.parametrize("case", CASES)
def test_megaflows(dpu: DummyBridge, case: str) -> None:
    flows, packets = program_of(case).flows, [example.packet for example in examples_of(case)]
    install(dpu, flows)
    dpu.settle(removed_s=0)
    send(dpu, packets)
    predicted = {predicted_shape(megaflow) for megaflow in predict_megaflows(flows, packets)}
    observed = observed_shapes(dpu)
    # Where MAC learning chooses the port, the prediction has no actions.
    learned = {(in_port, fields) for in_port, fields, actions in predicted if not actions}
    assert {(p, f, () if (p, f) in learned else actions) for p, f, actions in observed} == predicted
