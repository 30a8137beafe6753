"""The megaflows that the simulation predicts for a set of packets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, product

from xenoovs.judge.simulate.classifier import PREFIX_FIELDS
from xenoovs.judge.simulate.megaflows import PredictedMegaflow, pipeline_of, predict
from xenoovs.judge.simulate.walk import Headers
from xenoovs.model.address import IPAddress, family_of, holds, prefix_of
from xenoovs.model.balancer import Balancer, Service
from xenoovs.model.next_hop import NO_TAG
from xenoovs.model.packet import Packet, service_of
from xenoovs.openflow.flow import Field, Flow, tag_of


def packets_of_every_region(balancer: Balancer, service: Service, sources: Iterable[IPAddress]) -> Iterator[Packet]:
    """Packets to each part of a service's prefixes that longer VIPs cut out; of one protocol, port and VLAN each. Those
    of a service of every VLAN are in one of no other service."""
    named = {each.claim.vlan for each in balancer.services}
    vlan = service.claim.vlan
    if vlan is None:
        vlan = 300 if NO_TAG in named else NO_TAG
    vips = {vip for each in balancer.services for vip in each.claim.vips}
    kinds = list(product((17, 6, 1), (*(ports.first for ports in service.claim.ports), 53, 80, 999)))
    for own, source in product(service.claim.vips, sources):
        inside = [first for first, length in map(prefix_of, vips) if holds(own, first)]
        bits = own.max_prefixlen - prefix_of(own)[1]
        found = {type(first)(int(first) ^ (1 << bit >> 1)) for first in inside for bit in range(bits + 1)}
        for address, in_port in product(sorted(found, key=int), balancer.uplinks.ingress):
            if family_of(address) is family_of(source):
                base = Packet(in_port, source, address, 0, 8, vlan=tag_of(vlan))
                packets = (replace(base, protocol=number, dport=port) for number, port in kinds)
                yield from islice((p for p in packets if service_of(balancer, p) is service), 1)


def predict_megaflows(
    flows: Iterable[Flow],
    packets: Iterable[Packet | Headers],
    prefix_fields: Iterable[Field] = PREFIX_FIELDS,
) -> tuple[PredictedMegaflow, ...]:
    """Return the megaflows for a set of packets, sorted.

    Args:
        flows: flows of all tables, in the order in which the switch got them.
        prefix_fields: Fields with a prefix trie.

    Raises:
        SimulateError: for a condition or an action that the simulation does not support.
    """
    pipeline = pipeline_of(flows, prefix_fields)
    return tuple(sorted({predict(pipeline, packet)[0] for packet in packets}, key=_sort_key))


def _sort_key(megaflow: PredictedMegaflow) -> tuple[object, ...]:
    match = tuple((masked.field.rank, masked.mask, masked.value) for masked in megaflow.match)
    return megaflow.in_port, len(match), match, megaflow.actions
