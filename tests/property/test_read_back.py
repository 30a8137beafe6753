"""The flows of every kind of program: no two have one key, and text, wire and reader give them back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import observed
from tests.openflow_replies import flows_reply
from tests.property import test_failover_laws as failover
from tests.property import test_nat as nat
from tests.property import test_remotes as remotes
from tests.strategies import NESTED, balancers
from tests.switch_tunnels import moved_behind_tunnels
from xenoovs.compile.program import Program, compile_config
from xenoovs.compile.read import read
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.flow import Failover
from xenoovs.openflow.text import parse_flow, render_flow
from xenoovs.openflow.wire.message import decode_flows

Case = tuple[Balancer, Program]


def of(drawn: st.SearchStrategy[Balancer]) -> st.SearchStrategy[Case]:
    return drawn.map(lambda balancer: (balancer, compile_config(balancer)))


CASES: dict[str, st.SearchStrategy[Case]] = {
    "services": of(balancers()),
    "prefixes": of(balancers(vips=NESTED)),
    "NAT": of(nat.balancers()),
    "tunnels of the switch": of(balancers(most=2).flatmap(moved_behind_tunnels)),
    "tunnels of hosts": remotes.programs().map(lambda case: case[:2]),
    "groups": failover.moments().map(lambda case: (case[0].balancer, failover.compiled(*case[:2]))),
}
_A_MESSAGE = 100
"""Flows. A message has room for 64 KiB."""


@pytest.mark.parametrize("cases", CASES.values(), ids=CASES)
@given(data=st.data())
def test_flows_are_read_back(cases: st.SearchStrategy[Case], data: st.DataObject) -> None:
    balancer, program = data.draw(cases)
    flows, seen = list(program.flows), observed(program.flows)
    assert len({flow.key for flow in flows}) == len(flows)
    assert read(seen, balancer)[0] == program.decision
    assert [parse_flow(render_flow(flow)) for flow in flows] == flows
    if any(isinstance(action, Failover) for flow in flows for action in flow.actions):
        return  # Groups have messages of their own.
    numbers = {name: number for number, name in enumerate(balancer.ports, start=1)}
    names = {number: name for name, number in numbers.items()}
    parts = (flows_reply(seen[start : start + _A_MESSAGE], numbers) for start in range(0, len(seen), _A_MESSAGE))
    assert [one.flow for part in parts for one in decode_flows(part, names)] == flows
