"""Policies and associations of IPsec as ip(8) prints them, and which tunnels leave unencrypted against them."""

# ruff: noqa: E101, W291  (what ip prints)

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.datapath.ipsec import (
    EncapsulationUse,
    IpsecState,
    RouteTo,
    cleartext,
    parse_associations,
    parse_policies,
    uncovered,
)
from xenoovs.datapath.outer import GRE, UDP, Encapsulation
from xenoovs.errors import ParseError

LOCAL, REMOTE = int(IPv4Address("192.0.2.1")), int(IPv4Address("192.0.2.12"))

# As Open vSwitch's monitor has it with strongSwan, and two sockets of charon (iproute2 6.1).
POLICIES = """\
src 192.0.2.1/32 dst 192.0.2.12/32 proto udp dport 6081 
	dir out priority 366847 ptype main 
	tmpl src 0.0.0.0 dst 0.0.0.0
		proto esp reqid 2 mode transport
src 192.0.2.12/32 dst 192.0.2.1/32 proto udp sport 6081 
	dir in priority 366847 ptype main 
	tmpl src 0.0.0.0 dst 0.0.0.0
		proto esp reqid 2 mode transport
src 192.0.2.1/32 dst 192.0.2.12/32 proto udp sport 6081 
	dir out priority 366847 ptype main 
	tmpl src 0.0.0.0 dst 0.0.0.0
		proto esp reqid 1 mode transport
src 0.0.0.0/0 dst 0.0.0.0/0 
	socket in priority 0 ptype main 
src ::/0 dst ::/0 
	socket out priority 0 ptype main 
"""

STATE = """\
src 192.0.2.1 dst 192.0.2.12
	proto esp spi 0xc1a2b3c4(3248665540) reqid 2(0x00000002) mode transport
	replay-window 0 seq 0x00000000 flag  (0x00000000)
	aead rfc4106(gcm(aes)) <<Keys hidden>> (160 bits) 128
	anti-replay context: seq 0x0, oseq 0x3, bitmap 0x00000000
	{offload}sel src 192.0.2.1/32 dst 192.0.2.12/32 
	lifetime config:
	  limit: soft (INF)(bytes), hard (INF)(bytes)
	lifetime current:
	  384(bytes), 3(packets)
	  add 2026-11-23 08:00:00 use 2026-11-23 08:00:09
	stats:
	  replay-window 0 replay 0 failed 0
src 192.0.2.12 dst 192.0.2.1
	proto ah spi 0x00000007(7) reqid 2(0x00000002) mode transport
	replay-window 32 seq 0x00000000 flag  (0x00000000)
"""

OUTER = Encapsulation("", REMOTE, None, UDP, 6081)
USE = EncapsulationUse(OUTER, megaflows=2, packets=40)


def _state(offload: str = "", *, policies: str = POLICIES, has_sa: bool = True) -> IpsecState:
    line = f"crypto offload parameters: {offload}\n\t" if offload else ""
    associations = parse_associations(STATE.format(offload=line)) if has_sa else ()
    return IpsecState(parse_policies(policies), associations, {"192.0.2.12": RouteTo("p1", LOCAL)})


def test_policies_and_associations_of_a_tunnel() -> None:
    first, second, third = parse_policies(POLICIES)
    assert (first.direction, first.protocol, first.source_port, first.destination_port) == ("out", UDP, None, 6081)
    assert (second.direction, third.source_port) == ("in", 6081)
    assert all(each.requires for each in (first, second, third))
    (found,) = _state("dev p1 dir out mode packet").associations
    assert (found.source, found.destination, found.spi) == (LOCAL, REMOTE, 0xC1A2B3C4)
    assert (found.device, found.direction, found.offload, found.packets) == ("p1", "out", "packet", 3)


@pytest.mark.parametrize(
    ("offload", "reason"),
    [
        ("", "only the CPU encrypts"),
        ("dev p1 dir out mode crypto", "offload crypto"),
        ("dev p1 dir out", "without a mode"),
        ("dev p0 dir out mode packet", "offloaded to p1"),
        ("dev p1 dir in mode packet", "offloaded to p1"),
    ],
)
def test_a_tunnel_in_hardware_leaves_unencrypted(offload: str, reason: str) -> None:
    (found,) = cleartext([USE], _state(offload))
    assert reason in found.reason
    assert str(found).startswith(
        "UDP port 6081 from 192.0.2.1 to 192.0.2.12 leaves by p1 unencrypted (2 megaflows, 40 packets), although a "
        "policy of IPsec covers it (src 192.0.2.1/32 dst 192.0.2.12/32 proto udp dport 6081): "
    )


def test_an_association_with_packet_offload_encrypts_what_the_nic_encapsulates() -> None:
    assert cleartext([USE], _state("dev p1 dir out mode packet")) == ()
    (found,) = cleartext([USE], _state(has_sa=False))
    assert found.reason == "there is no SA from here to there"


