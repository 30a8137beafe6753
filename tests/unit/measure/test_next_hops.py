"""What `measure next-hops` compares: the ways to backends, by their names."""

from __future__ import annotations

from tests.command_line import CommandLine
from xenoovs.config.load import parse_config
from xenoovs.config.templates import read_template
from xenoovs.measure.next_hops import way_of

BALANCER = parse_config(read_template("next-hops"), file="next-hops")


def test_each_way_has_its_name() -> None:
    assert {service.name: way_of(service, BALANCER) for service in BALANCER.services} == {
        "direct": "direct",
        "nat": "nat",
        "vxlan": "vxlan",
        "geneve": "geneve",
        "gre": "gre",
    }


def test_encrypted_tunnels_and_several_ways_are_named() -> None:
    text = read_template("next-hops")
    secret = text.replace("local: 192.168.77.1, key: 5001}", "local: 192.168.77.1, key: 5001, ipsec: {psk_file: /psk}}")
    mixed = secret.replace("{name: d2, mac: 02:00:00:00:0a:02, ", "{name: d2, mac: 02:00:00:00:0a:02, egress: gre0, ")
    mixed = mixed.replace("egress: gre0, weight: 50}", "egress: gre0, remote: 192.168.77.30, weight: 50}", 1)
    balancer = parse_config(mixed, file="mixed")
    assert [way_of(service, balancer) for service in balancer.services] == [
        "direct and gre+ipsec",
        "nat",
        "vxlan+ipsec",
        "geneve+ipsec",
        "gre+ipsec",
    ]


def test_bug_it_has_no_option_for_one_service(xenoovs: CommandLine) -> None:
    """The option had no effect: all services are compared."""
    result = xenoovs("measure", "next-hops", "--service", "web")
    assert (result.status, "No such option" in result.err) == (64, True)
