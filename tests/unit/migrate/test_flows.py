"""Flows written by hand: which of them are services, and with which weights."""

from __future__ import annotations

import pytest

from xenoovs.errors import ParseError
from xenoovs.migrate.flows import read_flows
from xenoovs.model.balancer import OtherTraffic

ONE, TWO = "mod_dl_dst:02:00:00:00:00:01,output:p1", "mod_dl_dst:02:00:00:00:00:02,output:p1"


def weights_of(*flows: str) -> list[int]:
    (service,) = read_flows("\n".join(flows)).services
    return [int(backend.weight) for backend in service.backends]


def test_overlapping_flows_count_by_their_priority() -> None:
    flows = (f"priority=9,ip,nw_src=0.0.0.1/0.0.0.3,actions={TWO}", f"priority=1,ip,actions={ONE}")
    assert weights_of(*flows) == weights_of(*reversed(flows)) == [3, 1]


def test_a_flow_of_normal_is_for_other_traffic() -> None:
    draft = read_flows(f"ip,in_port=p0,actions={ONE}\npriority=0 actions=NORMAL")
    assert draft.switch.other_traffic is OtherTraffic.NORMAL


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
