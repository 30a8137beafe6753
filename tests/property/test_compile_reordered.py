"""With installed flows, backends keep their clients in any order of the config."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import compiled
from tests.flow_oracle import moved, pieces
from tests.strategies import balancers, edits, packets
from xenoovs.compile.encoding import arrives
from xenoovs.model.balancer import Balancer
from xenoovs.model.intent import allowed_backends, service_of
from xenoovs.simulate.headers import headers_of
from xenoovs.simulate.walk import tables_of


@given(st.data(), balancers())
def test_another_order_of_backends_moves_no_client(data: st.DataObject, balancer: Balancer) -> None:
    before = compiled(balancer)
    services = tuple(
        replace(service, backends=tuple(data.draw(st.permutations(service.backends)))) for service in balancer.services
    )
    after = compiled(replace(balancer, services=services), installed=before.flows)
    for old, new in zip(before.services, after.services, strict=True):
        assert moved(*(pieces(block.flow for block in one.blocks) for one in (old, new))) == 0


@given(st.data(), balancers())
def test_a_packet_still_reaches_the_destination_of_the_intent(data: st.DataObject, before: Balancer) -> None:
    after = data.draw(edits(before))
    tables = tables_of(compiled(after, installed=compiled(before).flows).flows)
    for _ in range(4):
        packet = data.draw(packets(after))
        service = service_of(after, packet)
        if service is not None:
            (copy,) = tables.run(packet).copies
            hops = [backend.next_hop for backend in allowed_backends(service)]
            assert any(
                arrives(hop, port=copy.port, sent=copy.headers.get, original=headers_of(packet).get) for hop in hops
            )
