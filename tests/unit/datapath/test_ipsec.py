"""Policies and associations of IPsec as ip(8) prints them, and which tunnels leave unencrypted against them."""

# ruff: noqa: E101, W291  (what ip prints)

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judged import assert_recorded
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

OUTER = Encapsulation("", REMOTE, LOCAL, UDP, 6081)
USE = EncapsulationUse(OUTER, megaflows=2, packets=40)


def _state(offload: str = "", *, policies: str = POLICIES, has_sa: bool = True) -> IpsecState:
    line = f"crypto offload parameters: {offload}\n\t" if offload else ""
    associations = parse_associations(STATE.format(offload=line)) if has_sa else ()
    routes = {remote: RouteTo("p1", LOCAL) for remote in ("192.0.2.12", "192.0.2.13")}
    return IpsecState(parse_policies(policies), associations, routes)


def test_policies_and_associations_of_a_tunnel() -> None:
    first, second, third = parse_policies(POLICIES)
    assert (first.direction, first.protocol, first.source_port, first.destination_port) == ("out", UDP, None, 6081)
    assert (second.direction, third.source_port) == ("in", 6081)
    assert all(each.requires for each in (first, second, third))
    (found,) = _state("dev p1 dir out mode packet").associations
    assert (found.source, found.destination, found.spi) == (LOCAL, REMOTE, 0xC1A2B3C4)
    assert (found.device, found.direction, found.offload, found.packets) == ("p1", "out", "packet", 3)


IN_NIC = "dev p1 dir out mode packet"
ANY = "src 0.0.0.0/0 dst 0.0.0.0/0 \n\tdir out priority {} ptype main \n"
TO_NET = "src 0.0.0.0/0 dst 192.0.2.0/24{} \n\tdir out {}priority 1 ptype main \n"
OPTIONAL = "\ttmpl src 0.0.0.0 dst 0.0.0.0\n\t\tproto esp reqid 1 mode transport\n\t\tlevel use \n"


def _bound(device: str) -> str:
    """ip prints the device behind the ports (xfrm_selector_print() of ip/ipxfrm.c)."""
    return re.sub(r"(?m)^(src .*[^ ]) *$", rf"\1 dev {device} ", POLICIES)


def _use(**outer: Any) -> EncapsulationUse:
    return replace(USE, encapsulation=replace(OUTER, **outer))


def _cases() -> dict[str, tuple[EncapsulationUse, IpsecState]]:
    return {
        "only the CPU encrypts": (USE, _state()),
        "from the source address of the route": (_use(local=None), _state()),
        **{
            f"offload {parameters}": (USE, _state(parameters))
            for parameters in (
                "dev p1 dir out mode crypto",
                "dev p1 dir out",
                "dev p0 dir out mode packet",
                "dev p1 dir in mode packet",
                IN_NIC,
            )
        },
        "no SA": (USE, _state(has_sa=False)),
        "another UDP port": (_use(dst_port=4789), _state()),
        "another remote": (_use(remote=REMOTE + 1), _state()),
        "another local address": (_use(local=LOCAL + 1), _state()),
        "GRE": (_use(protocol=GRE, dst_port=None), _state()),
        "userspace": (
            EncapsulationUse(replace(OUTER, out_port="br-ul"), 1, 9, is_userspace=True),
            _state(IN_NIC),
        ),
        # The policy with the lowest priority number decides: an exemption before it, and a template that is optional.
        "an exemption before the policy": (USE, _state(policies=POLICIES + ANY.format(1))),
        "an exemption behind the policy": (USE, _state(policies=POLICIES + ANY.format(400000))),
        "an exemption for GRE": (USE, _state(policies=POLICIES + TO_NET.format(" proto gre", ""))),
        "a block": (USE, _state(policies=POLICIES + TO_NET.format("", "action block "))),
        "an optional template": (USE, _state(policies=POLICIES + TO_NET.format("", "") + OPTIONAL)),
        # Unencrypted packets were only found if a policy existed. Without the key, and without its daemon: the policies
        # of sockets alone, and none.
        "policies of sockets alone": (USE, _state(policies=POLICIES[POLICIES.index("src 0.0.0.0/0") :])),
        "no policies": (USE, _state(policies="")),
        "a policy of the port of another tunnel": (
            USE,
            _state(policies=POLICIES.replace(" dport 6081", " dport 4789")),
        ),
        "a policy of the other way": (USE, _state(policies=POLICIES.replace("dir out", "dir in"))),
        # Policies with a device were ignored.
        "a policy bound to the device of the route": (USE, _state(policies=_bound("p1"))),
        "a policy bound to another device": (USE, _state(policies=_bound("p2"))),
    }


def test_what_leaves_unencrypted_although_a_policy_or_the_config_wants_it(*, update_golden: bool) -> None:
    shown = {
        title: "\n".join(map(str, (*cleartext([use], state), *uncovered([use], state)))) or "nothing"
        for title, (use, state) in _cases().items()
    }
    assert_recorded("parsed/ipsec.txt", shown, update=update_golden)


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
