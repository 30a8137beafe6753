"""The stage that balances: the service's id and the masked key, and nothing else, choose the backend."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from xenoovs.compile.assign import BlockRule, ServiceAssignment
from xenoovs.compile.key import key_match
from xenoovs.compile.matching import family_is
from xenoovs.compile.next_hop import deliver
from xenoovs.compile.pipeline import SERVICE_ID, Stage, block_priority, cookie_of
from xenoovs.model.service import Service
from xenoovs.openflow.flow import Flow, FlowKey
from xenoovs.openflow.match import exact, match_of


def block_flows(
    service: Service, assignment: ServiceAssignment, *, service_id: int
) -> Iterator[tuple[Flow, BlockRule]]:
    """One flow for each rule and IP family of the service, beside the rule that it stands for."""
    cookie, table = cookie_of(Stage.BALANCE, service_id), Stage.BALANCE.table
    actions = [deliver(backend.next_hop, service.source_mac) for backend in service.backends]
    mine = exact(SERVICE_ID, service_id)
    for family in service.claim.served_families:
        condition = family_is(family)
        for rule in assignment.rules:
            match = match_of((mine, condition, key_match(service.key.field, family, rule.value, rule.mask)))
            yield Flow(FlowKey(table, block_priority(rule.depth), match), cookie, actions[rule.owner]), rule


def planned_flows(
    service: Service, plan: ServiceAssignment, *, service_id: int, out: Collection[int]
) -> Iterator[Flow]:
    """The blocks that the backends `out` (by index) get back, kept where no packet comes."""
    cookie, table = cookie_of(Stage.PLANNED, service_id), Stage.PLANNED.table
    remembered = replace(plan, rules=tuple(rule for rule in plan.rules if rule.owner in out))
    for flow, _ in block_flows(service, remembered, service_id=service_id):
        yield replace(flow, key=replace(flow.key, table=table), cookie=cookie)
