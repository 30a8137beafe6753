"""The flows of blocks: the service's id, the masked source, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

from tests.unit.balancer import backends, claim, lines, program, service
from xenoovs.model.address import Mac
from xenoovs.model.balancer import BlockKey
from xenoovs.model.next_hop import Direct

VIP, VIP6 = IPv4Address("192.0.2.1"), IPv6Address("2001:db8::1")


def tails(*, claimed_weights: tuple[int, ...], **changes: object) -> list[str]:
    """The flows of a table, from the priority to the actions, without the id."""
    made = replace(service(claim(), *claimed_weights), **changes)  # type: ignore[arg-type]
    compiled = program(made)
    return [line.replace(f",reg0={compiled.services[0].service_id:#x}", "") for line in lines(compiled, table=1)]


def test_two_equal_backends_are_one_bit() -> None:
    assert tails(claimed_weights=(1, 1)) == [
        "priority=999,ip,nw_src=0.0.0.0/0.0.0.1 actions=mod_dl_dst:0a:00:00:00:00:00,output:p1",
        "priority=999,ip,nw_src=0.0.0.1/0.0.0.1 actions=mod_dl_dst:0a:00:00:00:00:01,output:p1",
    ]


def test_one_backend_needs_no_bit() -> None:
    assert tails(claimed_weights=(5,)) == ["priority=1000,ip actions=mod_dl_dst:0a:00:00:00:00:00,output:p1"]


def test_a_backend_of_weight_0_has_no_flow() -> None:
    assert tails(claimed_weights=(0, 3, 0)) == ["priority=1000,ip actions=mod_dl_dst:0a:00:00:00:00:01,output:p1"]


def test_priority_falls_with_depth() -> None:
    priorities = [int(line[9:].split(",")[0]) for line in tails(claimed_weights=(4, 2, 1, 1))]
    assert priorities == [999, 998, 997, 997]


def test_bits_may_be_anywhere_in_the_address() -> None:
    found = tails(claimed_weights=(3, 1), key=BlockKey(positions=(31, 8)))
    assert [line.split(" ")[0].split("nw_src=")[1] for line in found] == [
        "0.0.0.0/1",
        "128.0.0.0/128.0.1.0",
        "128.0.1.0/128.0.1.0",
    ]


def test_the_source_mac_is_set_before_the_destination() -> None:
    (line,) = tails(claimed_weights=(1,), source_mac=Mac(0xC470BDA056BD))
    assert line.endswith(" actions=mod_dl_src:c4:70:bd:a0:56:bd,mod_dl_dst:0a:00:00:00:00:00,output:p1")


def test_each_backend_leaves_by_its_own_port() -> None:
    first, second = backends(1, 1)
    mixed = (first, replace(second, next_hop=Direct(Mac(0x0A0000000001), "pf0hpf")))
    assert [line.rpartition("output:")[2] for line in tails(claimed_weights=(1,), backends=mixed)] == ["p1", "pf0hpf"]


def test_both_ip_versions_have_the_same_blocks() -> None:
    compiled = program(service(claim(VIP, VIP6), 3, 1))
    rules = [(block.rule, block.backend.name) for block in compiled.services[0].blocks]
    assert rules[: len(rules) // 2] == rules[len(rules) // 2 :]
