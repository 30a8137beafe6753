"""Flows written by hand: which of them are services, and with which weights."""

from __future__ import annotations

import pytest

from xenoovs.errors import ParseError
from xenoovs.migrate.draft import Draft, DraftSwitch, render
from xenoovs.migrate.flows import read_flows
from xenoovs.model.balancer import OtherTraffic
from xenoovs.model.load import parse_config

ONE, TWO = "mod_dl_dst:02:00:00:00:00:01,output:p1", "mod_dl_dst:02:00:00:00:00:02,output:p1"


def weights_of(*flows: str) -> list[int]:
    (service,) = read_flows("\n".join(flows)).services
    return [int(backend.weight) for backend in service.backends]


def test_overlapping_flows_count_by_their_priority() -> None:
    flows = (f"priority=9,ip,nw_src=0.0.0.1/0.0.0.3,actions={TWO}", f"priority=1,ip,actions={ONE}")
    assert weights_of(*flows) == weights_of(*reversed(flows)) == [3, 1]


def test_clients_without_a_flow_are_mentioned() -> None:
    (service,) = read_flows(f"ip,nw_src=0.0.0.1/0.0.0.3,actions={ONE}").services
    assert service.omissions[0].reason == "75.0% of the clients match none of these flows; here they get a backend too"


def test_commands_of_a_shell_are_read() -> None:
    assert weights_of(f"sudo ovs-ofctl -O OpenFlow14 add-flow br0 'ip,action={ONE}'") == [1]


@pytest.mark.parametrize(
    ("flows", "policy"),
    [
        (["priority=0 actions=NORMAL"], OtherTraffic.NORMAL),
        (["priority=0 actions=drop"], OtherTraffic.DROP),
        ([], OtherTraffic.DROP),
        (["in_port=p0 actions=output:p1", "in_port=p1 actions=output:p0"], OtherTraffic.PASSTHROUGH),
    ],
)
def test_other_traffic(flows: list[str], policy: OtherTraffic) -> None:
    assert _with(flows).switch.other_traffic is policy


def _with(flows: list[str]) -> Draft:
    return read_flows("\n".join((f"ip,in_port=p0,actions={ONE}", *flows)))


def test_flows_of_xenoovs_are_no_services() -> None:
    draft = read_flows(f" cookie=0x786f010100000001, table=0, ip actions={ONE}")
    assert (draft.services, [o.reason for o in draft.omissions]) == ([], ["a flow of xenoovs itself"])


def test_text_without_flows_is_refused() -> None:
    with pytest.raises(ParseError):
        read_flows("nothing\nof the kind\n")


def test_bug_options_of_flows_were_taken_for_conditions() -> None:
    options = "idle_timeout=0,hard_timeout=0,table=0,check_overlap"
    flows = (f"{options},ip,nw_src=0.0.0.{bit}/0.0.0.1,actions={to}" for bit, to in enumerate((ONE, TWO)))
    assert weights_of(*flows) == [1, 1]


def test_a_flow_that_ends_by_a_timeout_is_named() -> None:
    draft = read_flows(f"idle_timeout=60,ip,actions={ONE}")
    assert [omission.reason for omission in draft.every_omission] == ["flows of a service have no idle_timeout=60"]


def test_bug_answers_of_servers_became_a_service_without_clients() -> None:
    draft = read_flows(f"ip,nw_dst=192.0.2.1,actions={ONE}\nip,nw_src=192.0.2.1,actions=output:p5")
    assert [service.name for service in draft.services] == ["service-192.0.2.1"]
    assert [omission.line for omission in draft.every_omission] == [2]


def test_bug_a_service_with_all_servers_behind_another_port_than_the_first_one_lost_that_port() -> None:
    draft = read_flows(f"ip,nw_dst=192.0.2.1,actions={ONE}\nip,nw_dst=192.0.2.2,actions={TWO.replace('p1', 'p2')}")
    assert [(service.backends[0].egress, draft.switch.egress) for service in draft.services] == [
        (None, "p1"),
        ("p2", "p1"),
    ]


def test_commands_name_the_bridge() -> None:
    assert read_flows(f"ovs-ofctl -O OpenFlow14 add-flow traffic 'ip,actions={ONE}'").switch.bridge == "traffic"


@pytest.mark.parametrize(
    ("match", "vip"),
    [
        ("ip,nw_dst=10.3.10.0/24", "10.3.10.0/24"),
        ("ip,nw_dst=10.3.10.9/32", "10.3.10.9"),
        ("ipv6,ipv6_dst=2001:db8::/64", "2001:db8::/64"),
    ],
)
def test_prefixes_are_vips(match: str, vip: str) -> None:
    draft = read_flows(f"{match},actions={ONE}")
    assert [tuple(map(str, service.vips)) for service in draft.services] == [(vip,)]
    config = parse_config(render(draft, source="f", switch=DraftSwitch()), file="f")
    assert [tuple(map(str, service.claim.vips)) for service in config.services] == [(vip,)]


@pytest.mark.parametrize("mask", ["10.3.0.10/255.255.0.255", "10.0.0.0/255.0.0.128", "16.0.0.0/4"])
def test_other_masks_of_a_destination_are_named(mask: str) -> None:
    draft = read_flows(f"ip,nw_dst={mask},actions={ONE}")
    assert ([o.reason for o in draft.omissions], draft.services) == (["a service does not match nw_dst"], [])
