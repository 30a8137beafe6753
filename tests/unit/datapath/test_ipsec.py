"""IPsec: policies and associations as ip(8) prints them, which tunnels leave unencrypted, and logs of IKE daemons."""

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
from xenoovs.datapath.ike_log import parse_ike_log
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
    first, second = parse_policies(POLICIES)
    assert (first.protocol, first.source_port, first.destination_port) == (UDP, None, 6081)
    assert (second.source_port, first.requires, second.requires) == (6081, True, True)
    (found,) = _state("dev p1 dir out mode packet").associations
    assert (found.source, found.destination) == (LOCAL, REMOTE)
    assert (found.device, found.direction, found.offload, found.packets) == ("p1", "out", "packet", 3)


def test_bug_policies_with_the_line_ends_of_another_system_were_refused() -> None:
    assert parse_policies(POLICIES.replace("\n", "\r\n")) == parse_policies(POLICIES)
    assert parse_associations(STATE.replace("\n", "\r\n")) == parse_associations(STATE)


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


# Lines of IKE daemons, as strongSwan 5.9.8 and Libreswan 4.10 have written them.

PORT = "gnv0-c0000202"


def _charon(*lines: str, at: str = "13:42:36", thread: str = "12") -> str:
    return "".join(f"2026-11-24T{at}+0000 dpu1 charon[29498]: {thread}[{line}\n" for line in lines)


def _pluto(text: str) -> str:
    return f"2026-11-24T13:42:36+0000 dpu1 pluto[815]: {text}\n"


RECEIVED = "NET] received packet: from 192.0.2.2[4500] to 192.0.2.1[4500] (1156 bytes)"
SENT = "NET] sending packet: from 192.0.2.1[500] to 192.0.2.2[500] (1200 bytes)"
OTHERS = _charon("NET] received packet: from 192.0.2.3[500] to 192.0.2.1[500] (489 bytes)", thread="09")
ENDED = "CFG] subject certificate invalid (valid from Jan 01 00:00:00 2020 to Jan 01 00:00:00 2021)"
UNTRUSTED = "IKE] no trusted RSA public key found for 'dpu2'"
MISMATCH = "IKE] tried 1 shared key for '192.0.2.1' - '192.0.2.2', but MAC mismatched"
NO_CHILD = "IKE] received NO_PROPOSAL_CHOSEN notify, no CHILD_SA built"
DONE = "IKE] CHILD_SA gnv0-c0000202-out-1{3} established with SPIs c1_i c2_o and TS 192.0.2.1/32[udp] === x"


def _received(*lines: str) -> str:
    """Lines of the thread that handles a packet of the peer, with one of another thread between."""
    return _charon(RECEIVED) + OTHERS + _charon(*lines)


def _refused(at: str) -> str:
    """A refusal without a reason, after one with a reason."""
    return _received(MISMATCH) + _charon(RECEIVED, "IKE] received AUTHENTICATION_FAILED notify error", at=at)


LOGS = {
    "its certificate ended": _received(ENDED),
    "its authority is unknown": _received(
        'CFG] no issuer certificate found for "O=xenoovs, CN=dpu2"',
        'CFG]   issuer is "O=xenoovs, CN=other"',
        ENDED,
        UNTRUSTED,
    ),
    "no certificate for its name": _received(UNTRUSTED),
    "another name": _received(
        "CFG] looking for peer configs matching 192.0.2.1[dpu1]...192.0.2.2[dpu2]", "CFG] no matching peer config found"
    ),
    "another key": _received(MISMATCH),
    "no SA in the kernel": _received("IKE] unable to install inbound and outbound IPsec SA (SAD) in kernel"),
    "sent again once": _charon("IKE] retransmit 1 of request with message ID 0", SENT),
    "sent again twice": _charon("IKE] retransmit 2 of request with message ID 0", SENT),
    "a refusal without a reason soon after one with it": _refused("13:45:00"),
    "a refusal without a reason long after one with it": _refused("13:58:00"),
    "no proposal": _received(NO_CHILD),
    "no proposal, but an SA since": _received(NO_CHILD) + _charon(RECEIVED, DONE),
    **{
        f"pluto: {name}": _pluto(text)
        for name, text in {
            "its authority is unknown": f'"{PORT}-out-1" #3: NSS: ERROR: IPsec certificate CN=dpu2,O=x invalid: '
            "SEC_ERROR_UNKNOWN_ISSUER: Peer's Certificate issuer is not recognized.",
            "another name": f'"{PORT}-in-2" #7: X509: authentication failed; peer certificate subjectAltName extension '
            "does not match ID_FQDN 'dpu3'",
            "no name": f'"{PORT}-in-2" #7: X509: authentication failed; peer certificate contains no subjectAltName '
            "extension to match ID_FQDN '@dpu2'",
            "an authority": f'"{PORT}-in-1" #1: X509: no EE-cert in chain!',
            "no database": f"\"{PORT}-in-1\": failed to add connection: left certificate 'ovs_certkey_dpu1' not found "
            "in the NSS database",
            "another key": f'"{PORT}-out-1" #5: authentication failed: computed hash does not match hash received from '
            "peer ID_IPV4_ADDR '192.0.2.2'",
            "no SA in the kernel": f'ERROR: "{PORT}-in-1" #9: netlink response for Add SA esp.b1@192.0.2.2: Function '
            "not implemented (errno 38)",
            "sent again": f'"{PORT}-1" #9: STATE_V2_PARENT_I1: retransmission; will wait 4 seconds for response',
        }.items()
    },
    # Names of others cannot move a cursor.
    "a long name with control characters": _received(f'CFG] no issuer certificate found for "CN=\x1b[2J{"x" * 1000}"'),
}


def test_the_cause_of_each_peer_or_port(*, update_golden: bool) -> None:
    assert_recorded("parsed/ike_log.txt", {title: _shown(text) for title, text in LOGS.items()}, update=update_golden)


def _shown(log: str) -> str:
    return "\n".join(f"{peer}: {failure}" for peer, failure in parse_ike_log(log).items()) or "none"


@pytest.mark.parametrize("text", ["", "-- No entries --\n", "x charon: [", "2026 dpu1 charon[1]: 12[\n", _pluto('"')])
def test_any_other_text_has_no_failure(text: str) -> None:
    assert parse_ike_log(text) == {}