@pytest.mark.parametrize(
    "outer",
    [
        replace(OUTER, dst_port=4789),
        replace(OUTER, remote=REMOTE + 1),
        replace(OUTER, local=LOCAL + 1),
        replace(OUTER, protocol=GRE, dst_port=None),
    ],
)
def test_a_policy_of_another_tunnel_concerns_nothing(outer: Encapsulation) -> None:
    state = replace(_state(), routes={"192.0.2.12": RouteTo("p1", LOCAL), "192.0.2.13": RouteTo("p1", LOCAL)})
    assert cleartext([replace(USE, encapsulation=outer)], state) == ()


def test_a_userspace_datapath_sends_past_the_kernel_also_with_packet_offload() -> None:
    outer = replace(OUTER, local=LOCAL, out_port="br-ul")
    (found,) = cleartext([EncapsulationUse(outer, 1, 9, is_userspace=True)], _state("dev p1 dir out mode packet"))
    assert (found.device, found.reason) == ("br-ul", "a userspace datapath bypasses the kernel's IPsec")


@pytest.mark.parametrize(
    ("more", "is_found"),
    [
        ("src 0.0.0.0/0 dst 0.0.0.0/0 \n\tdir out priority 1 ptype main \n", False),
        ("src 0.0.0.0/0 dst 0.0.0.0/0 \n\tdir out priority 400000 ptype main \n", True),
        ("src 0.0.0.0/0 dst 192.0.2.0/24 proto gre \n\tdir out priority 1 ptype main \n", True),
        ("src 0.0.0.0/0 dst 192.0.2.0/24 \n\tdir out action block priority 1 ptype main \n", True),
        (
            "src 0.0.0.0/0 dst 192.0.2.0/24 \n\tdir out priority 1 ptype main \n"
            "\ttmpl src 0.0.0.0 dst 0.0.0.0\n\t\tproto esp reqid 1 mode transport\n\t\tlevel use \n",
            False,
        ),
    ],
)
def test_the_policy_with_the_lowest_priority_number_decides(more: str, *, is_found: bool) -> None:
    """An exemption before the policy lets packets leave unencrypted, as does a template that is optional."""
    assert bool(cleartext([USE], _state(policies=POLICIES + more))) is is_found


@pytest.mark.parametrize(
    ("policies", "is_found"),
    [
        (POLICIES, False),
        (POLICIES + "src 0.0.0.0/0 dst 0.0.0.0/0 \n\tdir out priority 1 ptype main \n", True),
        # Without the key, and without its daemon: the policies of sockets alone, and none.
        (POLICIES[POLICIES.index("src 0.0.0.0/0") :], True),
        ("", True),
        # The port of another tunnel, and the other way.
        (POLICIES.replace(" dport 6081", " dport 4789"), True),
        (POLICIES.replace("dir out", "dir in"), True),
    ],
)
def test_bug_a_tunnel_of_the_config_without_a_policy_was_not_reported(policies: str, *, is_found: bool) -> None:
    """Unencrypted packets were only found if a policy existed."""
    use = replace(USE, encapsulation=replace(OUTER, local=LOCAL))
    found = uncovered([use], _state(policies=policies, has_sa=False))
    assert [str(each) for each in found] == is_found * [
        "UDP port 6081 from 192.0.2.1 to 192.0.2.12 leaves by p1 unencrypted (2 megaflows, 40 packets): the config "
        "wants IPsec for packets to 192.0.2.12, and no policy covers them"
    ]


@pytest.mark.parametrize(("device", "is_found"), [("p1", True), ("p2", False)])
def test_bug_a_policy_bound_to_the_device_of_the_route_covers_the_tunnel(device: str, *, is_found: bool) -> None:
    """Policies with a device were ignored. ip prints it behind the ports (xfrm_selector_print() of ip/ipxfrm.c)."""
    policies = re.sub(r"(?m)^(src .*[^ ]) *$", rf"\1 dev {device} ", POLICIES)
    assert {policy.device for policy in parse_policies(policies)} == {device}
    assert bool(cleartext([USE], _state(policies=policies))) is is_found
    use = replace(USE, encapsulation=replace(OUTER, local=LOCAL))
    assert [found.policy for found in uncovered([use], _state(policies=policies))] == ([] if is_found else [None])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nonsense\n", 1),
        # A tab within a word (found by the property below): a traceback.
        ("src 192.0.2.1/32 dst 192.0.2.12/32 proto u\tdp dport 6081 \n\tdir out priority 0 ptype main \n", 1),
        (POLICIES + "src 1.2.3/32 dst 1.2.3.4/32 \n\tdir out priority 0 \n", 17),
    ],
)
def test_unread_policies_are_refused_with_their_line(text: str, line: int) -> None:
    with pytest.raises(ParseError, match=f"line {line}," if "\n" in text.strip() else "expected a policy"):
        parse_policies(text)


@given(st.integers(0, len(POLICIES)), st.integers(0, 30), st.text(alphabet="src dstpo/0.:\n\t ", max_size=8))
def test_a_damaged_answer_is_policies_or_a_parse_error(at: int, removed: int, inserted: str) -> None:
    found: object
    try:
        found = parse_policies(POLICIES[:at] + inserted + POLICIES[at + removed :])
    except ParseError as error:
        found = error
    assert isinstance(found, tuple | ParseError)
