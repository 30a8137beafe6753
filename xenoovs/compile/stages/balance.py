"""The stage that balances: the service's id and the masked key, and nothing else, choose the backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xenoovs.compile.key import BlockRule, block_conditions
from xenoovs.compile.pipeline import SERVICE_ID, Stage, block_priority, cookie_of
from xenoovs.model.service import Service
from xenoovs.openflow.action import Action
from xenoovs.openflow.flow import Flow, FlowKey
from xenoovs.openflow.match import exact, match_of

BlockActions = tuple[BlockRule, tuple[Action, ...]]


def block_flows(
    service: Service, rules: Iterable[BlockActions], *, service_id: int, stage: Stage = Stage.BALANCE
) -> Iterator[Flow]:
    """Yield one flow for each IP family of the service and each rule, in this order. `stage`: of whose table."""
    cookie, table = cookie_of(stage, service_id), stage.table
    given, mine = tuple(rules), exact(SERVICE_ID, service_id)
    for family in service.claim.served_families:
        for rule, actions in given:
            match = match_of((mine, *block_conditions(service, family, rule)))
            yield Flow(FlowKey(table, block_priority(rule.depth), match), cookie, actions)
