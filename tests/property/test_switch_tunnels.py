"""Laws of backends behind tunnels of Open vSwitch: flows are read back, and answers pass from remotes alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.switch_tunnels import LOCAL, behind_tunnels
from xenoovs.compile.offloadable.cost import CostKind, check_clients
from xenoovs.compile.program import compile_config
from xenoovs.engine.change import Ends, texts_of
from xenoovs.judge.expected import expected_services
from xenoovs.judge.foreign import minimum_mask
from xenoovs.model.balancer import Balancer, OtherTraffic, Returns
from xenoovs.model.tunnel import SwitchTunnel, TunnelPorts, TunnelType
from xenoovs.openflow.flow import Match
from xenoovs.openflow.text import render_flow


@pytest.mark.parametrize("ports", TunnelPorts)
def test_flows_to_a_remote_without_encryption_are_left_out_and_no_others(ports: TunnelPorts) -> None:
    balancer = behind_tunnels(SwitchTunnel("gnv0", TunnelType.GENEVE, LOCAL, 5001, ports, 6081))
    program, far = compile_config(balancer), balancer.remote_ends[0]

    def texts(unsent: Ends) -> set[str]:
        return {text for each in texts_of(program, without=frozenset(), unsent=unsent).values() for text in each}

    gone = texts(Ends()) - texts(Ends({(far.port, far.remote)}))
    assert texts(Ends({(far.port, far.remote)})) == texts(Ends()) - gone
    assert gone
    assert all("table=1" in text and str(far.mac) in text for text in gone)
    assert not any(str(far.mac) in text for text in texts(Ends({(far.port, far.remote)})))


def _from_tunnels(balancer: Balancer) -> list[str]:
    flows = compile_config(balancer).flows
    return sorted(render_flow(flow).partition("priority=")[2] for flow in flows if "gnv0" in str(flow.match.in_port))


@pytest.mark.parametrize("policy", OtherTraffic)
def test_no_policy_for_other_traffic_is_for_tunnels(policy: OtherTraffic) -> None:
    balancer = behind_tunnels(returns=Returns.DIRECT)
    uplinks = replace(balancer.uplinks, other_traffic=policy)
    expected = [] if policy is OtherTraffic.LEAVE else ["1,in_port=gnv0 actions=drop"]
    assert _from_tunnels(replace(balancer, uplinks=uplinks)) == expected


def test_services_that_share_a_vip_share_the_flows_of_its_answers() -> None:
    one = behind_tunnels()
    other = replace(one.services[0], name="dns")
    assert _from_tunnels(replace(one, services=(*one.services, other))) == _from_tunnels(one)


def test_ecn_multiplies_the_entries_of_blocks_behind_tunnels() -> None:
    (finding,) = check_clients(compile_config(behind_tunnels()))
    assert (finding.cost, finding.entries) == (CostKind.ECN, 8)
    assert finding.text.startswith("2 entries, or up to 8 if packets use ECN")


def test_the_copies_of_a_block_for_ecn_are_no_wider_than_planned() -> None:
    block = expected_services(compile_config(behind_tunnels()))[0].blocks[0]
    assert minimum_mask(Match(), block)["nw_tos"] == 3
