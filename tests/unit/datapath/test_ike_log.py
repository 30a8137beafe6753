"""Causes in the logs of IKE daemons: lines as strongSwan 5.9.8 and Libreswan 4.10 have written them."""

from __future__ import annotations

import pytest

from tests.judged import assert_recorded
from xenoovs.datapath.ike_log import parse_ike_log

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
