"""Causes in the logs of IKE daemons: lines as strongSwan 5.9.8 and Libreswan 4.10 have written them."""

from __future__ import annotations

import pytest

from xenoovs.datapath.ike_log import IkeFailure, parse_ike_log

PEER, PORT = "192.0.2.2", "gnv0-c0000202"
NO_ESP = "the kernel of this host takes no SA: does it have ESP (esp4) and AES-GCM (gcm, seqiv, drbg)?"


def _charon(*lines: str, at: str = "13:42:36", thread: str = "12") -> str:
    return "".join(f"2026-11-24T{at}+0000 dpu1 charon[29498]: {thread}[{line}\n" for line in lines)


def _pluto(text: str) -> str:
    return f"2026-11-24T13:42:36+0000 dpu1 pluto[815]: {text}\n"


RECEIVED = "NET] received packet: from 192.0.2.2[4500] to 192.0.2.1[4500] (1156 bytes)"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (
            ("CFG] subject certificate invalid (valid from Jan 01 00:00:00 2020 to Jan 01 00:00:00 2021)",),
            "its certificate is valid from Jan 01 00:00:00 2020 to Jan 01 00:00:00 2021, and now is not that time",
        ),
        (
            (
                'CFG] no issuer certificate found for "O=xenoovs, CN=dpu2"',
                'CFG]   issuer is "O=xenoovs, CN=other"',
                "CFG] subject certificate invalid (valid from Jan 01 00:00:00 2020 to Jan 01 00:00:00 2021)",
                "IKE] no trusted RSA public key found for 'dpu2'",
            ),
            "its certificate O=xenoovs, CN=dpu2 is signed by no authority that this host trusts",
        ),
        (
            ("IKE] no trusted RSA public key found for 'dpu2'",),
            "this host trusts no certificate of it with the name dpu2",
        ),
        (
            (
                "CFG] looking for peer configs matching 192.0.2.1[dpu1]...192.0.2.2[dpu2]",
                "CFG] no matching peer config found",
            ),
            "it calls itself dpu2 and this host dpu1: remote_name of an end says otherwise",
        ),
        (
            ("IKE] tried 1 shared key for '192.0.2.1' - '192.0.2.2', but MAC mismatched",),
            "its pre-shared key is another one",
        ),
        (("IKE] unable to install inbound and outbound IPsec SA (SAD) in kernel",), NO_ESP),
    ],
)
def test_charon_names_the_peer_by_the_packet_that_its_thread_handles(lines: tuple[str, ...], cause: str) -> None:
    others = _charon("NET] received packet: from 192.0.2.3[500] to 192.0.2.1[500] (489 bytes)", thread="09")
    found = parse_ike_log(_charon(RECEIVED) + others + _charon(*lines))
    assert found == {PEER: IkeFailure("2026-11-24T13:42:36+0000", cause)}
    assert str(found[PEER]) == f"{cause} (at 13:42:36)"


def test_a_peer_that_does_not_answer_is_known_by_what_is_sent_again() -> None:
    once = _charon(
        "IKE] retransmit 1 of request with message ID 0", "NET] sending packet: from 192.0.2.1[500] to x[500]"
    )
    assert parse_ike_log(once) == {}
    sent = "NET] sending packet: from 192.0.2.1[500] to 192.0.2.2[500] (1200 bytes)"
    found = parse_ike_log(_charon("IKE] retransmit 2 of request with message ID 0", sent))
    assert found[PEER].cause.startswith("it does not answer: ")


@pytest.mark.parametrize(("at", "is_kept"), [("13:45:00", True), ("13:58:00", False)])
def test_a_refusal_without_reason_hides_a_reason_only_when_that_is_old(at: str, is_kept: bool) -> None:
    known = _charon(RECEIVED, "IKE] tried 1 shared key for 'a' - 'b', but MAC mismatched")
    refused = _charon(RECEIVED, "IKE] received AUTHENTICATION_FAILED notify error", at=at)
    found = parse_ike_log(known + refused)[PEER].cause
    assert (found == "its pre-shared key is another one") is is_kept
    assert is_kept or "only its own log has the reason" in found


def test_an_sa_ends_what_failed_before() -> None:
    failed = _charon(RECEIVED, "IKE] received NO_PROPOSAL_CHOSEN notify, no CHILD_SA built")
    done = "IKE] CHILD_SA gnv0-c0000202-out-1{3} established with SPIs c1_i c2_o and TS 192.0.2.1/32[udp] === x"
    assert parse_ike_log(failed) != {}
    assert parse_ike_log(failed + _charon(RECEIVED, done)) == {}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            f'"{PORT}-out-1" #3: NSS: ERROR: IPsec certificate CN=dpu2,O=x invalid: SEC_ERROR_UNKNOWN_ISSUER: '
            "Peer's Certificate issuer is not recognized.",
            "its certificate CN=dpu2,O=x is refused: Peer's Certificate issuer is not recognized",
        ),
        (
            f'"{PORT}-in-2" #7: X509: authentication failed; peer certificate subjectAltName extension does not match '
            "ID_FQDN 'dpu3'",
            "its certificate is not for the name dpu3",
        ),
        (
            f'"{PORT}-in-2" #7: X509: authentication failed; peer certificate contains no subjectAltName extension to '
            "match ID_FQDN '@dpu2'",
            "its certificate is not for the name dpu2",
        ),
        (
            f'"{PORT}-in-1" #1: X509: no EE-cert in chain!',
            "its certificate is that of an authority (basicConstraints CA:TRUE)",
        ),
        (
            f"\"{PORT}-in-1\": failed to add connection: left certificate 'ovs_certkey_dpu1' not found in the "
            "NSS database",
            "pluto does not find the certificate ovs_certkey_dpu1: start ovs-monitor-ipsec with "
            "--ipsec-d=/var/lib/ipsec/nss on Debian",
        ),
        (
            f'"{PORT}-out-1" #5: authentication failed: computed hash does not match hash received from peer '
            "ID_IPV4_ADDR '192.0.2.2'",
            "its pre-shared key is another one",
        ),
        (
            f'ERROR: "{PORT}-in-1" #9: netlink response for Add SA esp.b1@192.0.2.2: Function not implemented '
            "(errno 38)",
            NO_ESP,
        ),
        (
            f'"{PORT}-1" #9: STATE_V2_PARENT_I1: retransmission; will wait 4 seconds for response',
            "it does not answer: do UDP ports 500 and 4500 pass, and does an IKE daemon run there?",
        ),
    ],
)
def test_pluto_names_the_port(text: str, cause: str) -> None:
    assert {port: failure.cause for port, failure in parse_ike_log(_pluto(text)).items()} == {PORT: cause}


def test_names_of_others_are_shown_as_they_cannot_move_a_cursor() -> None:
    text = _charon(RECEIVED, 'CFG] no issuer certificate found for "CN=\x1b[2J' + "x" * 1000 + '"')
    found = parse_ike_log(text)[PEER].cause
    assert "\x1b" not in found
    assert r"\x1b[2J" in found
    assert len(found) < 500


@pytest.mark.parametrize("text", ["", "-- No entries --\n", "x charon: [", "2026 dpu1 charon[1]: 12[\n", _pluto('"')])
def test_any_other_text_has_no_failure(text: str) -> None:
    assert parse_ike_log(text) == {}
